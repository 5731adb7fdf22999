"""LoRA oracle: random PEFT adapters on the oracle's tiny models, run through peft in float32.

Run as a script (in an environment with transformers and peft) it records `golden/peft.npz`: the
two files of each folder as peft saves them, tokens and logits. The base weights are those of
`golden/oracle.npz`. All values are rounded to float16 first.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import oracle
from oracle import Array

RECORDED = Path(__file__).parents[1] / "golden" / "peft.npz"
TOKENS = 24
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class PeftCase:
    """A LoRA configuration of peft, on one of the oracle's models."""

    name: str
    base: str
    targets: list[str]
    rank: int = 4
    alpha: int = 16
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    case.name: case
    for case in (
        PeftCase("llama", "llama", EVERY),
        PeftCase(
            "llama-patterns",
            "llama",
            EVERY,
            rank=2,
            alpha=3,
            options={
                "use_rslora": True,
                "rank_pattern": {"q_proj": 8, "layers.1.mlp.up_proj": 1},
                "alpha_pattern": {r"layers\.1\.self_attn\.(v|q)_proj": 5, "self_attn.q_proj": 20},
            },
        ),
        PeftCase("llama-ends", "llama", ["embed_tokens", "lm_head", "k_proj"], rank=5, alpha=7),
        PeftCase("qwen3", "qwen3", [*EVERY, "embed_tokens"], rank=3, alpha=5),
        PeftCase("gemma3", "gemma3", [*EVERY, "embed_tokens"], rank=6, alpha=12),
        *(PeftCase(name, name, EVERY) for name in ("qwen2", "gemma2", "granite", "olmo2")),
        *(PeftCase(name, name, EVERY) for name in ("command-r", "cohere2")),
        PeftCase("phi2", "phi2", ["q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"]),
        PeftCase("phi3", "phi3", ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
        PeftCase("starcoder2", "starcoder2", [*EVERY[:4], "c_fc", "c_proj"]),
        PeftCase("qwen3moe", "qwen3moe", EVERY[:4]),
    )
}


def run_peft(case: PeftCase) -> dict[str, Array]:
    """Tokens, float32 logits, and the content of peft's folder: `config` and `tensor/NAME`."""
    import peft
    import torch

    torch.manual_seed(sum(map(ord, case.name)))
    base = oracle.CASES[case.base]
    model = oracle.build_transformers(base, oracle.recorded(case.base))
    config = peft.LoraConfig(
        r=case.rank,
        lora_alpha=case.alpha,
        target_modules=case.targets,
        task_type="CAUSAL_LM",
        **case.options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns of tied embeddings, which these cases test
        adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_((torch.randn_like(parameter) * 0.15).half().float())
        tokens = torch.randint(base.vocabulary, (TOKENS,))
        logits = adapted(tokens[None]).logits[0]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted.save_pretrained(folder)
        stored = load_file(Path(folder, "adapter_model.safetensors"))
        text = Path(folder, "adapter_config.json").read_text(encoding="utf-8")
    tensors = {f"tensor/{name}": value.astype(np.float16) for name, value in stored.items()}
    return {
        "tokens": tokens.numpy(),
        "logits": logits.numpy(),
        "config": np.array(text),
        **tensors,
    }


def write_folder(folder: Path, state: dict[str, Array]) -> Path:
    """Write the PEFT folder of a recorded case, its tensors in float32."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(str(state["config"]), encoding="utf-8")
    tensors = {
        key.removeprefix("tensor/"): value.astype(np.float32)
        for key, value in state.items()
        if key.startswith("tensor/")
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def record(names: Sequence[str] = ()) -> None:
    """Write these cases, or all, to `golden/peft.npz`."""
    import peft
    import torch
    import transformers

    rows = oracle.kept(RECORDED, names)
    for name in names or CASES:
        rows |= {f"{name}/{key}": value for key, value in run_peft(CASES[name]).items()}
    origin = (
        f"peft {peft.__version__}, transformers {transformers.__version__}, "
        f"torch {torch.__version__}, float32, eager"
    )
    oracle.save(RECORDED, rows, origin)


def recorded(name: str) -> dict[str, Array]:
    """One recorded case."""
    with np.load(RECORDED) as rows:
        return {
            key.removeprefix(f"{name}/"): rows[key]
            for key in rows.files
            if key.startswith(f"{name}/")
        }


if __name__ == "__main__":
    sys.exit(record(sys.argv[1:]))
