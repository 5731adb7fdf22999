"""Inference: sessions, prefill, decoding, sampling."""
