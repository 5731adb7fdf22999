"""Every architecture through llama.cpp: the oracle's models with a vocabulary, compared whole.

Run from the project's folder (`PYTHONPATH=. python tests/golden_families.py PERPLEXITY`, the path
of llama-perplexity) it prints how far our logits are from llama.cpp's on the same file, with
--record it also writes `golden/families.npz`. The models are those of `oracle.py`, with random
embeddings for the tokens of a small vocabulary, so nothing else has to be kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import oracle
import tiny
from golden_lora import read_logits
from sessions import open_session

RECORDED = Path(__file__).parent / "golden" / "families.npz"
TEXT = Path(__file__).parent / "golden" / "ppl_text.txt"
CONTEXT = 128  # tokens; the second half is scored, as the tool does
BEST = 24  # tokens kept of each position
Rows = NDArray[np.float64]

# What llama.cpp does not compute as the makers do: windows of these it leaves out.
LEFT_OUT = {
    "mistral": "llama.cpp has no window for llama files",
    "phi3": "llama.cpp leaves phi3's window out",
    "starcoder2": "llama.cpp leaves starcoder2's window out",
    "llama-dynamic": "llama.cpp knows no dynamic scaling",
    "phi3-short": "llama.cpp chooses by the context, which the tool sets to all of it",
}


def write(name: str, path: Path) -> Path:
    """The oracle's case with a vocabulary that llama.cpp can cut text with."""
    case, state = oracle.CASES[name], oracle.recorded(name)
    state.pop("tokens")
    state.pop("logits")
    words = tiny.bpe("qwen3")
    vocabulary = len(words["tokenizer.ggml.tokens"])
    random = np.random.default_rng(sum(map(ord, name)))
    for key, value in state.items():
        if value.shape[:1] == (case.vocabulary,) and (
            "embed" in key or "wte" in key or "lm_head" in key
        ):
            shape = (vocabulary, *value.shape[1:])
            state[key] = (random.standard_normal(shape) * 0.15).astype(np.float16)
    return oracle.write_gguf(case, state, path, words)


def ours(path: Path, tokens: list[int], context: int) -> Rows:
    """Our log-probabilities [N, V] at the scored positions."""
    session = open_session(path, context)
    rows = torch.cat([session.logits(hidden) for hidden in session.read(tokens)])
    return rows[CONTEXT // 2 : -1].double().log_softmax(1).numpy()


def theirs(program: Path, model: Path, folder: Path) -> tuple[list[int], Rows]:
    """llama.cpp's tokens of the first chunk and its log-probabilities [N, V] there."""
    out = folder / "logits.bin"
    line = [str(program), "-m", str(model), "-f", str(TEXT), "-c", str(CONTEXT), "-b", str(CONTEXT)]
    line += ["--chunks", "1", "-t", "1", "--save-all-logits", str(out)]
    line += ["-fa", "off", "-ctk", "f32", "-ctv", "f32"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{model.name}: {done.stderr[-2000:]}")
    return read_logits(out)


def compare(name: str, program: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """How far ours are from llama.cpp's, and what of llama.cpp's is kept."""
    path = write(name, folder / f"{name}.gguf")
    tokens, wanted = theirs(program, path, folder)
    figures = distance(ours(path, tokens, CONTEXT), wanted)
    best = np.argsort(-wanted, axis=1, kind="stable")[:, :BEST]
    kept = {
        "tokens": np.array(tokens, np.uint16),
        "best": best.astype(np.uint16),
        "logprobs": np.take_along_axis(wanted, best, 1).astype(np.float32),
    }
    return figures, kept


def distance(found: Rows, wanted: Rows) -> dict[str, Any]:
    """Mean KL from `wanted` to `found`, log-probabilities [N, V], and the share of equal tops."""
    wanted = wanted - np.log(np.exp(wanted).sum(1, keepdims=True))  # 16 bits lose a little
    apart = (np.exp(wanted) * (wanted - found)).sum(1)
    same = (wanted.argmax(1) == found.argmax(1)).mean()
    return {"kl": float(apart.mean()), "same_top": float(same), "positions": len(found)}


def recorded() -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The origin with the figures of each case, and the recorded arrays."""
    with np.load(RECORDED) as rows:
        return json.loads(str(rows["origin"])), {key: rows[key] for key in rows.files}


def main() -> int:
    """Compare the cases that are asked for, and keep the figures where that is asked too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="llama-perplexity")
    parser.add_argument("--case", action="append", help="only these")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    line = [str(options.program), "--version"]
    version = subprocess.run(line, capture_output=True, text=True, check=False)
    figures: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name in options.case or oracle.CASES:
        if name in LEFT_OUT:
            print(f"{name}: left out, {LEFT_OUT[name]}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            figures[name], kept = compare(name, options.program, Path(folder))
        rows |= {f"{name}/{key}": value for key, value in kept.items()}
        said = figures[name]
        print(f"{name}: KL {said['kl']:.2e}, same top {said['same_top']:.1%}", flush=True)
    if options.record:
        origin = {
            "version": (version.stderr or version.stdout).strip().splitlines()[:1],
            "recipe": "llama-perplexity -c 128 -b 128 --chunks 1 -t 1 --save-all-logits -fa off "
            "-ctk f32 -ctv f32, F32 files",
            "left_out": LEFT_OUT,
            "figures": figures,
        }
        np.savez_compressed(RECORDED, origin=np.array(json.dumps(origin)), **rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
