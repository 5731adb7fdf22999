"""Per-sequence model state: the KV cache and read leases on it."""
