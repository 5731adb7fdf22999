"""Ranking: scores of documents against a plain definition, by encoders and by causal models."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from torch import Tensor

import plain_states
import tiny
import tiny_encoders
from engine.errors import ModelFileError, RequestError, UnsupportedModel
from engine.loading.loader import LoadedModel, load
from sessions import finish

DOCUMENTS = ["the quick brown fox", "hello", "how are you <|im_end|> today [SEP]? {query}"]
TEMPLATE = (
    "<|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)


def scores(model: LoadedModel, query: str, documents: list[str]) -> list[float]:
    made = model.new_ranker()
    work = made.scores(made.pairs(query, documents, model.rank_template))
    return finish(work, made.scheduler)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("architecture", ["bert", "nomic-bert"])
def test_an_encoder_scores_as_defined(architecture: str, dense: bool, tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", architecture, ranks=True, dense=dense)
    model, file = load(path, embeddings=True), plain_states.File(path)
    found = scores(model, "old tree", DOCUMENTS)
    for document, score in zip(DOCUMENTS, found, strict=True):
        query = model.tokenizer.encode("old tree", parse_special=False)
        after = model.tokenizer.encode(document, parse_special=False)[1:]
        assert after[-1] == query[-1] == 3
        assert 3 not in after[:-1]
        types = [0] * len(query) + [1] * len(after)
        states = plain_states.bert(file, query + after, types)
        assert score == pytest.approx(float(plain_states.score(file, states[0])[0]), abs=1e-4)
    assert len(set(found)) == len(found)
    assert found == [scores(model, "old tree", [document])[0] for document in DOCUMENTS]


def write_causal(path: Path, **keys: object) -> Path:
    """A tiny model as llama.cpp converts Qwen3-Reranker: two rows of the head, "yes" and "no"."""
    plain = tiny.write(path, architecture="qwen3", context=512, tied=True)
    embedding = next(one for one in gguf.GGUFReader(plain).tensors if "token_embd" in one.name)
    changed = {
        "qwen3.pooling_type": 4,
        "qwen3.classifier.output_labels": ["yes", "no"],
        "tokenizer.chat_template.rerank": TEMPLATE,
        **keys,
    }
    rows = {"cls.output.weight": embedding.data[[30, 40]] * 4}
    return tiny_encoders.changed(plain, path.with_name("ranker.gguf"), "qwen3", changed, rows)


def test_a_causal_model_scores_as_defined(tmp_path: Path) -> None:
    path = write_causal(tmp_path / "m.gguf")
    model, file = load(path, embeddings=True), plain_states.File(path)
    found = scores(model, "old tree", DOCUMENTS)
    start, end = (model.tokenizer.token_id(f"<|im_{name}|>") for name in ("start", "end"))
    for document, score in zip(DOCUMENTS, found, strict=True):
        asked = f"user\n<Query>: old tree\n<Document>: {document}"
        ids: list[int | None] = [
            start, *model.tokenizer.encode(asked, parse_special=False), end,
            *model.tokenizer.encode("\n"), start, *model.tokenizer.encode("assistant\n"),
        ]  # fmt: skip
        numbers = [number for number in ids if number is not None]
        values: Tensor = plain_states.score(file, plain_states.qwen3(file, numbers)[-1])
        assert score == pytest.approx(float(torch.softmax(values, 0)[0]), abs=1e-5)
        assert 0 < score < 1
    assert found == [scores(model, "old tree", [document])[0] for document in DOCUMENTS]


def test_a_causal_reranker_is_not_loaded_to_chat(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"only scores .* cannot chat"):
        load(write_causal(tmp_path / "m.gguf"))


def test_a_model_without_such_a_head_scores_nothing(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf"))
    with pytest.raises(RequestError, match="no head that scores"):
        model.new_ranker()


def test_documents_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", ranks=True)
    made = load(path, embeddings=True).new_ranker()
    with pytest.raises(RequestError, match="no document"):
        made.pairs("a", [], "")
    with pytest.raises(RequestError, match=r"^Document 2 with the query is too large: it has 103 "):
        made.pairs("a", ["a", "a " * 99], "")


def test_a_damaged_template_is_refused(tmp_path: Path) -> None:
    keys = {"tokenizer.chat_template.rerank": "only {query}"}
    with pytest.raises(ModelFileError, match=r"no {query} or no"):
        load(write_causal(tmp_path / "m.gguf", **keys), embeddings=True)
