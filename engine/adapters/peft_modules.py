"""Hugging Face modules that PEFT adapts, and the GGUF tensors that llama.cpp's converter makes of them.

Most modules are one tensor. The converter permutes the rows of some for interleaved RoPE, divides
others into several tensors, and stacks those of single experts; the factors of a pair are changed
in the same way.

Source: https://github.com/ggml-org/llama.cpp/tree/master/conversion
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapters.delta import EMBEDDING, HEAD, OTHER_ADAPTER, BaseModel
from engine.errors import AdapterError, AdapterOfOtherModel
from engine.gguf.values import shown

# The converter multiplies the weights of Falcon-H1 by factors that the file does not have; there is
# no public module of Ling 3 to compare with.
_REFUSED = ("bailingmoe3", "falcon-h1")
# Their rows are permuted, as the modules of a head's halves are its even and odd channels.
_PERMUTED = frozenset({
    *("arcee", "granite", "granite_swa", "granitehybrid", "granitemoe", "llama", "minicpm"),
    *("mistral3", "nanbeige", "nemotron_h", "nemotron_h_moe", "smollm3"),
})  # fmt: skip

_OUTSIDE = re.compile(
    r"^(?:base_model\.)?(?:(?:language_)?model\.|transformer\.|backbone\.|bert\.)*"
)
_LAYER = re.compile(r"(?:encoder\.)?(?:layers|layer|h)\.(\d{1,5})\.(.+)")
_EXPERT = re.compile(r"(?<=\bexperts\.)(\d{1,5})(?=\.)")
_TOP = {
    "embed_tokens": EMBEDDING,
    "wte": EMBEDDING,
    "embeddings": EMBEDDING,
    "lm_head": HEAD,
    "per_layer_model_projection": "per_layer_model_proj.weight",
}
_PROJECTIONS = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
_NUMBERED = {"w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down"}
# In a layer: the middle of the tensor's name, or several of which a file has one.
_MODULES: dict[str, str | tuple[str, ...]] = {
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.out_proj": "attn_output",
    "self_attn.dense": "attn_output",
    "self_attn.g_proj": "attn_gate",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_k_v_proj": "attn_qkv",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    **{f"attention.self.{part}": f"attn_{part[0]}" for part in ("query", "key", "value")},
    "attention.output.dense": "attn_output",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    **{f"mlp.{part}": name for part, name in _PROJECTIONS.items()},
    "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    **{f"feed_forward.{part}": name for part, name in (_PROJECTIONS | _NUMBERED).items()},
    "shared_mlp.output_linear": ("ffn_down_shexp", "ffn_down"),
    **{
        f"{where}.{shared}.{part}": f"{name}_shexp"
        for where in ("mlp", "feed_forward", "mixer")
        for shared in ("shared_expert", "shared_experts")
        for part, name in _PROJECTIONS.items()
    },
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{
        f"{where}.experts.*.{part}": f"{name}_exps"
        for where in ("mlp", "feed_forward", "mixer", "block_sparse_moe")
        for part, name in (_PROJECTIONS | _NUMBERED).items()
    },
    **dict.fromkeys(
        (
            *("mlp.gate", "mlp.router", "feed_forward.gate", "feed_forward.router", "mixer.gate"),
            *("block_sparse_moe.gate", "block_sparse_moe.router.layer", "router.proj"),
        ),
        "ffn_gate_inp",
    ),
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    **{f"{mixer}.in_proj": "ssm_in" for mixer in ("mamba", "mixer")},
    **{f"{mixer}.out_proj": "ssm_out" for mixer in ("mamba", "mixer")},
    **{f"mixer.{part}_proj": f"attn_{part}" for part in "qkv"},
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
    "linear_attn.in_proj_ba": "ssm_ba",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
}

Factors = tuple[Tensor, Tensor]  # a [R, in] and b [out, R], or [E, R, in] and [E, out, R]


def _same(a: Tensor, b: Tensor) -> Factors:
    return a, b


@dataclass(frozen=True, slots=True)
class Target:
    """What a module is in the file: a tensor, or a part of one."""

    name: str  # GGUF
    change: Callable[[Tensor, Tensor], Factors] = _same  # from the factors of the module
    expert: int = -1  # whose matrix of the tensor it is; -1: it is the whole tensor
    start: int = 0  # the first of its rows in that matrix
    rows: int = 0  # of them; 0: all


def targets(module: str, base: BaseModel) -> list[Target]:
    """The tensors of a module; raises AdapterError for an unknown module or family."""
    if base.architecture in _REFUSED:
        raise AdapterError(
            f"PEFT adapters for {base.architecture!r} models cannot be read by this version.",
            "Choose the adapter in GGUF form.",
        )
    inner = _OUTSIDE.sub("", module, count=1)
    if inner in _TOP:
        return [Target(_TOP[inner])]
    layer = _LAYER.fullmatch(inner)
    if layer is None:
        raise _unknown(module)
    prefix, part = f"blk.{int(layer[1])}", layer[2]
    several = _SEVERAL.get(part)
    if several is not None:
        return several(prefix, base)
    expert = _EXPERT.search(part)
    names = _MODULES.get(_EXPERT.sub("*", part))
    if names is None:
        raise _unknown(module)
    name = _first(prefix, base, *([names] if isinstance(names, str) else names))
    if expert is not None:
        return [_of_expert(name, int(expert[1]), base)]
    if part.endswith(("q_proj", "k_proj")) and base.architecture in _PERMUTED:
        heads = base.heads if part.endswith("q_proj") else base.kv_heads
        return [Target(name, lambda a, b: (a, _interleaved(b, heads)))]
    return [Target(name)]


def _unknown(module: str) -> AdapterOfOtherModel:
    return AdapterOfOtherModel(
        f"The adapter changes the module {shown(module.removeprefix('base_model.model.'))}, for which "
        "this version knows no tensor of the model.",
        OTHER_ADAPTER,
    )


def _first(prefix: str, base: BaseModel, *parts: str) -> str:
    """The first of some tensors that the model has, or else the first of them."""
    names = [f"{prefix}.{part}.weight" for part in parts]
    return next((name for name in names if name in base.shapes), names[0])


def _of_expert(name: str, expert: int, base: BaseModel) -> Target:
    """The matrix of an expert, also where gates and ups are in one tensor."""
    kind = name.split(".")[2]
    fused = name.replace(kind, "ffn_gate_up_exps")
    if name in base.shapes or kind == "ffn_down_exps" or fused not in base.shapes:
        return Target(name, expert=expert)
    rows = base.shapes[fused][1] // 2
    start = rows if kind == "ffn_up_exps" else 0
    return Target(fused, expert=expert, start=start, rows=rows)


def _interleaved(b: Tensor, heads: int) -> Tensor:
    """Permute the rows of b [heads*C, R] from half-split to interleaved RoPE order per head."""
    rows, rank = b.shape
    if rows % (2 * heads):
        return b  # of another model: its shape is refused
    return b.view(heads, 2, rows // heads // 2, rank).swapaxes(1, 2).reshape(rows, rank)


# --- modules that are several tensors -----------------------------------------------------------


def _latent(prefix: str, base: BaseModel) -> list[Target]:
    """Keys and values of latent attention [H*(N+V), L]: [H, L, N] and [H, V, L]."""
    key, value = f"{prefix}.attn_k_b.weight", f"{prefix}.attn_v_b.weight"
    shapes = base.shapes.get(key), base.shapes.get(value)
    if shapes[0] is None or shapes[1] is None:
        return [Target(key)]
    heads, latent, plain = shapes[0]
    rows = shapes[1][1]

    def part(b: Tensor, start: int, end: int) -> Tensor:
        return b.unflatten(0, (heads, plain + rows))[:, start:end]

    def fits(a: Tensor, b: Tensor) -> bool:
        return a.shape[1] == latent and len(b) == heads * (plain + rows)

    def keys(a: Tensor, b: Tensor) -> Factors:
        if not fits(a, b):
            return a, b
        return part(b, 0, plain).swapaxes(1, 2), a.T.expand(heads, -1, -1)

    def values(a: Tensor, b: Tensor) -> Factors:
        if not fits(a, b):
            return a, b
        return a.expand(heads, -1, -1), part(b, plain, plain + rows)

    return [Target(key, keys), Target(value, values)]


def _gate_and_up(prefix: str, base: BaseModel) -> list[Target]:
    """Gates and ups of an MLP in one module: halves of its rows."""
    gate = _first(prefix, base, "ffn_gate_shexp", "ffn_gate")
    up = gate.replace("ffn_gate", "ffn_up")
    return [
        Target(gate, lambda a, b: (a, b.chunk(2)[0])),
        Target(up, lambda a, b: (a, b.chunk(2)[-1])),
    ]


def _queries_keys_values_gates(prefix: str, base: BaseModel) -> list[Target]:
    """Of a delta net, by key head: [q, k, v, z] of each, or in older files as they are."""
    both, gate = f"{prefix}.attn_qkv.weight", f"{prefix}.attn_gate.weight"
    old = f"{prefix}.ssm_in.weight"
    if base.delta_heads is None or (old in base.shapes and both not in base.shapes):
        return [Target(old)]
    keys, key_width, values, value_width = base.delta_heads
    wide = values // keys * value_width

    def of_heads(b: Tensor, start: int, end: int) -> Tensor:
        return b.unflatten(0, (keys, -1))[:, start:end].flatten(0, 1)

    def queries_keys_values(a: Tensor, b: Tensor) -> Factors:
        if len(b) != keys * (2 * key_width + 2 * wide):
            return a, b
        ends = (0, key_width, 2 * key_width, 2 * key_width + wide)
        return a, torch.cat([of_heads(b, *ends[at : at + 2]) for at in range(3)])

    def gates(a: Tensor, b: Tensor) -> Factors:
        if len(b) != keys * (2 * key_width + 2 * wide):
            return a, b
        return a, of_heads(b, 2 * key_width + wide, 2 * key_width + 2 * wide)

    return [Target(both, queries_keys_values), Target(gate, gates)]


def _tiled(part: str, rows: str) -> Callable[[str, BaseModel], list[Target]]:
    """A part of a delta net whose values are grouped by key head, and tiled in the file.

    `rows`: which are in the order of values: "values", "heads", "last" of queries and keys before
    them, or the "columns".
    """

    def make(prefix: str, base: BaseModel) -> list[Target]:
        name = f"{prefix}.{part}.weight"
        if base.delta_heads is None:
            return [Target(name)]
        keys, key_width, values, value_width = base.delta_heads
        width = 1 if rows == "heads" else value_width

        def order(x: Tensor) -> Tensor:
            if len(x) != values * width:
                return x  # of another model: its shape is refused
            return x.unflatten(0, (keys, values // keys, width)).swapaxes(0, 1).flatten(0, 2)

        def change(a: Tensor, b: Tensor) -> Factors:
            if rows == "columns":
                return order(a.T).T.contiguous(), b
            before = 2 * keys * key_width if rows == "last" else 0
            return a, torch.cat((b[:before], order(b[before:])))

        return [Target(name, change)]

    return make


def _delta_output(prefix: str, base: BaseModel) -> list[Target]:
    if base.architecture == "qwen3next":  # whose values stay grouped
        return [Target(f"{prefix}.ssm_out.weight")]
    return _tiled("ssm_out", "columns")(prefix, base)


_SEVERAL: dict[str, Callable[[str, BaseModel], list[Target]]] = {
    "self_attn.kv_b_proj": _latent,
    "shared_mlp.input_linear": _gate_and_up,
    "linear_attn.in_proj_qkvz": _queries_keys_values_gates,
    "linear_attn.in_proj_qkv": _tiled("attn_qkv", "last"),
    "linear_attn.in_proj_z": _tiled("attn_gate", "values"),
    "linear_attn.in_proj_a": _tiled("ssm_alpha", "heads"),
    "linear_attn.in_proj_b": _tiled("ssm_beta", "heads"),
    "linear_attn.out_proj": _delta_output,
}
