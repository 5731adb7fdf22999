"""State to resume an interrupted answer, as text in a sequence or session file.

Older versions saved the state of another random number generator, and fewer options: such an answer
goes on with a new seed, and with the defaults of the options that are missing.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from engine.core.request import SamplerState
from engine.errors import RequestError
from engine.messages import Constraint, ConstraintKind, Sampling
from engine.sampling import check


def encoded(state: SamplerState | None, pending: Sequence[int]) -> dict[str, str]:
    """State to continue an interrupted answer; `pending` are its last tokens, not in the pages."""
    if state is None:
        return {}
    found = {
        "sampling": json.dumps(asdict(state.sampling)),
        "seed": json.dumps(state.seed),
        "mu": json.dumps(state.mu),
        "pending": json.dumps(list(pending)),
    }
    if state.constraint is not None:
        fields = asdict(state.constraint) | {"kind": state.constraint.kind.value}
        found["constraint"] = json.dumps(fields | {"begin": state.begin})
    return found


def pending(resume: Mapping[str, str]) -> list[int]:
    """The tokens of the interrupted answer that are not in the pages."""
    found = _parsed(resume.get("pending", "[]"))
    is_valid = isinstance(found, list) and all(type(one) is int for one in found)
    return cast("list[int]", found) if is_valid else []


def sampler_state(resume: Mapping[str, str]) -> SamplerState | None:
    """The sampler state of a sequence file; None for one without, or with an invalid one."""
    sampling = _sampling(_parsed(resume.get("sampling", "")))
    if sampling is None:
        return None
    if "seed" not in resume:  # of an older version
        fresh = sampling.seed if sampling.seed >= 0 else secrets.randbits(32)
        return SamplerState(sampling, fresh, 2 * sampling.mirostat_tau)
    seed, mu = _parsed(resume["seed"]), _parsed(resume.get("mu", ""))
    if type(seed) is not int or not 0 <= seed < 1 << 63:
        return None
    if type(mu) is not float or not math.isfinite(mu):
        return None
    return SamplerState(sampling, seed, mu, *_constraint(resume.get("constraint", "")))


def _constraint(text: str) -> tuple[Constraint | None, int | None]:
    """The constraint and where its answer begins; None for none, or an invalid one."""
    match _parsed(text):
        case {
            "kind": str(name),
            "text": str(source),
            "trigger": list() as triggers,
            "required": bool(required),
            "begin": None | int() as begin,
        } if name in {one.value for one in ConstraintKind}:
            trigger = cast("list[object]", triggers)
        case _:
            return None, None
    if not all(isinstance(one, str) for one in trigger) or (begin or 0) < 0:
        return None, None
    kind = ConstraintKind(name)
    return Constraint(kind, source, tuple(cast("list[str]", trigger)), required), begin


def _parsed(text: str) -> object:
    """A JSON value; None for a text that is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _sampling(found: object) -> Sampling | None:
    """Sampling parameters; None unless all are known, of the right types and in their ranges."""
    usual = asdict(Sampling())
    if not isinstance(found, dict) or not set(cast("dict[str, Any]", found)) <= set(usual):
        return None
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", found).items():
        values[name] = _pairs(value) if name == "logit_bias" else _typed(value, usual[name])
        if values[name] is None:
            return None
    try:
        sampling = Sampling(**values)
        check(sampling)
    except RequestError:
        return None
    return sampling


def _typed(value: object, usual: object) -> object:
    """A number, a flag or a tuple of texts like the usual value; None if it is not."""
    if isinstance(usual, tuple):
        texts = cast("list[object]", value) if isinstance(value, list) else [None]
        return tuple(texts) if all(isinstance(text, str) for text in texts) else None
    is_number = type(usual) is float and type(value) is int
    return value if is_number or type(value) is type(usual) else None


def _pairs(value: object) -> tuple[tuple[int, float], ...] | None:
    """Tokens with a bias; None for anything else."""
    if not isinstance(value, list):
        return None
    pairs: list[tuple[int, float]] = []
    for pair in cast("list[object]", value):
        match pair:
            case [int(token), int(bias) | float(bias)]:
                pairs.append((token, float(bias)))
            case _:
                return None
    return tuple(pairs)
