"""A small model of every kind of architecture, with a tokenizer and a context of any length.

The models are those of `oracle.py`, whose weights were recorded, with random embeddings for the
tokens of a small vocabulary and, where positions are learned, for those of a longer context. Of the
architectures that llama.cpp's random models cover it is one of each kind, from their skeletons.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import architecture_files
import oracle
import tiny
from engine.models import ARCHITECTURES
from oracle_families import FAMILIES

# Skeletons with layers that the models of `oracle.py` do not have, by what these are.
KINDS = {
    "qwen35": "qwen35-dense",  # gated delta nets, attention with a gate
    "qwen35moe": "qwen35moe-moe",  # with a shared expert
    "lfm2": "lfm2-dense",  # short convolutions
    "falcon-h1": "falcon-h1-dense",  # state-space layers beside attention
    "nemotron_h": "nemotron_h-dense",  # layers that are only one of the two
    "bailingmoe3": "bailingmoe3-moe",  # decays by channel
    "deepseek2": "deepseek2-moe",  # latent attention
    "gemma4": "gemma4",  # embeddings of each layer
    "gpt-oss": "gpt-oss-moe",  # sinks, biases of experts
}
_EMBEDDINGS = ("embed", "wte", "lm_head")  # parts of names of tensors with a row for each token


def write(architecture: str, path: Path, *, context: int, window: int) -> Path:
    """Write a model; layers that have a window get this one."""
    if architecture in KINDS:
        return write_skeleton(KINDS[architecture], path, context=context, window=window)
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


def write_skeleton(name: str, path: Path, *, context: int, window: int) -> Path:
    """Write a recorded model with a vocabulary; layers that have a window get this one."""
    skeleton = architecture_files.recorded()[name].without_scales().without_ranking()
    words = tiny.bpe("qwen3")
    sizes = {"context_length": context, "attention.sliding_window": window}
    skeleton = skeleton.changed(len(words["tokenizer.ggml.tokens"]), sizes)
    return architecture_files.write(skeleton, path, words)


def _case(architecture: str) -> oracle.Case:
    """The first case of an architecture, one with a window if there is one."""
    cases = [case for case in oracle.CASES.values() if FAMILIES[case.family].gguf == architecture]
    assert cases, f"no model of {architecture}: see oracle.py"
    if architecture == "llama":
        return cases[0]  # not that of Mistral's window
    return max(cases, key=lambda case: case.window > 0)


def names() -> list[str]:
    """Every architecture of `oracle.py`, and one of each other kind."""
    return sorted({*_recorded(), *KINDS} & set(ARCHITECTURES))


def is_mixture(architecture: str) -> bool:
    """Whether its model has experts."""
    return architecture.endswith("moe") or KINDS.get(architecture, "").endswith("moe")


def _recorded() -> set[str]:
    return {FAMILIES[case.family].gguf for case in oracle.CASES.values()}
