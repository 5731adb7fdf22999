"""KV cache snapshots on disk: capture, write, find, restore."""
