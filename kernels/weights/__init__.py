"""Weights: formats of tensors, their values, and how they are decoded and made."""
