"""The panel of LoRA adapters."""
