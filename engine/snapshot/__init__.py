"""KV snapshots on disk: capture, write, find, restore."""
