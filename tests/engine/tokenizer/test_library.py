"""Panics of the `tokenizers` library are refusals in one sentence, at load and at any later text."""

from __future__ import annotations

import pytest

from engine.errors import ModelFileError
from engine.tokenizer.json import read
from engine.tokenizer.tokenizer import Tokenizer
from hostile_vocabulary import hostile


def test_a_table_that_panics_at_every_text_is_refused_when_it_is_read() -> None:
    with pytest.raises(ModelFileError, match=r"^bad\.json .*index out of bounds") as refused:
        read(hostile(bytes(4)), "bad.json")
    assert refused.value.remedy


def test_a_table_that_panics_at_some_texts_is_refused_at_these() -> None:
    """Its trie has places for the bytes of ASCII alone."""
    table = (512).to_bytes(4, "little") + bytes(512)
    tokenizer = Tokenizer(*read(hostile(table), "bad.json"))
    assert tokenizer.encode("aa")
    with pytest.raises(ModelFileError, match=r"^bad\.json .*index out of bounds") as refused:
        tokenizer.encode("aé")
    assert refused.value.remedy
    assert tokenizer.encode("aa")
