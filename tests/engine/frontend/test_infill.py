"""Prompts that fill a gap: the marks, the files before them, and what is left out of a small context."""

from __future__ import annotations

from typing import Any

import pytest

import tiny
from engine.errors import RequestError
from engine.frontend.infill import can_infill, infill_ids
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Infill

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
FILES = ("<|repo_name|>", "<|file_sep|>")
GAP = Infill("int main() {", "}\n", "  return", (("a.h", "int a;"), ("b.h", "int b;")))


def vocabulary(*more: str, **keys: Any) -> Tokenizer:
    words = tiny.bpe("llama")
    tokens = [*words["tokenizer.ggml.tokens"], *more]
    kinds = [*words["tokenizer.ggml.token_type"], *([tiny.USER_DEFINED] * len(more))]
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    return Tokenizer.from_metadata(words | changed | keys)


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, special=True)


def test_a_model_without_files_gets_them_as_text() -> None:
    tokenizer = vocabulary(*MARKS)
    assert can_infill(tokenizer)
    text = shown(tokenizer, infill_ids(GAP, tokenizer, 500))
    assert text.endswith("<|fim_prefix|>int main() {  return<|fim_suffix|>}\n<|fim_middle|>")
    before = text.partition("<|fim_prefix|>")[0]
    assert before.index("int a;") < before.index("int b;")
    assert "a.h" not in before


def test_a_model_of_repositories_gets_files_by_name() -> None:
    tokenizer = vocabulary(*MARKS, *FILES)
    text = shown(tokenizer, infill_ids(GAP, tokenizer, 500))
    assert "<|file_sep|>a.h\nint a;<|file_sep|>b.h\nint b;<|file_sep|>" in text
    assert text.count("<|repo_name|>") == 1
    alone = shown(tokenizer, infill_ids(Infill("a", "b"), tokenizer, 500))
    assert alone.endswith("<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>")
    assert "<|repo_name|>" not in alone


@pytest.mark.parametrize("room", [12, 40, 90, 200])
def test_what_is_near_the_gap_stays(room: int) -> None:
    tokenizer = vocabulary(*MARKS, *FILES)
    gap = Infill("x1 " * 60 + "near", "behind" + " y2" * 60, "", (("a.h", "z3 " * 40),) * 2)
    ids = infill_ids(gap, tokenizer, room)
    assert len(ids) <= room
    text = shown(tokenizer, ids)
    before, _, rest = text.partition("<|fim_suffix|>")
    assert gap.prefix.endswith(before.rpartition("<|fim_prefix|>")[2])
    assert before.endswith("r")
    assert gap.suffix.startswith(rest.removesuffix("<|fim_middle|>"))
    assert rest.startswith("b")


def test_control_texts_in_code_are_plain_text() -> None:
    tokenizer = vocabulary(*MARKS)
    ids = infill_ids(Infill("<|fim_middle|>", "<|im_end|>"), tokenizer, 500)
    assert [ids.count(mark) for mark in tokenizer.infill.values()] == [1, 1, 1]


def test_no_space_is_put_into_the_middle_of_a_text() -> None:
    """Vocabularies of SentencePiece put one before a text: here only before the first part."""
    words = tiny.spm()
    tokens = [*words["tokenizer.ggml.tokens"], *MARKS]
    count = len(MARKS)
    tokenizer = Tokenizer.from_metadata(
        words
        | {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [
                *words["tokenizer.ggml.token_type"],
                *([tiny.USER_DEFINED] * count),
            ],
            "tokenizer.ggml.add_space_prefix": True,
            "tokenizer.ggml.scores": [*words["tokenizer.ggml.scores"], *([0.0] * count)],
        }
    )
    ids = infill_ids(Infill("return a", "b\n", "+"), tokenizer, 500)
    text = b"".join(map(tokenizer.piece, ids)).decode()
    assert text.endswith("<|fim_prefix|> return a+<|fim_suffix|>b\n<|fim_middle|>")
    assert tokenizer.bos is not None
    assert ids.count(tokenizer.bos) == (1 if tokenizer.add_bos else 0)


def test_the_file_may_name_the_tokens() -> None:
    tokenizer = vocabulary(
        **{
            f"tokenizer.ggml.fim_{name}_token_id": at
            for at, name in enumerate(("pre", "suf", "mid"), 40)
        }
    )
    assert infill_ids(Infill("", ""), tokenizer, 50)[-3:] == [40, 41, 42]


def test_a_model_without_the_tokens_is_named() -> None:
    tokenizer = vocabulary(*MARKS[:2])
    assert not can_infill(tokenizer)
    with pytest.raises(RequestError, match="fim_mid"):
        infill_ids(GAP, tokenizer, 500)
