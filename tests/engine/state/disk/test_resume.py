"""The sampler's state as text: written and read, and what older versions wrote."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest

from engine import Sampling
from engine.core.request import SamplerState
from engine.state.disk import resume

CHANGED = Sampling(
    temperature=1.5, seed=9, logit_bias=((3, -math.inf), (4, 0.5)), banned=("no", "ño"),
    dry_breakers=(), ignore_end=True, mirostat=2,
)  # fmt: skip
OLD_FIELDS = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "frequency_penalty",
    "presence_penalty", "penalty_window", "seed",
)  # fmt: skip


@pytest.mark.parametrize("sampling", [Sampling(), CHANGED])
def test_a_state_is_read_as_it_was_written(sampling: Sampling) -> None:
    state = SamplerState(sampling, (1 << 63) - 1, 7.25)
    written = resume.encoded(state, [5, 6])
    assert all(isinstance(text, str) for text in written.values())
    assert resume.sampler_state(written) == state
    assert resume.pending(written) == [5, 6]


def old(sampling: Sampling) -> dict[str, str]:
    """What versions before this one wrote."""
    fields = {name: value for name, value in asdict(sampling).items() if name in OLD_FIELDS}
    return {"sampling": json.dumps(fields), "random": "AAECAw==", "pending": "[1, 2]"}


def test_an_older_state_goes_on_with_a_new_seed() -> None:
    sampling = Sampling(temperature=1.5, top_k=7)
    found = [resume.sampler_state(old(sampling)) for _ in range(3)]
    assert all(state is not None and state.sampling == sampling for state in found)
    assert len({state.seed for state in found if state}) > 1
    assert resume.pending(old(sampling)) == [1, 2]


def test_an_older_state_keeps_the_seed_that_was_asked_for() -> None:
    state = resume.sampler_state(old(Sampling(seed=12)))
    assert state is not None
    assert state.seed == 12


@pytest.mark.parametrize(
    "changed",
    [
        {"sampling": "[]"},
        {"sampling": "{"},
        {"sampling": json.dumps({"unknown": 1})},
        {"sampling": json.dumps({"top_k": 1.5})},
        {"sampling": json.dumps({"top_k": -2})},
        {"sampling": json.dumps({"banned": "text"})},
        {"sampling": json.dumps({"banned": [1]})},
        {"sampling": json.dumps({"logit_bias": [[1]]})},
        {"sampling": json.dumps({"logit_bias": [["1", 2]]})},
        {"sampling": json.dumps({"logit_bias": [[-1, 2.0]]})},
        {"sampling": json.dumps({"ignore_end": 1})},
        {"seed": "-1"},
        {"seed": "1.0"},
        {"seed": str(1 << 63)},
        {"mu": "NaN"},
        {"mu": "null"},
    ],
)
def test_an_invalid_state_is_none(changed: dict[str, str]) -> None:
    written = resume.encoded(SamplerState(replace(CHANGED, seed=1), 3, 1.0), [])
    assert resume.sampler_state(written | changed) is None
    assert resume.sampler_state({}) is None
