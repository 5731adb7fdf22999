"""Panics of the `tokenizers` library become ModelFileError, at load and when encoding.

What the library prints of them is not shown: the error has one sentence.
"""

from __future__ import annotations

import json

import pytest

from engine.errors import ModelFileError
from engine.frontend.tokenizer.json import read
from engine.frontend.tokenizer.tokenizer import Tokenizer
from hostile_vocabulary import hostile


def test_a_vocabulary_that_panics_on_every_text_is_refused_at_load(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ModelFileError, match=r"^bad\.json .*index out of bounds") as refused:
        read(hostile(bytes(4)), "bad.json")
    assert refused.value.remedy
    assert capfd.readouterr().err == ""


def test_a_vocabulary_that_panics_on_some_texts_fails_on_these(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its trie has entries for ASCII bytes only."""
    table = (512).to_bytes(4, "little") + bytes(512)
    tokenizer = Tokenizer(*read(hostile(table), "bad.json"))
    assert tokenizer.encode("aa")
    with pytest.raises(ModelFileError, match=r"^bad\.json .*index out of bounds") as refused:
        tokenizer.encode("aé")
    assert refused.value.remedy
    assert tokenizer.encode("aa")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}},
        {
            "model": {
                "type": "BPE",
                "vocab": {"a": 0, "b": 1, "ab": 2},
                "merges": ["a b"],
                "continuing_subword_prefix": "##",
            }
        },
    ],
    ids=["chunks of nothing", "no table", "merge without its token", "prefix that no token has"],
)
def test_every_kind_of_panic_is_one_error_and_nothing_else(
    changes: dict[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    described = json.loads(hostile(bytes(4))) | {"normalizer": None} | changes
    with pytest.raises(ModelFileError, match=r"^bad\.json is not a vocabulary"):
        read(json.dumps(described), "bad.json")
    assert capfd.readouterr().err == ""
