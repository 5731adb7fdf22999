"""Newer versions of the app: looking for one, its package, and what an update leaves behind."""
