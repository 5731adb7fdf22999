"""What everything in the app speaks of: chats, messages and their parts; no Qt, no SQL."""
