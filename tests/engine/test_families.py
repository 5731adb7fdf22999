"""Architectures against llama.cpp: what it said of the same files, at positions past every window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import golden_families
import oracle

ORIGIN, ROWS = golden_families.recorded()
MOST_KL, LEAST_SAME = 1e-3, 0.99


@pytest.mark.parametrize("name", ORIGIN["figures"])
def test_logits_are_llama_cpps(name: str, tmp_path: Path) -> None:
    tokens, best, wanted = (ROWS[f"{name}/{key}"] for key in ("tokens", "best", "logprobs"))
    path = golden_families.write(name, tmp_path / "m.gguf")
    found = golden_families.ours(path, tokens.tolist())
    assert (found.argmax(1) == best[:, 0]).mean() >= LEAST_SAME
    there = np.take_along_axis(found, best.astype(np.int64), 1)
    apart = (np.exp(wanted) * (wanted - there)).sum(
        1
    )  # the rest of the tokens adds next to nothing
    assert abs(apart.mean()) <= MOST_KL


def test_every_case_was_compared() -> None:
    assert set(ORIGIN["figures"]) == set(oracle.CASES)
    for figures in ORIGIN["figures"].values():
        assert figures["kl"] <= MOST_KL
        assert figures["same_top"] >= LEAST_SAME
    assert ORIGIN["version"]
