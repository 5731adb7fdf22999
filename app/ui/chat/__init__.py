"""The chat screen around the transcript: sidebar, composer, model picker and status line."""
