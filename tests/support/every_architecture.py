"""A tiny model of every architecture of the table, with a tokenizer and a context of any length.

The models are those of `oracle.py`, whose weights were recorded, with random embeddings for the
tokens of a small vocabulary and, where positions are learned, for those of a longer context.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import oracle
import tiny
from engine.models import ARCHITECTURES
from oracle_families import FAMILIES

_EMBEDDINGS = ("embed", "wte", "lm_head")  # parts of names of tensors with a row for each token


def write(architecture: str, path: Path, *, context: int, window: int) -> Path:
    """Write a model; layers that have a window get this one."""
    case = _case(architecture)
    state = oracle.recorded(case.name)
    del state["tokens"], state["logits"]
    words = tiny.bpe("qwen3")
    vocabulary = len(words["tokenizer.ggml.tokens"])
    random = np.random.default_rng(sum(map(ord, architecture)))
    for name, value in state.items():
        rows = vocabulary if any(part in name for part in _EMBEDDINGS) else 0
        rows = context if "wpe" in name else rows
        if rows:
            made = random.standard_normal((rows, *value.shape[1:])) * 0.15
            state[name] = made.astype(np.float16)
    case = replace(case, context=context, window=window if case.window else 0)
    return oracle.write_gguf(case, state, path, words)


def _case(architecture: str) -> oracle.Case:
    """The first case of an architecture, one with a window if there is one."""
    cases = [case for case in oracle.CASES.values() if FAMILIES[case.family].gguf == architecture]
    assert cases, f"no model of {architecture}: see oracle.py"
    if architecture == "llama":
        return cases[0]  # not that of Mistral's window
    return max(cases, key=lambda case: case.window > 0)


def names() -> list[str]:
    """Every architecture of the table."""
    return sorted(ARCHITECTURES)
