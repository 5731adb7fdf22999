"""Settings of chats, presets, and saved prompts."""
