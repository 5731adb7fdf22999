"""Records what llama.cpp answers with files that `engine.cli.quantize` wrote.

    PYTHONPATH=. python tests/recorders/golden_quantize.py SERVER [SMOLLM2]

SERVER is llama.cpp's `llama-server`, SMOLLM2 the real model, which takes some minutes. Writes
golden/quantized.json: prompts and greedy ids by weight format.

llama.cpp rounds activations to 8 bits, and so do our kernels, each in its own way: where two tokens
are nearly as likely, either may win. So of many prompts those are asked whose every answer the float
reference decides most clearly; llama.cpp has no part in that choice. A few others are asked blindly.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import sessions
import tiny
from chosen_backend import ops
from engine.cli.quantize import quantize
from engine.loading.loader import load
from kernels.weights.formats import FORMATS
from llama_server import Refusal, ask, serving, version
from sessions import open_session

GOLDEN = Path(__file__).parents[1] / "golden" / "quantized.json"
REAL_FORMATS = ("F16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")
CONTEXT = 256
BLIND_TOKENS = 16  # after a prompt that was not chosen; fewer where llama.cpp ends its answer
TEXTS = (  # each is said twice and begun once more: a model that can read goes on with it
    "The quick brown fox jumps over the lazy dog while seven wizards watch from a hill. ",
    "January, February, March, April, May, June, July, August, September, October, ",
    "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n\n\n",
    "Twinkle, twinkle, little star, how I wonder what you are, up above the world so high. ",
    "SELECT name, price, weight FROM fruits WHERE price < 10 ORDER BY name, weight;\n",
    "To be, or not to be, that is the question: whether it is nobler in the mind to suffer. ",
    "Rome is in Italy, Paris is in France, Madrid is in Spain, Cairo is in Egypt. ",
    "apples 4, pears 9, plums 12, cherries 30, lemons 7, figs 15, dates 22. ",
)


@dataclass(frozen=True)
class Model:
    """A model that is written in several formats, and what it is asked."""

    path: Path
    formats: Sequence[str]
    prompts: Sequence[list[int]]
    asked: int  # of the prompts: the clearest
    tokens: int  # after each
    ends: Set[int]  # what no answer has: llama.cpp says nothing after it
    blind: Sequence[list[int]]  # prompts that are asked as they are


def tiny_model(folder: Path) -> Model:
    """A random model, for every format: each of its widths is a whole number of blocks."""
    path = tiny.write(folder / "source.gguf", format="F32", hidden=256, head_dim=64, ffn=512)
    rng = random.Random(20_261_122)
    prompts = [[rng.randrange(1, 290) for _ in range(rng.randint(2, 40))] for _ in range(1500)]
    ends = load(path).tokenizer.end_tokens
    blind = [[5, 6, 7, 8], [100, 3, 250, 41, 77, 19], list(range(10, 60))]
    formats = tuple(row.name for row in FORMATS.values() if row.quantize)
    return Model(path, formats, prompts, asked=6, tokens=8, ends=ends, blind=blind)


def real_model(path: Path) -> Model:
    """SmolLM2, in what its rows of 576 can be stored as."""
    words = load(path).tokenizer
    prompts = [words.encode(text * 2 + text[: text.index(" ", 9)]) for text in TEXTS]
    blind = [[504, 3575, 282, 4649, 314], [1, 9690, 198, 2683, 359]]
    ends = words.end_tokens
    return Model(path, REAL_FORMATS, prompts, asked=4, tokens=16, ends=ends, blind=blind)


def clearest(path: Path, model: Model) -> list[list[int]]:
    """The prompts whose greedy answers the float reference decides by the widest margins."""
    best = [(0.0, 0)] * model.asked  # margin, prompt
    with ops.only("reference"):
        session = open_session(path, CONTEXT)
        for at, prompt in enumerate(model.prompts):
            session.rewind(0)
            logits, said, margin = session.read(prompt), set[int](), float("inf")
            for _ in range(model.tokens):
                (first, second), (token, _) = (each.tolist() for each in logits.topk(2))
                margin = min(margin, first - second)
                if margin <= best[-1][0] or token in model.ends:
                    break
                said.add(token)
                logits = session.step(token)
            else:
                if len(said) > model.tokens // 2:  # not one word again and again
                    best = sorted([*best[:-1], (margin, at)], reverse=True)
    print(f"margins {', '.join(f'{margin:.2f}' for margin, _ in best)}", end=" ")
    return [model.prompts[at] for _, at in best]


def greedy(program: str, path: Path, prompts: Sequence[list[int]], tokens: int) -> list[list[int]]:
    """What llama.cpp says after each prompt: the ids of the most likely tokens."""
    options = {"n_predict": tokens, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    with serving(program, path, "-c", str(CONTEXT), "--no-warmup") as address:
        return [
            ask(address, "completion", options | {"prompt": prompt})["tokens"] for prompt in prompts
        ]


def ours(path: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """What the kernels in use say after each prompt."""
    session = open_session(path, CONTEXT)
    return [sessions.greedy(session, prompt, tokens) for prompt in prompts]


def asked(program: str, path: Path, model: Model) -> list[dict[str, list[int]]]:
    """The clearest prompts and llama.cpp's answers; says which of them are ours too."""
    prompts = clearest(path, model)
    answers = greedy(program, path, prompts, model.tokens)
    same = [a == b for a, b in zip(ours(path, prompts, model.tokens), answers, strict=True)]
    print(f"{same.count(True)} of {len(same)} the same", flush=True)
    return _paired(prompts, answers)


def _paired(
    prompts: Sequence[list[int]], answers: Sequence[list[int]]
) -> list[dict[str, list[int]]]:
    return [{"prompt": p, "answer": a} for p, a in zip(prompts, answers, strict=True)]


def main(program: str, real: Path | None) -> None:
    """Write, load and ask, format by format; names those llama.cpp does not load."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {"tiny": tiny_model(folder)}
        if real is not None:
            models["smollm2"] = real_model(real)
        for of, model in models.items():
            blindly = f"{of}, blindly"
            found[of] = {}
            found[blindly] = {}
            for kind in model.formats:
                target = folder / "target.gguf"
                quantize(model.path, target, kind)
                try:
                    print(of, kind, end=" ")
                    found[of][kind] = asked(program, target, model)
                    said = greedy(program, target, model.blind, BLIND_TOKENS)
                    found[blindly][kind] = _paired(model.blind, said)
                except Refusal as refusal:
                    print("REFUSED", refusal)
                target.unlink()
    lines = [
        f' "origin": "llama.cpp, {version(program)}; written by tests/recorders/golden_quantize.py"'
    ]
    for of, formats in found.items():
        rows = ",\n".join(
            f"  {json.dumps(kind)}: {json.dumps(all)}" for kind, all in formats.items()
        )
        lines.append(f' "{of}": {{\n{rows}\n }}')
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
