"""Tiny models that answer with a script: real files whose weights lead from a token to the next.

Template, tokens, thoughts, tool calls and streams are as those of any model. Where a constraint
forbids the next piece of the script, the model does what the constraint leaves.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf import GGUFReader

import tiny
from engine import Role, Turn
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "chat_templates.json"
CALL, VALUE = "<tool_call>", "Paris"  # what begins a call, and its values that are strings
ANSWER = ("One", " two", " three.")
THOUGHTS = ("<think>", "\nI count.\n", "</think>", "\n\n")
_CUT = "\ue000"  # where a token ends
_GO_ON = "<go_on>"  # what a prompt ends with behind results
_HIDDEN = 256
_SHARPNESS = 20  # of logits: no temperature that clients use draws another token
_SECOND, _QUOTE = 0.8, 0.5  # of the largest logit


def template(name: str = "Qwen-Qwen3-0.6B") -> str:
    rows = json.loads(GOLDEN.read_text("utf-8"))["rows"]
    return next(row["template"] for row in rows if row["name"] == name)


def calls(*wanted: tuple[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The script of calls with these names and arguments.

    Its tokens begin and end within strings: what a grammar leaves no choice of, it writes itself.
    """
    texts = [
        json.dumps({"name": name, "arguments": _cut(given)}, ensure_ascii=False)
        for name, given in wanted
    ]
    text = "\n".join(f"{CALL}\n{one}\n</tool_call>" for one in texts)
    made = tuple(text.split(_CUT))
    assert len(set(made)) == len(made), "a token would lead to two others"
    return made


def _cut(value: Any) -> Any:
    match value:
        case str():
            return value[:1] + _CUT + value[1:]
        case list():
            return [_cut(one) for one in cast("list[Any]", value)]
        case dict():
            return {key: _cut(one) for key, one in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _telling_results(text: str) -> str:
    """A template that begins an answer behind results otherwise than any other."""
    begins = "'<|im_start|>assistant\\n'"
    assert text.count(f"{{{{- {begins} }}}}") == 1
    behind = f"('{_GO_ON}' if messages[-1].role == 'tool' else '')"
    return text.replace(f"{{{{- {begins} }}}}", f"{{{{- {begins} ~ {behind} }}}}")


def write(
    path: Path,
    answer: Sequence[str] = ANSWER,
    *,
    thoughts: Sequence[str] = (),
    context: int = 4096,
    after: Sequence[str] = (),
) -> Path:
    """Write a model that thinks `thoughts`, where it may, writes `answer` and ends.

    Where it must call a tool, it does so after the answer. Behind results of tools it writes
    `after`, if that is given, and no thoughts.
    """
    words = tiny.bpe("llama")
    tokens = list(words["tokenizer.ggml.tokens"])
    kinds = list(words["tokenizer.ggml.token_type"])
    go_on = [_GO_ON] if after else []
    new = list(dict.fromkeys([*THOUGHTS, CALL, "</tool_call>", VALUE, *answer, *after, *go_on]))
    tokens += new
    kinds += [tiny.USER_DEFINED] * len(new)
    tiny.write(
        path,
        layers=1,
        hidden=_HIDDEN,
        context=context,
        template=_telling_results(template()) if after else template(),
        vocabulary=len(tokens),
        metadata={"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds},
    )
    with GGUFFile.open(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        chat = ChatTemplate.from_metadata(file.metadata, tokenizer)
        end = int(file.metadata["tokenizer.ggml.eos_token_id"])
    question = (Turn(Role.USER, "hello"),)

    def last(thinking: bool) -> int:
        prompt = chat.render(question, enable_thinking=thinking)
        return tokenizer.encode(prompt, add_special=False)[-1]

    def ids(pieces: Sequence[str]) -> list[int]:
        return [len(tokens) - len(new) + new.index(piece) for piece in pieces]

    steps = [*ids(answer), end]
    [quote], [value], [call], [call_end] = (
        tokenizer.encode('"', add_special=False),
        ids((VALUE,)),
        ids((CALL,)),
        ids(("</tool_call>",)),
    )
    chain = dict(itertools.pairwise(steps))
    chain |= {last(False): steps[0], quote: value, value: quote, call_end: end}
    full = [last(True), *ids(thoughts), steps[0]]
    chain |= dict(itertools.pairwise(full))
    if after:
        chain |= dict(itertools.pairwise([*ids((_GO_ON, *after)), end]))
    tensors = {one.name: one.data for one in GGUFReader(path, "r+").tensors}
    tensors["blk.0.attn_output.weight"][:] = 0
    tensors["blk.0.ffn_down.weight"][:] = 0
    tensors["output_norm.weight"][:] = 1
    random = np.random.default_rng(1)
    rows = random.normal(size=(len(tokens), _HIDDEN)).astype(np.float32)
    rows[:, 0] = 0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, 0] = 1  # of every token: leads to the quotation mark
    tensors["token_embd.weight"][:] = rows
    head = tensors["output.weight"]
    head[:] = 0
    head[quote, 0] = _QUOTE
    for token, after in chain.items():
        head[after, 1:] += rows[token, 1:]
    head[call, 1:] += _SECOND * rows[steps[-2], 1:]
    head *= _SHARPNESS
    tensors["token_embd.weight"].base.flush()
    return path
