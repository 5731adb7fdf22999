"""Chats as documents that look like the transcript: HTML and PDF."""
