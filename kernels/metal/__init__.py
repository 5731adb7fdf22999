"""Metal backend: kernels in Metal Shading Language for GPUs of Apple."""
