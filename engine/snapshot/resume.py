"""State to resume an interrupted answer, as text in a sequence or session file."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import cast

import torch

from engine.errors import RequestError
from engine.inference.generate import SamplerState
from engine.inference.sampling import Sampler
from engine.messages import Sampling


def encoded(state: SamplerState | None, pending: Sequence[int]) -> dict[str, str]:
    """State to continue an interrupted answer; `pending` are its last tokens, not in the pages."""
    if state is None:
        return {}
    return {
        "sampling": json.dumps(asdict(state.sampling)),
        "random": base64.b64encode(state.random.numpy().tobytes()).decode(),
        "pending": json.dumps(list(pending)),
    }


def pending(resume: Mapping[str, str]) -> list[int]:
    """The tokens of the interrupted answer that are not in the pages."""
    try:
        found = json.loads(resume.get("pending", "[]"))
    except (ValueError, RecursionError):
        return []
    is_valid = isinstance(found, list) and all(type(one) is int for one in found)
    return cast("list[int]", found) if is_valid else []


def sampler_state(resume: Mapping[str, str]) -> SamplerState | None:
    """The sampler state of a sequence file; None for one without, or with an invalid one."""
    sampling = _sampling(resume.get("sampling", ""))
    if sampling is None:
        return None
    try:
        state = base64.b64decode(resume.get("random", ""), validate=True)
        random = torch.frombuffer(bytearray(state), dtype=torch.uint8)
        Sampler(sampling).resume(random)
    except (RequestError, ValueError, binascii.Error):
        return None
    return SamplerState(sampling, random)


def _sampling(text: str) -> Sampling | None:
    """Sampling parameters from JSON; None unless they are complete and of the right types."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    default = asdict(Sampling())
    if not isinstance(found, dict) or set(found) != {field.name for field in fields(Sampling)}:
        return None
    values = cast("dict[str, float]", found)
    for name, value in values.items():
        is_integer = type(default[name]) is int
        if type(value) is not int and (is_integer or type(value) is not float):
            return None
    return Sampling(**values)  # pyright: ignore[reportArgumentType]  # checked above
