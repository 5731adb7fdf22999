"""What the backends of GPUs share: layout and preparation of weights, heads, ops around launches."""
