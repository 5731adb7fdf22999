"""The text of an answer without thoughts: whole characters only, no loss, U+FFFD for invalid bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.answer_stream import AnswerStream


def stream_of(pieces: list[bytes]) -> AnswerStream:
    """A stream whose token ids are the places of their bytes in a list."""
    piece = pieces.__getitem__
    tokenizer = SimpleNamespace(piece=piece, shown_piece=piece, token_id=lambda text: None)
    return AnswerStream(None, tokenizer)  # type: ignore[arg-type]


def text_of(found: Sequence[tuple[object, str]]) -> str:
    return "".join(text for _, text in found)


def streamed(pieces: list[bytes]) -> list[str]:
    stream = stream_of(pieces)
    pushed = [text_of(stream.push(token)) for token in range(len(pieces))]
    return [*pushed, text_of(stream.flush())]


def test_a_character_split_over_tokens_is_returned_with_its_last_byte() -> None:
    assert streamed([b"\xf0\x9f", b"\x98", b"\x81!"]) == ["", "", "😁!", ""]


def test_every_push_returns_the_complete_characters() -> None:
    assert streamed([b"a\xe6", b"\x97\xa5b", b"c"]) == ["a", "日b", "c", ""]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"\xff", b"a"], "\ufffda"),
        ([b"\xe6\x97", b"a"], "\ufffda"),
        ([b"ok", b"\xf0\x9f"], "ok\ufffd"),
        ([b"\x80"], "\ufffd"),
        ([b"\xed\xa0\x80"], "\ufffd" * 3),
    ],
)
def test_invalid_bytes_become_replacement_characters(pieces: list[bytes], text: str) -> None:
    assert "".join(streamed(pieces)) == text


def test_an_answer_that_may_be_continued_keeps_an_incomplete_character_back() -> None:
    stream = stream_of([b"a\xf0\x9f"])
    assert text_of(stream.push(0)) == "a"
    assert text_of(stream.flush(is_complete=False)) == ""


@given(st.text(), st.lists(st.integers(1, 5)))
def test_text_cut_anywhere_is_restored(text: str, cuts: list[int]) -> None:
    data = text.encode()
    pieces: list[bytes] = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    pieces.append(data)
    pushed = streamed(pieces)
    assert "".join(pushed) == text
    assert "\ufffd" not in "".join(pushed).replace("\ufffd", "", text.count("\ufffd"))


@given(st.lists(st.binary(max_size=4), max_size=20))
def test_any_bytes_decode_as_in_one_piece(pieces: list[bytes]) -> None:
    assert "".join(streamed(pieces)) == b"".join(pieces).decode("utf-8", "replace")
