"""Plain definitions of hidden states in torch, of models in F32 files: the oracle of embeddings.

They share no code with the engine: tensors and keys are read by the gguf package.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from torch import Tensor
from torch.nn import functional


class File:
    """Tensors and keys of a GGUF file whose tensors are F32."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.tensors = {one.name: torch.tensor(one.data) for one in reader.tensors}
        self._fields = reader.fields
        self.architecture = self.key("general.architecture")

    def key(self, name: str) -> Any:
        field = self._fields.get(name.replace("{}", getattr(self, "architecture", "")))
        return None if field is None else field.contents()

    def linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(
            x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        )

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        epsilon = self.key("{}.attention.layer_norm_epsilon")
        return functional.layer_norm(x, x.shape[-1:], weight, bias, epsilon)

    def rms_norm(self, name: str, x: Tensor) -> Tensor:
        epsilon = self.key("{}.attention.layer_norm_rms_epsilon")
        return functional.rms_norm(x, x.shape[-1:], self.tensors[f"{name}.weight"], epsilon)


def qwen3(file: File, ids: list[int]) -> Tensor:
    """Hidden states [T, D] after the final norm."""
    x = file.tensors["token_embd.weight"][ids]
    turn = partial(_rotated, base=file.key("{}.rope.freq_base"))
    for layer in range(file.key("{}.block_count")):
        name = f"blk.{layer}"
        normed = file.rms_norm(f"{name}.attn_norm", x)
        q, k, v = (_heads(file, f"{name}.attn_{one}", normed, one != "q") for one in "qkv")
        q, k = file.rms_norm(f"{name}.attn_q_norm", q), file.rms_norm(f"{name}.attn_k_norm", k)
        x = x + file.linear(f"{name}.attn_output", _attend(turn(q), turn(k), v, causal=True))
        normed = file.rms_norm(f"{name}.ffn_norm", x)
        inner = functional.silu(file.linear(f"{name}.ffn_gate", normed))
        x = x + file.linear(f"{name}.ffn_down", inner * file.linear(f"{name}.ffn_up", normed))
    return file.rms_norm("output_norm", x)


def bert(file: File, ids: list[int], types: list[int] | None = None) -> Tensor:
    """Hidden states [T, D] of bert or nomic-bert; `types` are those of the tokens, else 0."""
    is_bert = file.architecture == "bert"
    x = file.tensors["token_embd.weight"][ids]
    if "token_types.weight" in file.tensors:
        x = x + file.tensors["token_types.weight"][types or [0] * len(ids)]
    if is_bert:
        x = x + file.tensors["position_embd.weight"][: len(ids)]
    x = file.layer_norm("token_embd_norm", x)
    for layer in range(file.key("{}.block_count")):
        name = f"blk.{layer}"
        if is_bert:
            q, k, v = (_heads(file, f"{name}.attn_{one}", x, False) for one in "qkv")
        else:
            whole = file.linear(f"{name}.attn_qkv", x).chunk(3, -1)
            heads = file.key("{}.attention.head_count")
            q, k, v = (one.unflatten(-1, (heads, -1)).transpose(0, 1) for one in whole)
            q, k = (_rotated(one, file.key("{}.rope.freq_base")) for one in (q, k))
        attended = file.linear(f"{name}.attn_output", _attend(q, k, v, causal=False))
        x = file.layer_norm(f"{name}.attn_output_norm", x + attended)
        inner = file.linear(f"{name}.ffn_up", x)
        if is_bert:
            inner = functional.gelu(inner)
        else:
            inner = inner * functional.silu(file.linear(f"{name}.ffn_gate", x))
        x = file.layer_norm(f"{name}.layer_output_norm", x + file.linear(f"{name}.ffn_down", inner))
    return x


def gemma_embedding(file: File, ids: list[int]) -> Tensor:
    """States [T, D] of EmbeddingGemma, after the layers that sentence-transformers adds."""
    x = file.tensors["token_embd.weight"][ids]
    x = x * x.shape[-1] ** 0.5
    near = file.key("{}.attention.sliding_window") // 2
    for layer in range(file.key("{}.block_count")):
        name, is_local = f"blk.{layer}", (layer + 1) % 6 != 0
        base = 10_000.0 if is_local else file.key("{}.rope.freq_base")
        normed = file.rms_norm(f"{name}.attn_norm", x)
        q, k, v = (_heads(file, f"{name}.attn_{one}", normed, one != "q") for one in "qkv")
        q, k = file.rms_norm(f"{name}.attn_q_norm", q), file.rms_norm(f"{name}.attn_k_norm", k)
        q, k = _rotated(q, base), _rotated(k, base)
        attended = _attend(q, k, v, causal=False, near=near if is_local else len(ids))
        attended = file.linear(f"{name}.attn_output", attended)
        x = x + file.rms_norm(f"{name}.post_attention_norm", attended)
        normed = file.rms_norm(f"{name}.ffn_norm", x)
        inner = functional.gelu(file.linear(f"{name}.ffn_gate", normed), approximate="tanh")
        down = file.linear(f"{name}.ffn_down", inner * file.linear(f"{name}.ffn_up", normed))
        x = x + file.rms_norm(f"{name}.post_ffw_norm", down)
    x = file.rms_norm("output_norm", x)
    for dense in ("dense_2", "dense_3"):
        x = file.linear(dense, x) if f"{dense}.weight" in file.tensors else x
    return x


def score(file: File, state: Tensor) -> Tensor:
    """The values [n] that a reranker computes from the state [D] of one token."""
    if "cls.weight" in file.tensors:
        state = torch.tanh(file.linear("cls", state))
    return file.linear("cls.output", state)


def _heads(file: File, name: str, x: Tensor, is_shared: bool) -> Tensor:
    """A projection as [H, T, C]; of keys and values, each is repeated for the heads that read it."""
    heads = file.key("{}.attention.head_count")
    count = (file.key("{}.attention.head_count_kv") or heads) if is_shared else heads
    split = file.linear(name, x).unflatten(-1, (count, -1)).transpose(0, 1)
    return split.repeat_interleave(heads // count, 0)


def _rotated(x: Tensor, base: float) -> Tensor:
    """RoPE of [H, T, C], pairs (i, i + C/2)."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1]).float(), base ** -(torch.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, near: int = 1 << 30) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    at = torch.arange(q.shape[1])
    scores = scores.masked_fill((at[:, None] - at).abs() > near, -torch.inf)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "last": lambda states: states[-1],
    "cls": lambda states: states[0],
    "mean": lambda states: states.mean(0),
}


def vector(states: Tensor, pooling: str) -> Tensor:
    """The embedding [D]: pooled and of length 1."""
    return functional.normalize(POOLED[pooling](states), dim=0)
