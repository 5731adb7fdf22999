"""Masks of constrained answers: their time against a decode step, and what a pass loses to them.

The models at hand with 152,000 logits have few tokens with text. So the masks are those of another
model's vocabulary (`--tokenizer`), or of made-up words up to the number of logits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch

from engine.core.request import AnswerRequest
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Constraint, ConstraintKind, Sampling

_STEPS = 24
_PROMPT = 64  # tokens
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 8},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"],
        },
    },
    "required": ["name", "age", "email", "tags", "address"],
    "additionalProperties": False,
}  # fmt: skip
DOCUMENT = (
    '{\n  "name": "Ada Lovelace",\n  "age": 36,\n  "email": "ada@example.org",\n'
    '  "tags": ["mathematics", "engines", "poetry"],\n'
    '  "address": {"street": "12 St James\'s Square, London", "zip": "12345"}\n}'
)
JSON_GRAMMAR = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
PROSE = "The engine weaves algebraic patterns, just as the loom weaves flowers and leaves. " * 2
CASES = {
    "JSON schema": (Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(PERSON)), DOCUMENT),
    "any JSON (GBNF)": (Constraint(ConstraintKind.GBNF, JSON_GRAMMAR), DOCUMENT),
    "regular expression": (Constraint(ConstraintKind.REGEX, r"([A-Za-z ,.]{1,100}[.] )+"), PROSE),
    "free text before a call": (
        Constraint(ConstraintKind.JSON_SCHEMA, "{}", trigger=("<tool_call>",)),
        PROSE,
    ),
}  # fmt: skip


def large_tokenizer(path: Path | None, size: int) -> Tokenizer:
    """That of a model file, or made-up words in a byte-level vocabulary of so many tokens."""
    if path is not None:
        with GGUFFile.open(path) as file:
            return vocabulary.find(file).tokenizer()
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    import tiny

    keys = tiny.bpe("qwen3")
    tokens, merges = list(keys["tokenizer.ggml.tokens"]), list(keys["tokenizer.ggml.merges"])
    known = set(tokens)
    random = np.random.default_rng(0)
    letters = list(tokens[3:259])
    common = [one for one in letters if one.isascii() and one.isalpha()] * 6 + letters + ["Ġ"] * 40
    words = [*letters, *(left.replace(" ", "") for left in merges)]
    while len(tokens) < size:
        left = words[int(random.integers(len(words)))]
        right = common[int(random.integers(len(common)))]
        if left + right not in known and len(left) < 12:
            known.add(left + right)
            tokens.append(left + right)
            merges.append(f"{left} {right}")
            words.append(left + right)
    keys |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
    }
    return Tokenizer.from_metadata(keys)


def mask_seconds(tokenizer: Tokenizer, logits: int) -> None:
    """Print the time of the mask at each token of the texts, of the first and of a later answer."""
    grammars = Grammars(tokenizer, logits)
    started = time.perf_counter()
    grammars.compile(Constraint(ConstraintKind.REGEX, "a"))
    print(f"  library's vocabulary: {time.perf_counter() - started:.2f} s")
    for name, (constraint, text) in CASES.items():
        started = time.perf_counter()
        grammar = grammars.compile(constraint)
        compiled = time.perf_counter() - started
        for what in ("first", "later"):
            matcher, found = Matcher(grammar), list[float]()
            for token in tokenizer.encode_within(text):
                started = time.perf_counter()
                matcher.mask()
                found.append(1e3 * (time.perf_counter() - started))
                matcher.accept(token)
            best = sorted(found)
            print(
                f"  {name}, {what} answer: {len(found)} masks, median {statistics.median(found):.3f} "
                f"ms, p95 {best[int(0.95 * len(best))]:.3f}, worst {best[-1]:.3f}; "
                f"compiled in {1e3 * compiled:.1f} ms"
            )


def step_seconds(model: LoadedModel) -> None:
    """Print the decode step without and with a constraint, of interleaved answers."""
    scheduler = model.new_scheduler()
    prompt = [int(one) for one in torch.randint(200, (_PROMPT,))]
    free = Constraint(ConstraintKind.REGEX, "(?s:.*)")
    steps: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(9):
        for constrained in (False, True) if turn % 2 else (True, False):
            request = AnswerRequest(
                prompt,
                Sampling(temperature=0),
                max_tokens=_STEPS,
                constraint=free if constrained else None,
            )
            ticket = scheduler.submit(request)
            while not ticket.done:
                started = time.perf_counter()
                scheduler.step()
                steps[constrained].append(1e3 * (time.perf_counter() - started))
    for what, of in (("quickest", min), ("median", statistics.median)):
        plain, masked = of(steps[False]), of(steps[True])
        ratio = masked / plain
        print(
            f"  {what} decode step: {plain:.2f} ms, with a constraint {masked:.2f}, x {ratio:.3f}"
        )


def main() -> None:
    """Print the figures of one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="a model file with a large vocabulary")
    options = parser.parse_args()
    model = load(options.model, context=1024, cache=CacheType.Q8_0)
    logits = model.decoder.head.weight.shape[0]
    print(f"{model.name}, {model.layout}, logits of {logits:,} tokens")
    step_seconds(model)
    tokenizer = large_tokenizer(options.tokenizer, logits)
    print(f"  masks over {tokenizer.size:,} tokens with text:")
    mask_seconds(tokenizer, max(logits, tokenizer.size))


if __name__ == "__main__":
    main()
