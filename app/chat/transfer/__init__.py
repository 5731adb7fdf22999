"""Chats in and out: readers of other programs' exports, and writers of files; no Qt below it."""
