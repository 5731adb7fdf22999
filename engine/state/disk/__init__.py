"""Saved pages of KV caches on disk: write, find, read, clean up."""
