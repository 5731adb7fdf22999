"""The transcript: one scrolling view of all messages of a conversation."""
