"""The side panel that lists the LoRA adapters of a conversation."""
