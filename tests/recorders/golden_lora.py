"""Adapters through llama.cpp: random ones in its own format, applied by it to the same models.

Run from the project's folder (`PYTHONPATH=. python tests/recorders/golden_lora.py PROGRAM STARTER`) it compares
whole rows of logits and prints the figures; with --record it also writes `golden/lora_llamacpp.npz`: for each case the
tokens, and at each scored position the best tokens and their log-probabilities. Adapters and tiny
models are made again from their seeds, and their hashes are in the record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forward_pass
import tiny
import tiny_lora
from engine.adapters.stack import Stack, load_adapter
from engine.models.layers import Decoder
from sessions import open_decoder

RECORDED = Path(__file__).parents[1] / "golden" / "lora_llamacpp.npz"
TEXT = Path(__file__).parents[1] / "golden" / "ppl_text.txt"
CONTEXT = 256  # tokens read; the second half but the last is scored, as the tool does
BEST = 24

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """An adapter, or none, on a model: the starter, or a tiny one of an architecture."""

    name: str
    model: str
    rank: int = 0  # 0: no adapter
    alpha: float = 0.0
    strength: float = 1.0
    size: float = 0.3
    seed: int = 0
    targets: tuple[str, ...] = tiny_lora.EVERY
    format: str = "F32"


_EVERY = tiny_lora.EVERY
CASES = {
    case.name: case
    for case in (
        Case("starter", "starter"),
        Case("starter-4", "starter", 4, 8.0, seed=4),
        Case("starter-16", "starter", 16, 16.0, seed=16),
        Case("starter-64", "starter", 64, 32.0, seed=64),
        Case("llama", "llama"),
        Case("llama-4", "llama", 4, 8.0, targets=(*_EVERY, "token_embd", "output")),
        Case("llama-q8", "llama", 32, 8.0, format="Q8_0"),
        Case("qwen3", "qwen3"),
        Case("qwen3-16", "qwen3", 16, 24.0, strength=-0.6),
        Case("qwen3-no-alpha", "qwen3", 8),
        Case("gemma3", "gemma3"),
        Case("gemma3-64", "gemma3", 64, 64.0),
    )
}


def model_of(case: Case, starter: Path, folder: Path) -> Path:
    """The case's model file, written into `folder` where it is a tiny one."""
    if case.model == "starter":
        return starter
    return tiny.write(folder / f"{case.model}.gguf", architecture=case.model, seed=5)


def adapter_of(case: Case, model: Path, folder: Path) -> Path | None:
    """The case's adapter, written into `folder`; None where it has none."""
    if not case.rank:
        return None
    return tiny_lora.write(
        folder / f"{case.name}.gguf",
        model,
        rank=case.rank,
        alpha=case.alpha,
        seed=case.seed,
        size=case.size,
        targets=case.targets,
        format=case.format,
    )


def digest(path: Path | None) -> str:
    """SHA-256 of a file; empty for none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else ""


def run(decoder: Decoder, case: Case, adapter: Path | None, tokens: Sequence[int]) -> Rows:
    """Our log-probabilities [N, V] at the N scored positions."""
    stack = Stack([(load_adapter(adapter, decoder.base), case.strength)] if adapter else [])
    logits = forward_pass.logits(decoder, tokens, stack)[CONTEXT // 2 : -1]
    return logits.double().log_softmax(1).numpy()


def run_llamacpp(
    program: Path, case: Case, model: Path, adapter: Path | None, folder: Path
) -> tuple[list[int], Rows, str]:
    """llama.cpp's tokens, its log-probabilities [N, V], and the command."""
    out = folder / "logits.bin"
    command = [program.name, "-m", model.name, "-f", TEXT.name, "-c", str(CONTEXT), "-b"]
    command += [str(CONTEXT), "--chunks", "1", "-t", "2", "--save-all-logits", out.name]
    if adapter:
        command += ["--lora-scaled", f"{adapter.name}:{case.strength}"]
    if case.model != "starter":  # nothing but the arithmetic of the adapter is to differ
        command += ["-fa", "off", "-ctk", "f32", "-ctv", "f32"]
    places = {program.name: program, model.name: model, TEXT.name: TEXT, out.name: out}
    if adapter:
        places[f"{adapter.name}:{case.strength}"] = Path(f"{adapter}:{case.strength}")
    subprocess.run(
        [str(places.get(word, word)) for word in command], check=True, capture_output=True
    )
    tokens, rows = read_logits(out)
    out.unlink()
    return tokens, rows, " ".join(command)


def read_logits(path: Path) -> tuple[list[int], Rows]:
    """The tokens and rows of a file of --save-all-logits; values are in steps of about 0.0003."""
    stored = path.read_bytes()
    assert stored[:8] == b"_logits_"
    context, vocabulary, chunks = (int(n) for n in np.frombuffer(stored, "<i4", 3, 8))
    tokens = np.frombuffer(stored, "<i4", context * chunks, 20)
    width = 2 * ((vocabulary + 1) // 2) + 4
    packed = np.frombuffer(stored, "<u2", offset=20 + 4 * len(tokens)).reshape(-1, width)
    heads = np.ascontiguousarray(packed[:, :4]).view("<f4").astype(np.float64)
    rows = packed[:, 4 : 4 + vocabulary] * heads[:, :1] + heads[:, 1:]
    return tokens.tolist(), rows


def recorded() -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The origin, with facts and figures of each case, and the recorded arrays."""
    with np.load(RECORDED) as rows:
        return json.loads(str(rows["origin"])), {key: rows[key] for key in rows.files}


def compared(theirs: Rows, ours: Rows) -> dict[str, float]:
    """Agreement of the best token, and divergence of ours from theirs, over all positions."""
    kl = (np.exp(theirs) * (theirs - ours)).sum(1)
    same = theirs.argmax(1) == ours.argmax(1)
    return {
        "same_top": float(same.mean()),
        "mean_kl": float(kl.mean()),
        "max_kl": float(kl.max()),
    }


def main() -> int:
    """Compare, and record where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="llama-perplexity of llama.cpp")
    parser.add_argument("starter", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    plain: dict[str, Rows] = {}
    for case in CASES.values():
        with tempfile.TemporaryDirectory() as folder:
            facts[case.name] = _measure(case, options, Path(folder), plain, rows)
        print(case.name, facts[case.name]["figures"], "effect", facts[case.name]["effect"])
    if options.record:
        version = subprocess.run(
            [str(options.program), "--version"], capture_output=True, text=True, check=True
        )
        origin = {"llama.cpp": (version.stdout + version.stderr).strip(), "cases": facts}
        np.savez_compressed(RECORDED, origin=np.array(json.dumps(origin)), **rows)
        print(f"{RECORDED.name}: {RECORDED.stat().st_size:,} bytes")
    return 0


def _measure(
    case: Case, options: Any, folder: Path, plain: dict[str, Rows], rows: dict[str, Any]
) -> dict[str, Any]:
    """Run one case both ways; the rows to record are added to `rows`."""
    model = model_of(case, options.starter, folder)
    adapter = adapter_of(case, model, folder)
    tokens, theirs, command = run_llamacpp(options.program, case, model, adapter, folder)
    ours = run(open_decoder(model), case, adapter, tokens)
    plain.setdefault(case.model, theirs)
    best = np.argsort(-theirs, axis=1)[:, :BEST]
    rows[f"{case.name}/tokens"] = np.array(tokens, np.int32)
    rows[f"{case.name}/best"] = best.astype(np.int32)
    rows[f"{case.name}/logprobs"] = np.take_along_axis(theirs, best, 1).astype(np.float32)
    return {
        "case": asdict(case),
        "command": command,
        "model": digest(model),
        "adapter": digest(adapter),
        "figures": compared(theirs, ours),
        "effect": compared(plain[case.model], theirs),  # of the adapter, in llama.cpp itself
    }


if __name__ == "__main__":
    sys.exit(main())
