"""Oracle: tiny random models run through Hugging Face transformers in float32, and as GGUF files.

Run as a script (in an environment with transformers) it records `golden/oracle.npz`: weights,
tokens and logits; `python tests/support/oracle.py llama phi2` records these cases alone and keeps
the others. The tests rebuild a GGUF file from the recorded weights and compare the engine's logits.
All weights are rounded to float16 first, so that float16 stores them exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from oracle_families import FAMILIES, tensors

RECORDED = Path(__file__).parents[1] / "golden" / "oracle.npz"
TOKENS = 40
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One architecture with its hyperparameters, small but with grouped heads and odd widths."""

    name: str
    family: str
    vocabulary: int = 96
    width: int = 48
    layers: int = 2
    heads: int = 6
    kv_heads: int = 2
    head_width: int = 8
    feed_forward: int = 80
    tied: bool = False
    rope_base: float = 10_000.0
    rotated: int = 0  # rotary channels of a head; 0: all
    window: int = 0  # sliding window of attention; 0: none
    context: int = 256  # maximum positions
    scaling: dict[str, Any] = field(default_factory=dict)  # RoPE scaling
    more: dict[str, Any] = field(default_factory=dict)  # hyperparameters of this family alone

    @property
    def shared(self) -> dict[str, Any]:
        """Keyword arguments common to all transformers configurations."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_width,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": self.tied,
            "attn_implementation": "eager",
            "rope_parameters": {
                "rope_type": "default",
                **self.scaling,
                "rope_theta": self.rope_base,
                **(
                    {"partial_rotary_factor": self.rotated / self.head_width}
                    if self.rotated
                    else {}
                ),
            },
        }


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.05, 1.1, 1.2],
    "long_factor": [1.0, 1.5, 3.0, 6.0],
    "factor": 8.0,
}
CASES = {
    case.name: case
    for case in (
        Case("llama", "llama"),
        Case("llama3", "llama", rope_base=500_000.0, scaling=LLAMA3_SCALING),
        Case("llama-linear", "llama", scaling={"rope_type": "linear", "factor": 4.0}),
        Case(
            "llama-dynamic",
            "llama",
            context=16,
            scaling={"rope_type": "dynamic", "factor": 2.0},
        ),
        Case("mistral", "mistral", window=8),
        Case("mixtral", "mixtral", more={"experts": 5, "chosen": 2}),
        Case("qwen2", "qwen2", tied=True),
        Case("qwen3", "qwen3", head_width=16, tied=True, rope_base=1_000_000.0),
        Case("qwen3-yarn", "qwen3", head_width=16, rope_base=1_000_000.0, scaling=YARN),
        Case("qwen3moe", "qwen3moe", head_width=16, more={"experts": 6, "chosen": 3}),
        Case("gemma", "gemma", head_width=16, kv_heads=1, tied=True),
        Case(
            "gemma2",
            "gemma2",
            layers=4,
            head_width=16,
            tied=True,
            window=8,
            more={"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        ),
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
        Case("phi2", "phi2", kv_heads=6, rotated=4),
        Case("phi3", "phi3", window=8),
        Case("phi3-wide", "phi3"),
        Case(
            "phi3-long",
            "phi3",
            context=256,
            scaling=LONGROPE | {"original_max_position_embeddings": 32},
        ),
        Case(
            "phi3-short",
            "phi3",
            context=512,
            scaling=LONGROPE | {"original_max_position_embeddings": 64},
        ),
        Case("command-r", "command-r", tied=True, more={"logit_scale": 0.25}),
        Case(
            "command-r-plus",
            "command-r",
            width=16,
            layers=64,  # llama.cpp recognizes the model by this number
            heads=4,
            head_width=4,
            feed_forward=24,
            tied=True,
            more={"logit_scale": 0.25, "use_qk_norm": True},
        ),
        Case("cohere2", "cohere2", layers=5, tied=True, window=8, more={"logit_scale": 0.25}),
        Case("starcoder", "starcoder", kv_heads=1, tied=True),
        Case("starcoder2", "starcoder2", window=8, tied=True),
        Case("starcoder2-wide", "starcoder2", tied=True),
        Case(
            "granite",
            "granite",
            tied=True,
            more={
                "embedding_multiplier": 6.0,
                "attention_multiplier": 0.2,
                "residual_multiplier": 0.4,
                "logits_scaling": 3.0,
            },
        ),
        Case("olmo2", "olmo2"),
    )
}


def run_transformers(case: Case) -> dict[str, Array]:
    """Random weights, tokens and float32 logits of one case; needs transformers."""
    import torch

    torch.manual_seed(sum(map(ord, case.name)))
    model = _model(case).eval()
    norms_near_one = not FAMILIES[case.family].plus_one
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = _is_norm(name)
            spread = 0.3 if norm else 0.15
            parameter.copy_((torch.randn_like(parameter) * spread).half().float())
            if norm and norms_near_one and name.endswith("weight"):
                parameter.copy_((parameter + 1).half().float())
        tokens = torch.randint(case.vocabulary, (TOKENS,))
        logits = model(tokens[None]).logits[0]
    state = {
        name: value.half().numpy()
        for name, value in model.state_dict().items()
        if not (case.tied and name == "lm_head.weight")
    }
    return {"tokens": tokens.numpy(), "logits": logits.numpy(), **state}


def _is_norm(name: str) -> bool:
    return "norm" in name or ".ln_" in name


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

    family = FAMILIES[case.family]
    config = getattr(hf, f"{family.hf}Config")(**case.shared | family.config(case))
    return getattr(hf, f"{family.hf.removesuffix('Text')}ForCausalLM")(config)


def write_gguf(
    case: Case, state: dict[str, Array], path: Path, words: Mapping[str, Any] | None = None
) -> Path:
    """Write the model as a GGUF file, every matrix in F32; `words` are the tokenizer's metadata."""
    family = FAMILIES[case.family]
    writer = GGUFWriter(path, family.gguf)
    for key, value in (_keys(case) | family.keys(case)).items():
        _add(writer, f"{family.gguf}.{key}", value)
    for key, value in (words or {}).items():
        _add(writer, key, value)
    for name, value in (_divisors(case) | _tensors(case, state)).items():
        writer.add_tensor(name, np.ascontiguousarray(value.astype(np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(case: Case, state: dict[str, Array]) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for name, value in state.items():
        made |= tensors(case, name, value.astype(np.float32))
    return made


def _keys(case: Case) -> dict[str, Any]:
    norm = "layer_norm" if FAMILIES[case.family].centred else "layer_norm_rms"
    finer = norm.endswith("rms") and case.family not in ("mixtral", "phi3", "olmo2")
    keys: dict[str, Any] = {
        "block_count": case.layers,
        "context_length": case.context,
        "embedding_length": case.width,
        "feed_forward_length": case.feed_forward,
        "attention.head_count": case.heads,
        "attention.head_count_kv": case.kv_heads,
        "attention.key_length": case.head_width,
        "attention.value_length": case.head_width,
        f"attention.{norm}_epsilon": 1e-6 if finer else 1e-5,
        "rope.freq_base": case.rope_base,
    }
    kind = case.scaling.get("rope_type")
    if kind in ("linear", "yarn", "dynamic"):
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": case.scaling["factor"]}
    if kind in ("yarn", "longrope"):
        original = case.scaling["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = original
    if kind == "longrope":
        stretch = np.log(case.scaling["factor"]) / np.log(original)
        keys["rope.scaling.attn_factor"] = float(np.sqrt(1 + stretch))
    return keys


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _divisors(case: Case) -> dict[str, Array]:
    """GGUF tensors of RoPE frequency divisors: Llama 3's, or LongRoPE's short and long factors."""
    if case.scaling.get("rope_type") == "llama3":
        return {"rope_freqs.weight": _llama3_divisors(case)}
    if case.scaling.get("rope_type") == "longrope":
        return {
            f"rope_factors_{which}.weight": np.array(case.scaling[f"{which}_factor"])
            for which in ("short", "long")
        }
    return {}


def _llama3_divisors(case: Case) -> Array:
    """Llama 3's divisor of each RoPE frequency.

    Source: https://github.com/ggml-org/llama.cpp/blob/b6000/convert_hf_to_gguf.py (rope_freqs)
    """
    scaling, half = case.scaling, case.head_width // 2
    frequencies = case.rope_base ** -(np.arange(half) / half)
    wavelength = 2 * np.pi / frequencies
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32)


def record(names: Sequence[str] = ()) -> None:
    """Write these cases, or all, to `golden/oracle.npz`."""
    import torch
    import transformers

    rows = kept(RECORDED, names)
    for name in names or CASES:
        rows |= {f"{name}/{key}": value for key, value in run_transformers(CASES[name]).items()}
    origin = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager"
    save(RECORDED, rows, origin)


def kept(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Recorded arrays of all cases except `names`; none without names, when all are re-recorded."""
    if not names:
        return {}
    with np.load(path) as before:
        return {key: before[key] for key in before.files if key.partition("/")[0] not in names}


def save(path: Path, rows: dict[str, Array], origin: str) -> None:
    """Write recorded arrays to a compressed file and print its size."""
    np.savez_compressed(path, **rows | {"origin": np.array(origin)})
    print(f"{path.name}: {path.stat().st_size:,} bytes, {origin}")


def recorded(name: str) -> dict[str, Array]:
    """One recorded case: weights by their transformers names, `tokens` and `logits`."""
    with np.load(RECORDED) as rows:
        return {
            key.removeprefix(f"{name}/"): rows[key]
            for key in rows.files
            if key.startswith(f"{name}/")
        }


if __name__ == "__main__":
    sys.exit(record(sys.argv[1:]))
