"""Sampling: logits to the next token, by a chain of steps and one random draw.

The order of the steps is that of llama.cpp's default chain: logit bias, penalties, DRY, top-n-sigma,
top-k, typical, top-p, min-p, XTC, temperature; mirostat replaces those from top-n-sigma to XTC.
"""

from engine.sampling.candidates import Candidates
from engine.sampling.checks import check
from engine.sampling.sampler import Sampler

__all__ = ["Candidates", "Sampler", "check"]
