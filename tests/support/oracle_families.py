"""Table of architectures: tensor names and hyperparameters in transformers and in GGUF.

From transformers' modelling files and llama.cpp's converter; `oracle.py` uses it to write one
random model in both forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from oracle import Case

Array = NDArray[Any]
Hyperparameters = Callable[["Case"], dict[str, Any]]


def _nothing(case: Case) -> dict[str, Any]:
    del case
    return {}


@dataclass(frozen=True)
class Family:
    """One architecture in transformers and in GGUF."""

    gguf: str  # general.architecture
    hf: str  # Foo of FooConfig and FooForCausalLM
    config: Hyperparameters = _nothing  # FooConfig's arguments beside those of `Case.shared`
    keys: Hyperparameters = _nothing  # GGUF keys, without the architecture's prefix
    parts: dict[str, str] = field(default_factory=dict)  # tensors of a layer that differ from llama
    tops: dict[str, str] = field(default_factory=dict)  # tensors outside the layers, likewise
    pairs: bool = False  # RoPE of Q and K rotates interleaved pairs in GGUF
    plus_one: bool = False  # GGUF stores norm weights with 1 added
    centred: bool = False  # LayerNorm instead of RMSNorm
    layers: str = "model.layers."  # prefix of a layer's number


LLAMA = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.dense": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TOPS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
    "lm_head.bias": "output.bias",
}
_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _sliding(every: int) -> Hyperparameters:
    def config(case: Case) -> dict[str, Any]:
        kinds = [
            "full_attention" if (at + 1) % every == 0 else "sliding_attention"
            for at in range(case.layers)
        ]
        return {"sliding_window": case.window, "layer_types": kinds}

    return config


def _window(case: Case) -> dict[str, Any]:
    return {"attention.sliding_window": case.window} if case.window else {}


def _gemma(case: Case) -> dict[str, Any]:
    return {"query_pre_attn_scalar": case.head_width} | _sliding(2)(case) | case.more


def _gemma3(case: Case) -> dict[str, Any]:
    rope = {
        "full_attention": {"rope_theta": case.rope_base, **case.scaling},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    return {"query_pre_attn_scalar": case.head_width, "rope_parameters": rope} | _sliding(6)(case)


def _mixture(case: Case) -> dict[str, Any]:
    return {"expert_count": case.more["experts"], "expert_used_count": case.more["chosen"]}


FAMILIES = {
    "llama": Family("llama", "Llama", pairs=True),
    "mistral": Family(
        "llama",
        "Mistral",
        config=lambda case: {"sliding_window": case.window or None},
        keys=_window,
        pairs=True,
    ),
    "mixtral": Family(
        "llama",
        "Mixtral",
        config=lambda case: {
            "num_local_experts": case.more["experts"],
            "num_experts_per_tok": case.more["chosen"],
        },
        keys=_mixture,
        pairs=True,
    ),
    "qwen2": Family("qwen2", "Qwen2"),
    "qwen3": Family("qwen3", "Qwen3"),
    "qwen3moe": Family(
        "qwen3moe",
        "Qwen3Moe",
        config=lambda case: {
            "num_experts": case.more["experts"],
            "num_experts_per_tok": case.more["chosen"],
            "moe_intermediate_size": case.feed_forward,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        keys=lambda case: _mixture(case) | {"expert_feed_forward_length": case.feed_forward},
    ),
    "gemma": Family("gemma", "Gemma", plus_one=True),
    "gemma2": Family(
        "gemma2",
        "Gemma2",
        config=_gemma,
        keys=lambda case: (
            _window(case)
            | {
                "attn_logit_softcapping": case.more["attn_logit_softcapping"],
                "final_logit_softcapping": case.more["final_logit_softcapping"],
            }
        ),
        parts=_AFTER,
        plus_one=True,
    ),
    "gemma3": Family(
        "gemma3", "Gemma3Text", config=_gemma3, keys=_window, parts=_AFTER, plus_one=True
    ),
    "phi2": Family(
        "phi2",
        "Phi",
        config=lambda case: {"partial_rotary_factor": case.rotated / case.head_width},
        keys=lambda case: {"rope.dimension_count": case.rotated},
        tops={
            "model.final_layernorm.weight": "output_norm.weight",
            "model.final_layernorm.bias": "output_norm.bias",
        },
        centred=True,
    ),
    "phi3": Family(
        "phi3",
        "Phi3",
        config=lambda case: {
            "sliding_window": case.window or None,
            "pad_token_id": 0,
            "original_max_position_embeddings": case.scaling.get(
                "original_max_position_embeddings", case.context
            ),
        },
        keys=_window,
    ),
    "command-r": Family(
        "command-r",
        "Cohere",
        config=lambda case: case.more,
        keys=lambda case: {"logit_scale": case.more["logit_scale"]},
        centred=True,
    ),
    "cohere2": Family(
        "cohere2",
        "Cohere2",
        config=lambda case: _sliding(4)(case) | {"logit_scale": case.more["logit_scale"]},
        keys=lambda case: _window(case) | {"logit_scale": case.more["logit_scale"]},
        centred=True,
    ),
    "starcoder": Family(
        "starcoder",
        "GPTBigCode",
        config=lambda case: {
            "n_positions": case.context,
            "n_embd": case.width,
            "n_layer": case.layers,
            "n_head": case.heads,
            "n_inner": case.feed_forward,
            "multi_query": True,
        },
        parts={
            "ln_1": "attn_norm",
            "ln_2": "ffn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
        },
        tops={
            "transformer.wte.weight": "token_embd.weight",
            "transformer.wpe.weight": "position_embd.weight",
            "transformer.ln_f.weight": "output_norm.weight",
            "transformer.ln_f.bias": "output_norm.bias",
        },
        centred=True,
        layers="transformer.h.",
    ),
    "starcoder2": Family(
        "starcoder2",
        "Starcoder2",
        config=lambda case: {"sliding_window": case.window or None, "use_bias": True},
        keys=_window,
        centred=True,
    ),
    "granite": Family(
        "granite",
        "Granite",
        config=lambda case: case.more,
        keys=lambda case: {
            "embedding_scale": case.more["embedding_multiplier"],
            "attention.scale": case.more["attention_multiplier"],
            "residual_scale": case.more["residual_multiplier"],
            "logit_scale": case.more["logits_scaling"],
        },
        pairs=True,
    ),
    "olmo2": Family(
        "olmo2",
        "Olmo2",
        parts={
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        },
    ),
}


def tensors(case: Case, name: str, value: Array) -> dict[str, Array]:
    """A transformers weight as GGUF tensors: their names and values."""
    family = FAMILIES[case.family]
    if family.plus_one and "norm" in name:
        value = value + 1
    tops = TOPS | family.tops
    if name in tops:
        return {tops[name]: value}
    index, rest = name.removeprefix(family.layers).split(".", 1)  # 3.mlp.up_proj.weight
    if ".experts." in f".{rest}":
        return _experts(index, rest, value)
    part, kind = rest.rsplit(".", 1)
    if family.pairs and part in ("self_attn.q_proj", "self_attn.k_proj"):
        value = _interleaved(value, case.heads if "q_proj" in part else case.kv_heads)
    return {f"blk.{index}.{(LLAMA | family.parts)[part]}.{kind}": value}


def _experts(index: str, rest: str, value: Array) -> dict[str, Array]:
    """Stacked expert weights: the down projection, or gate and up split from one tensor."""
    if rest.endswith("down_proj"):
        return {f"blk.{index}.ffn_down_exps.weight": value}
    assert rest.endswith("gate_up_proj"), rest
    gate, up = np.split(value, 2, axis=1)
    return {
        f"blk.{index}.ffn_gate_exps.weight": gate,
        f"blk.{index}.ffn_up_exps.weight": up,
    }


def _interleaved(value: Array, heads: int) -> Array:
    """Reorder each head's rows from RoPE halves to interleaved pairs, as llama.cpp converts."""
    parts = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return parts.swapaxes(1, 2).reshape(value.shape)
