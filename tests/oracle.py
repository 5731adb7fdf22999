"""Tiny random models run through Hugging Face transformers in float32, and the same as GGUF.

Run as a script (in an environment with transformers) it records `golden/oracle.npz`: weights,
tokens and logits. The tests rebuild a GGUF file from the recorded weights and compare our logits.
All weights are rounded to float16 first, so half the bytes hold them exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

RECORDED = Path(__file__).parent / "golden" / "oracle.npz"
TOKENS = 40
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One architecture at a size that shows its quirks: groups, odd widths, windows."""

    name: str
    architecture: str
    vocabulary: int = 96
    width: int = 48
    layers: int = 2
    heads: int = 6
    kv_heads: int = 2
    head_width: int = 8
    feed_forward: int = 80
    tied: bool = False
    rope_base: float = 10_000.0
    window: int = 0
    scaling: dict[str, Any] = field(default_factory=dict)

    @property
    def shared(self) -> dict[str, Any]:
        """The keyword arguments every transformers configuration takes."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_width,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": 256,
            "tie_word_embeddings": self.tied,
            "attn_implementation": "eager",
        }


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES = {
    case.name: case
    for case in (
        Case("llama", "llama"),
        Case("llama3", "llama", rope_base=500_000.0, scaling=LLAMA3_SCALING),
        Case("llama-linear", "llama", scaling={"rope_type": "linear", "factor": 4.0}),
        Case("qwen3", "qwen3", head_width=16, tied=True, rope_base=1_000_000.0),
        Case(
            "gemma3",
            "gemma3",
            width=32,
            layers=7,
            heads=4,
            kv_heads=1,
            head_width=16,
            feed_forward=64,
            tied=True,
            rope_base=1_000_000.0,
            window=8,
            scaling={"rope_type": "linear", "factor": 2.0},
        ),
    )
}


def run_transformers(case: Case) -> dict[str, Array]:
    """Random weights, tokens and float32 logits of one case; needs transformers."""
    import torch

    torch.manual_seed(sum(map(ord, case.name)))
    model = _model(case).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "norm" in name else 0.15
            parameter.copy_((torch.randn_like(parameter) * spread).half().float())
            if "norm" in name and case.architecture != "gemma3":
                parameter.copy_((parameter + 1).half().float())
        tokens = torch.randint(case.vocabulary, (TOKENS,))
        logits = model(tokens[None]).logits[0]
    state = {
        name: value.half().numpy()
        for name, value in model.state_dict().items()
        if not (case.tied and name == "lm_head.weight")
    }
    return {"tokens": tokens.numpy(), "logits": logits.numpy(), **state}


def build_transformers(case: Case, state: dict[str, Array]) -> Any:
    """The model of a case with the weights of `state`, by their transformers names."""
    import torch

    model = _model(case).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(state[name]).float())
    return model


def _model(case: Case) -> Any:
    import transformers as hf

    if case.architecture == "gemma3":
        config = hf.Gemma3TextConfig(
            **case.shared,
            sliding_window=case.window,
            query_pre_attn_scalar=case.head_width,
            layer_types=[
                "full_attention" if (at + 1) % 6 == 0 else "sliding_attention"
                for at in range(case.layers)
            ],
            rope_parameters={
                "full_attention": {"rope_theta": case.rope_base, **case.scaling},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        )
        return hf.Gemma3ForCausalLM(config)
    rope = {"rope_type": "default", **case.scaling, "rope_theta": case.rope_base}
    kind = {
        "llama": (hf.LlamaConfig, hf.LlamaForCausalLM),
        "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM),
    }
    config_class, model_class = kind[case.architecture]
    return model_class(config_class(**case.shared, rope_parameters=rope))


def write_gguf(case: Case, state: dict[str, Array], path: Path) -> Path:
    """The same model as a GGUF file, every matrix in F32."""
    writer = GGUFWriter(path, case.architecture)
    writer.add_block_count(case.layers)
    writer.add_context_length(256)
    writer.add_embedding_length(case.width)
    writer.add_feed_forward_length(case.feed_forward)
    writer.add_head_count(case.heads)
    writer.add_head_count_kv(case.kv_heads)
    writer.add_key_length(case.head_width)
    writer.add_value_length(case.head_width)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(case.rope_base)
    if case.window:
        writer.add_sliding_window(case.window)
    if case.scaling.get("rope_type") == "linear":
        writer.add_string(f"{case.architecture}.rope.scaling.type", "linear")
        writer.add_float32(f"{case.architecture}.rope.scaling.factor", case.scaling["factor"])
    if case.scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(case))
    for name, value in state.items():
        new, change = _renamed(case, name)
        writer.add_tensor(new, np.ascontiguousarray(change(value.astype(np.float32))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
}
_AFTER = {"llama": "ffn_norm", "qwen3": "ffn_norm", "gemma3": "post_attention_norm"}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def _renamed(case: Case, name: str) -> tuple[str, Callable[[Array], Array]]:
    """A transformers weight's GGUF name, and what its values undergo on the way."""
    parts = _PARTS | {
        "post_attention_layernorm": _AFTER[case.architecture],
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    change: Callable[[Array], Array] = lambda value: value  # noqa: E731
    if case.architecture == "gemma3" and "norm" in name:
        change = lambda value: value + 1  # noqa: E731
    if name in _TOP:
        return _TOP[name], change
    _, _, index, rest = name.split(".", 3)  # model.layers.3.mlp.up_proj.weight
    part, kind = rest.rsplit(".", 1)
    if case.architecture == "llama" and rest in (
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
    ):
        heads = case.heads if "q_proj" in part else case.kv_heads
        change = lambda value: _interleaved(value, heads)  # noqa: E731
    return f"blk.{index}.{parts[part]}.{kind}", change


def _interleaved(value: Array, heads: int) -> Array:
    """Rows of each head from halves to pairs, as llama's converter orders them."""
    rows, columns = value.shape
    return (
        value.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _llama3_divisors(case: Case) -> Array:
    """What Llama 3 divides each frequency by.

    Source: https://github.com/ggml-org/llama.cpp/blob/b6000/convert_hf_to_gguf.py (rope_freqs)
    """
    scaling, half = case.scaling, case.head_width // 2
    frequencies = case.rope_base ** -(np.arange(half) / half)
    wavelength = 2 * np.pi / frequencies
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32)


def record() -> None:
    """Write every case to `golden/oracle.npz`."""
    import torch
    import transformers

    rows = {
        f"{name}/{key}": value
        for name, case in CASES.items()
        for key, value in run_transformers(case).items()
    }
    origin = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    np.savez_compressed(RECORDED, origin=np.array(origin), **rows)
    print(f"{RECORDED.name}: {RECORDED.stat().st_size:,} bytes, {origin}")


def recorded(name: str) -> dict[str, Array]:
    """One recorded case: weights by their transformers names, `tokens` and `logits`."""
    with np.load(RECORDED) as rows:
        return {
            key.removeprefix(f"{name}/"): rows[key]
            for key in rows.files
            if key.startswith(f"{name}/")
        }


if __name__ == "__main__":
    sys.exit(record())
