"""LoRA adapters: files, per-matrix deltas, and the active stack."""
