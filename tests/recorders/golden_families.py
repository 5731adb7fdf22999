"""Every architecture through llama.cpp: the oracle's models with a vocabulary, compared whole.

Run from the project's folder (`PYTHONPATH=. python tests/recorders/golden_families.py PERPLEXITY WINDOW`, the
paths of llama-perplexity and of `golden_window.cpp` when it is built) it prints how far our logits
are from llama.cpp's on the same file, with --record it also writes `golden/families.npz`. The models
are those of `oracle.py`, with random embeddings for the tokens of a small vocabulary, so nothing
else has to be kept.
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
from torch import Tensor

import oracle
import tiny
from golden_lora import read_logits
from sessions import open_session

RECORDED = Path(__file__).parents[1] / "golden" / "families.npz"
TEXT = Path(__file__).parents[1] / "golden" / "ppl_text.txt"
CONTEXT = 128  # tokens; the second half is scored, as the tool does
BEST = 24  # tokens kept of each position
Rows = NDArray[np.float64]

# What llama.cpp computes as the makers do only where it is told how.
WINDOWED = ("mistral", "phi3", "starcoder2")  # it leaves their windows out: see golden_window.cpp
CONTEXTS = {"phi3-short": 64}  # of the model before it was stretched: beyond it the factors differ
_DYNAMIC = oracle.CASES["llama-dynamic"]
# It knows no dynamic scaling, which is another base at each length: this is the one at CONTEXT.
# Source: https://arxiv.org/abs/2306.15595
_STRETCH = _DYNAMIC.scaling["factor"] * (CONTEXT / _DYNAMIC.context - 1) + 1
_BASE = _DYNAMIC.rope_base * _STRETCH ** (_DYNAMIC.head_width / (_DYNAMIC.head_width - 2))
TOLD = {
    "llama-dynamic": [
        *("--override-kv", "llama.rope.scaling.type=str:none"),
        *("--rope-scaling", "none", "--rope-freq-base", f"{_BASE:.9g}"),
    ],
    # It makes 256 of any smaller context, and takes that for one that was stretched.
    "phi3-short": ["--override-kv", "phi3.rope.scaling.original_context_length=int:256"],
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


def ours(path: Path, tokens: list[int]) -> Rows:
    """Our log-probabilities [N, V] at the scored positions of a context these tokens fill."""
    session = open_session(path, len(tokens))
    rows = torch.cat([session.logits(hidden) for hidden in session.prefill(tokens)])
    return _scored(rows)


def theirs(name: str, programs: tuple[Path, Path], folder: Path) -> tuple[list[int], Rows]:
    """llama.cpp's tokens of the first chunk and its log-probabilities [N, V] there."""
    model, out = folder / f"{name}.gguf", folder / "logits.bin"
    context = str(CONTEXTS.get(name, CONTEXT))
    line = ["-m", str(model), "-f", str(TEXT), "-c", context, "-b", context]
    line += ["--chunks", "1", "-t", "1", "--save-all-logits", str(out)]
    line += ["-fa", "off", "-ctk", "f32", "-ctv", "f32", *TOLD.get(name, ())]
    _run(programs[0], line, folder)
    tokens, rows = read_logits(out)
    if name in WINDOWED:
        line = [str(model), str(oracle.CASES[name].window), str(out), *map(str, tokens)]
        _run(programs[1], line, folder)
        logits = torch.from_numpy(np.fromfile(out, np.float32)).view(len(tokens), -1)
        rows = _scored(logits)
    return tokens, rows


def _run(program: Path, line: list[str], folder: Path) -> None:
    done = subprocess.run(
        [str(program), *line], check=False, capture_output=True, text=True, cwd=folder
    )
    if done.returncode:
        raise SystemExit(f"{line}: {done.stderr[-2000:]}")


def _scored(logits: Tensor) -> Rows:
    """Log-probabilities of the second half, as the tool has them, from logits [T, V] of all."""
    return logits[len(logits) // 2 : -1].double().log_softmax(1).numpy()


def compare(
    name: str, programs: tuple[Path, Path], folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """How far ours are from llama.cpp's, and what of llama.cpp's is kept."""
    path = write(name, folder / f"{name}.gguf")
    tokens, wanted = theirs(name, programs, folder)
    figures = distance(ours(path, tokens), wanted)
    best = np.argsort(-wanted, axis=1, kind="stable")[:, :BEST]
    kept = {
        "tokens": np.array(tokens, np.uint16),
        "best": best.astype(np.uint16),
        "logprobs": np.take_along_axis(wanted, best, 1).astype(np.float32),
    }
    return figures, kept


def distance(found: Rows, wanted: Rows) -> dict[str, Any]:
    """How far log-probabilities `found` [N, V] are from `wanted`: mean KL, largest difference, tops."""
    wanted = wanted - np.log(np.exp(wanted).sum(1, keepdims=True))  # 16 bits lose a little
    apart = (np.exp(wanted) * (wanted - found)).sum(1)
    same = (wanted.argmax(1) == found.argmax(1)).mean()
    return {
        "kl": float(apart.mean()),
        "largest": float(np.abs(wanted - found).max()),
        "same_top": float(same),
        "positions": len(found),
    }


def recorded() -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The origin with the figures of each case, and the recorded arrays."""
    with np.load(RECORDED) as rows:
        return json.loads(str(rows["origin"])), {key: rows[key] for key in rows.files}


def main() -> int:
    """Compare the cases that are asked for, and keep the figures where that is asked too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="llama-perplexity")
    parser.add_argument("window", type=Path, help="golden_window.cpp, built")
    parser.add_argument("--case", action="append", help="only these")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    line = [str(options.program), "--version"]
    version = subprocess.run(line, capture_output=True, text=True, check=False)
    figures: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name in options.case or oracle.CASES:
        with tempfile.TemporaryDirectory() as folder:
            programs = options.program.resolve(), options.window.resolve()
            figures[name], kept = compare(name, programs, Path(folder))
        rows |= {f"{name}/{key}": value for key, value in kept.items()}
        said = figures[name]
        print(
            f"{name}: KL {said['kl']:.2e}, largest {said['largest']:.2e}, same top {said['same_top']:.1%}",
            flush=True,
        )
    if options.record:
        origin = {
            "version": (version.stderr or version.stdout).strip().splitlines()[:1],
            "recipe": "llama-perplexity -c 128 -b 128 --chunks 1 -t 1 --save-all-logits -fa off "
            "-ctk f32 -ctv f32, F32 files",
            "windowed": f"{', '.join(WINDOWED)}: golden_window",
            "contexts": CONTEXTS,
            "told": {name: " ".join(options) for name, options in TOLD.items()},
            "figures": figures,
        }
        np.savez_compressed(RECORDED, origin=np.array(json.dumps(origin)), **rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
