"""Requests: what the engine is asked for an answer, planned, sent, and what is in progress."""
