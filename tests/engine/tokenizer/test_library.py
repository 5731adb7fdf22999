"""Panics of the `tokenizers` library become ModelFileError, at load and when encoding."""

from __future__ import annotations

import pytest

from engine.errors import ModelFileError
from engine.tokenizer.json import read
from engine.tokenizer.tokenizer import Tokenizer
from hostile_vocabulary import hostile


def test_a_vocabulary_that_panics_on_every_text_is_refused_at_load() -> None:
    with pytest.raises(ModelFileError, match=r"^bad\.json .*index out of bounds") as refused:
        read(hostile(bytes(4)), "bad.json")
    assert refused.value.remedy


def test_a_vocabulary_that_panics_on_some_texts_fails_on_these() -> None:
    """Its trie has entries for ASCII bytes only."""
    table = (512).to_bytes(4, "little") + bytes(512)
    tokenizer = Tokenizer(*read(hostile(table), "bad.json"))
    assert tokenizer.encode("aa")
    with pytest.raises(ModelFileError, match=r"^bad\.json .*index out of bounds") as refused:
        tokenizer.encode("aé")
    assert refused.value.remedy
    assert tokenizer.encode("aa")
