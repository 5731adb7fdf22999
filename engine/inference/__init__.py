"""Inference: sessions, prompts, prefill, decoding, sampling."""
