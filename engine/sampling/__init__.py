"""Sampling: logits to the next token, by a chain of steps and one random draw.

`Sampler.distribution` is the chain. Tokens that may not be drawn go first: those outside a grammar's
mask, suppressed ones, and those drawn here and taken back. The others are those of llama.cpp's default
chain, in its order: logit bias, penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC,
temperature. Mirostat, after the temperature, replaces those from top-n-sigma on.
"""

from engine.sampling.candidates import Candidates
from engine.sampling.checks import check
from engine.sampling.sampler import Sampler

__all__ = ["Candidates", "Sampler", "check"]
