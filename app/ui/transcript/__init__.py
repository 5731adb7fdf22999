"""The transcript: a scroll area that lays out and paints all messages of a conversation."""
