"""Conversations in SQLite: tree of messages, search, salvage, and the writer thread."""
