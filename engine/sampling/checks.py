"""Ranges of the sampling options."""

from __future__ import annotations

import math

from engine.errors import RequestError
from engine.messages import Sampling

_MOST = 1 << 31
_MAX_BIAS = 1e6
_MOST_TEXTS, _LONGEST_TEXT = 1000, 1000  # banned texts and breakers; characters of each
_RANGES: tuple[tuple[str, str, float, float], ...] = (
    ("temperature", "temperature", 0, 100),
    ("top-k", "top_k", -1, _MOST),
    ("top-p", "top_p", 0, 1),
    ("min-p", "min_p", 0, 1),
    ("typical", "typical_p", 0, 1),
    ("repeat penalty", "repeat_penalty", 0.01, 100),
    ("frequency penalty", "frequency_penalty", -100, 100),
    ("presence penalty", "presence_penalty", -100, 100),
    ("penalty window", "penalty_window", -1, _MOST),
    ("seed", "seed", -1, (1 << 63) - 1),
    ("DRY multiplier", "dry_multiplier", 0, 100),
    ("DRY base", "dry_base", 1, 100),
    ("DRY allowed length", "dry_allowed_length", 0, _MOST),
    ("DRY window", "dry_window", -1, _MOST),
    ("top-n-sigma", "top_n_sigma", -1, 1000),
    ("XTC probability", "xtc_probability", 0, 1),
    ("XTC threshold", "xtc_threshold", 0, 1),
    ("range of the dynamic temperature", "temperature_range", 0, 100),
    ("exponent of the dynamic temperature", "temperature_exponent", 0, 100),
    ("version of mirostat", "mirostat", 0, 2),
    ("target entropy of mirostat", "mirostat_tau", 0, 100),
    ("learning rate of mirostat", "mirostat_eta", 0, 1),
)
_REMEDY = "Change it in the settings or on the command line."


def check(sampling: Sampling, vocabulary: int = _MOST) -> None:
    """Raise RequestError naming the first option out of its range."""
    for name, field, low, high in _RANGES:
        value = getattr(sampling, field)
        if not low <= value <= high:  # also true for NaN
            raise RequestError(
                f"The {name} is {value}; it must lie between {low:,} and {high:,}.", _REMEDY
            )
    for token, bias in sampling.logit_bias:
        if not 0 <= token < vocabulary:
            raise RequestError(
                f"The logit bias names token {token}, but the vocabulary ends at "
                f"{vocabulary - 1:,}.",
                _REMEDY,
            )
        if not (abs(bias) <= _MAX_BIAS or bias == -math.inf):
            raise RequestError(
                f"The logit bias of token {token} is {bias}; it must be -inf or lie between "
                f"{-_MAX_BIAS:,.0f} and {_MAX_BIAS:,.0f}.",
                _REMEDY,
            )
    for name, texts in (("banned texts", sampling.banned), ("DRY breakers", sampling.dry_breakers)):
        if len(texts) > _MOST_TEXTS or any(len(text) > _LONGEST_TEXT for text in texts):
            raise RequestError(
                f"The {name} are too many or too long.",
                f"Give at most {_MOST_TEXTS:,}, of at most {_LONGEST_TEXT:,} characters.",
            )
