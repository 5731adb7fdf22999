"""Maths on tensors: weight formats, ops, and the kernels that run them."""
