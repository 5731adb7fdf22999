"""CUDA kernels in Triton's language, which is no Python to a type checker."""
