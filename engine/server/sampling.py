"""Sampling parameters of a request body, under OpenAI's and llama.cpp's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.messages import Sampling
from engine.server.fields import Fields

# Name in a body, field of `Sampling`, whether it is a whole number, least and most value. Later
# names of one field win: a body that has several is of a client that sets the last on purpose.
_NUMBERS: tuple[tuple[str, str, bool, float | None, float | None], ...] = (
    ("temperature", "temperature", False, 0, None),
    ("dynatemp_range", "temperature_range", False, 0, None),
    ("dynatemp_exponent", "temperature_exponent", False, None, None),
    ("top_k", "top_k", True, None, None),
    ("top_p", "top_p", False, 0, 1),
    ("min_p", "min_p", False, 0, 1),
    ("typ_p", "typical_p", False, 0, 1),
    ("typical_p", "typical_p", False, 0, 1),
    ("top_n_sigma", "top_n_sigma", False, None, None),
    ("xtc_probability", "xtc_probability", False, 0, 1),
    ("xtc_threshold", "xtc_threshold", False, 0, 1),
    ("repetition_penalty", "repeat_penalty", False, 0, None),
    ("repeat_penalty", "repeat_penalty", False, 0, None),
    ("repeat_last_n", "penalty_window", True, -1, None),
    ("frequency_penalty", "frequency_penalty", False, None, None),
    ("presence_penalty", "presence_penalty", False, None, None),
    ("dry_multiplier", "dry_multiplier", False, 0, None),
    ("dry_base", "dry_base", False, None, None),
    ("dry_allowed_length", "dry_allowed_length", True, 0, None),
    ("dry_penalty_last_n", "dry_window", True, -1, None),
    ("mirostat", "mirostat", True, 0, 2),
    ("mirostat_tau", "mirostat_tau", False, 0, None),
    ("mirostat_eta", "mirostat_eta", False, 0, None),
)
_MOST_TEXTS = 1_000  # in `logit_bias`: each is a request to the engine
_NEVER = -100.0  # OpenAI's bias of a token that is never drawn


def sampling(body: Fields) -> dict[str, Any]:
    """The fields of `Sampling` that a body gives; raises ApiError for one that is wrong."""
    found: dict[str, Any] = {}
    for name, field, is_whole, least, most in _NUMBERS:
        if name not in body:
            continue
        if is_whole:
            found[field] = body.integer(name, 0, _whole(least), _whole(most))
        else:
            found[field] = body.number(name, 0.0, least, most)
    # A negative temperature is greedy in llama.cpp; `least` refuses it as OpenAI does.
    if "seed" in body:
        seed = body.integer("seed", -1)
        # As in llama.cpp 4,294,967,295 is a random one, like any negative number.
        found["seed"] = -1 if seed < 0 or seed == 0xFFFFFFFF else seed
    if body.flag("ignore_eos"):
        found["ignore_end"] = True
    if "dry_sequence_breakers" in body:
        found["dry_breakers"] = body.texts("dry_sequence_breakers")
    if "logit_bias" in body:
        found["logit_bias"] = tuple(one for one in _biases(body) if isinstance(one[0], int))
    return found


def text_biases(body: Fields) -> tuple[tuple[str, float], ...]:
    """Biases of `logit_bias` for all tokens of a text, as llama.cpp takes them beside token ids."""
    given = _biases(body) if "logit_bias" in body else []
    found = tuple((text, bias) for text, bias in given if isinstance(text, str))
    if len(found) > _MOST_TEXTS:
        body.fail("logit_bias", f"has {len(found):,} texts; give {_MOST_TEXTS:,} at most, or ids.")
    return found


def llama_names(sampling: Sampling) -> dict[str, Any]:
    """Sampling parameters under llama.cpp's names."""
    names = {field: name for name, field, *_ in _NUMBERS}
    found = {name: getattr(sampling, field) for field, name in names.items()}
    return found | {"seed": sampling.seed}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _biases(body: Fields) -> list[tuple[int | str, float]]:
    """Biases as an object by token id or text, or as llama.cpp's list of pairs; `false`: never."""
    given = body.get("logit_bias")
    if isinstance(given, dict):
        pairs: list[Any] = [[key, value] for key, value in given.items()]
    elif isinstance(given, list):
        pairs = [[one["token"], one.get("bias")] if _is_row(one) else one for one in given]
    else:
        body.fail("logit_bias", "must be an object of token ids and numbers.")
    made: list[tuple[int | str, float]] = []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2):
            body.fail("logit_bias", "must have pairs of a token id and a number.")
        token, value = pair
        if isinstance(token, str) and token.isdecimal() and len(token) < 10:
            token = int(token)
        is_number = isinstance(value, int | float) and not math.isnan(value)
        is_token = isinstance(token, int) and not isinstance(token, bool) and token >= 0
        if not (is_token or (isinstance(token, str) and token)) or not is_number:
            body.fail("logit_bias", f"must have token ids and numbers, not {str(pair)[:50]}.")
        never = value is False or value <= _NEVER
        made.append((token, -math.inf if never else float(value)))
    return made


def _is_row(value: Any) -> bool:
    return isinstance(value, Mapping) and "token" in value
