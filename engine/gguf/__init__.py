"""GGUF reader: metadata and tensors, checked before use."""
