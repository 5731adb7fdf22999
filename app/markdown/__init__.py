"""Incremental markdown parser: text that streams in, to a flat list of blocks."""
