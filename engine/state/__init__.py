"""What a model remembers of texts: KV pages of sequences, the prefix tree of them, and both on disk."""
