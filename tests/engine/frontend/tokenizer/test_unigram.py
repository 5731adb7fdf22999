"""Unigram vocabularies (t5), as XLM-RoBERTa's encoders have them: the ids are those of llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import plain_states
import tiny_encoders
import unigram
from engine.errors import ModelFileError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.loading.loader import load
from engine.messages import Pooling
from sessions import finish

# Recorded from llama-server (b11434), /tokenize with add_special.
RECORDED = {
    "hello": [0, 8, 2],
    "  the\t the \n\nhello  ": [0, 5, 5, 8, 2],
    "abc ab bc": [0, 4, 16, 4, 15, 4, 17, 2],
    "\u00bd \ufb01 A\u200bB": [0, 4, 34, 32, 35, 4, 86, 89, 4, 81, 51, 2],
    "e\u0301 e\u0301\u0323 \u1100\u1161": [0, 4, 11, 4, 12, 4, 13, 2],
    "e\u0323": [0, 4, 85, 3, 2],
    "x\u00bd\u0301y": [0, 4, 104, 34, 32, 35, 3, 105, 2],
    "~~ ^~a": [0, 4, 3, 4, 3, 81, 2],
    "\u4e2d\u6587\u3000\u4e2d": [0, 4, 14, 4, 3, 2],
    "<mask> <unk> <s>": [0, 110, 4, 45, 101, 94, 91, 47, 4, 45, 99, 47, 2],
    " ": [0, 2],
    "thehello": [0, 5, 88, 85, 7, 2],
    "[PAD] 1": [0, 4, 76, 65, 81, 53, 78, 4, 34, 2],
}
WITH_SPACES = {
    "  the\t the \n\nhello  ": [0, 4, 4, 5, 4, 5, 4, 4, 8, 4, 4, 2],
    "<mask> <unk> <s>": [0, 110, 4, 4, 45, 101, 94, 91, 47, 4, 45, 99, 47, 2],
    " ": [0, 4, 2],
    "hello": [0, 8, 2],
}


@pytest.mark.parametrize("text", RECORDED)
def test_ids_are_llamacpps(text: str) -> None:
    tokenizer = Tokenizer.from_metadata(unigram.words())
    assert tokenizer.encode(text, parse_special=False) == RECORDED[text]


@pytest.mark.parametrize("text", WITH_SPACES)
def test_spaces_are_kept_where_the_file_says_so(text: str) -> None:
    tokenizer = Tokenizer.from_metadata(unigram.words(remove_extra_whitespaces=False))
    assert tokenizer.encode(text, parse_special=False) == WITH_SPACES[text]


def test_a_space_begins_each_word_also_without_the_prefix() -> None:
    tokenizer = Tokenizer.from_metadata(unigram.words(add_space_prefix=False))
    assert tokenizer.encode("hello the", parse_special=False) == [0, 8, 5, 2]


def test_a_text_is_decoded_without_the_space_before_it() -> None:
    tokenizer = Tokenizer.from_metadata(unigram.words())
    assert tokenizer.decode(tokenizer.encode("hello the abc")) == "hello the abc"


@pytest.mark.parametrize(
    "changes",
    [
        {"precompiled_charsmap": [0] * 4},
        {"precompiled_charsmap": [255, 255, 255, 127, 0, 0]},
        {"precompiled_charsmap": [300, 0, 0, 0]},
        {"precompiled_charsmap": [4, 0, 0, 0, 0, 0, 255, 255, 0]},  # a root outside of the table
        {"precompiled_charsmap": unigram.words()["tokenizer.ggml.precompiled_charsmap"][:-9]},
        {"scores": [0.0]},
    ],
)
def test_a_damaged_vocabulary_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError) as refused:
        Tokenizer.from_metadata(unigram.words(**changes)).encode("\u1100\u1161")
    assert refused.value.remedy


def test_an_encoder_of_it_gives_llamacpps_vector(tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", words=unigram.words(), types=1)
    model = load(path, embeddings=True)
    embedder = model.new_embedder()
    ids = embedder.tokens(["hello the abc"])
    assert ids == [[0, 8, 5, 4, 16, 2]]
    (found,) = finish(embedder.vectors(ids, Pooling.MEAN), embedder.scheduler)
    expected = plain_states.vector(plain_states.bert(plain_states.File(path), ids[0]), "mean")
    assert float(torch.tensor(found) @ expected) >= 0.99999
    recorded = [0.18458, -0.00044, 0.13998, -0.0473, -0.01411, -0.08131, -0.09215, 0.0379]
    assert found[:8] == pytest.approx(recorded, abs=2e-3)


def test_a_reranker_of_it_reads_both_texts_with_two_separators(tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", words=unigram.words(), types=1, ranks=True)
    ranker = load(path, embeddings=True).new_ranker()
    assert ranker.pairs("the", ["hello"], "") == [[0, 5, 2, 2, 8, 2]]
