"""Speculative decoding: drafts of the next tokens, verified by the model in one pass."""
