"""What the backends of GPUs share: the layout of weights."""
