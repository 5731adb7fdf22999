"""Embeddings and scores of documents, by an encoder that is loaded beside the main model."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_encoders
from engine.messages import Pooling
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from serving import Served, chat

PATH = "/v1/embeddings"


@pytest.fixture(scope="module")
def beside(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("encoders")
    tiny_encoders.write(folder / "encoder.gguf")
    tiny_encoders.write(folder / "ranker.gguf", ranks=True)
    options = ServiceOptions(lambda: (folder,))
    made = Served(tiny_model, ServerOptions(service=options))
    yield made
    made.close()


def test_vectors_have_length_one_and_an_index(beside: Served) -> None:
    found = beside.post(PATH, {"model": "encoder", "input": ["hello", "the old tree"]})
    assert found["model"] == "encoder"
    assert [one["index"] for one in found["data"]] == [0, 1]
    for one in found["data"]:
        assert math.hypot(*one["embedding"]) == pytest.approx(1, abs=1e-5)
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 0


def test_clients_send_many_texts_at_once(beside: Served) -> None:
    texts = ["a"] * 300
    found = beside.post(PATH, {"model": "encoder", "input": texts, "dimensions": 1})
    assert len(found["data"]) == 300
    error = beside.error(PATH, {"model": "encoder", "input": ["a"] * 2049})["error"]
    assert error["message"] == "`input` has 2,049 texts; give 2,048 at most."


def test_llamas_form_has_a_list_of_vectors_for_each_text(beside: Served) -> None:
    body = {"model": "encoder", "input": ["hello", "the old tree"]}
    wanted = [one["embedding"] for one in beside.post(PATH, body)["data"]]
    for path in ("/embeddings", "/embedding"):
        found = beside.post(path, body)
        assert [one["index"] for one in found] == [0, 1]
        assert [one["embedding"] for one in found] == [[vector] for vector in wanted]


def test_without_pooling_each_token_has_a_vector(tiny_model: Path) -> None:
    made = Served(tiny_model, ServerOptions(service=ServiceOptions(pooling=Pooling.NONE)))
    try:
        texts = ["hello", "the old tree"]
        found = made.post("/embeddings", {"input": texts})
        for text, one in zip(texts, found, strict=True):
            ids = made.post("/tokenize", {"content": text, "add_special": True})["tokens"]
            assert len(one["embedding"]) == len(ids)
            assert all(abs(math.hypot(*row) - 1) > 1e-3 for row in one["embedding"])
        error = made.error(PATH, {"model": "", "input": texts})["error"]
        assert "/embeddings" in error["message"]
    finally:
        made.close()


def test_base64_holds_the_same_numbers(beside: Served) -> None:
    body = {"model": "encoder", "input": "hello"}
    plain = beside.post(PATH, body)["data"][0]["embedding"]
    packed = beside.post(PATH, body | {"encoding_format": "base64"})["data"][0]["embedding"]
    raw = base64.b64decode(packed)
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == pytest.approx(plain)


def test_vectors_are_as_short_as_wanted(beside: Served) -> None:
    body = {"model": "encoder", "input": "hello"}
    plain = beside.post(PATH, body)["data"][0]["embedding"]
    short = beside.post(PATH, body | {"dimensions": 3})["data"][0]["embedding"]
    assert len(short) == 3
    assert math.hypot(*short) == pytest.approx(1)
    assert short[0] / short[1] == pytest.approx(plain[0] / plain[1])


def test_token_ids_are_the_text_that_they_stand_for(beside: Served) -> None:
    ids = beside.post("/tokenize", {"model": "tiny-served", "content": "hello there"})["tokens"]
    body = {"model": "tiny-served", "input": "hello there"}
    plain = beside.post(PATH, body)["data"][0]["embedding"]
    parts = {"content": [{"type": "text", "text": "hello "}, {"type": "text", "text": "there"}]}
    for given in (ids, [ids], parts):
        assert beside.post(PATH, body | {"input": given})["data"][0]["embedding"] == plain


def test_documents_are_sorted_by_their_scores(beside: Served) -> None:
    documents = ["hello", "the old tree", "the quick brown fox"]
    body = {"model": "ranker", "query": "hello", "documents": documents}
    found = beside.post("/v1/rerank", body | {"return_documents": True})["results"]
    scores = [one["relevance_score"] for one in found]
    assert scores == sorted(scores, reverse=True)
    assert [one["document"]["text"] for one in found] == [documents[one["index"]] for one in found]
    first = beside.post("/rerank", body | {"top_n": 1})["results"]
    assert [one["index"] for one in first] == [found[0]["index"]]
    bare = beside.post("/rerank", {"model": "ranker", "query": "hello", "texts": documents})
    assert [one["index"] for one in bare] == [one["index"] for one in found]
    assert [one["score"] for one in bare] == scores


def test_a_model_says_what_it_was_not_made_for(beside: Served) -> None:
    chatting = beside.error("/v1/chat/completions", chat(model="encoder"))
    assert "cannot chat" in chatting["error"]["message"]
    ranking = beside.error("/v1/rerank", {"model": "encoder", "query": "a", "documents": ["b"]})
    assert "score" in ranking["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (PATH, {}, "input"),
        (PATH, {"input": [1, {}]}, "input[1]"),
        (PATH, {"input": 3}, "input"),
        (PATH, {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": [3]}, "documents[0]"),
    ],
)
def test_a_wrong_field_is_named(beside: Served, path: str, body: dict, field: str) -> None:
    assert beside.error(path, body)["error"]["param"] == field


def test_the_main_model_still_chats(beside: Served) -> None:
    assert beside.post("/v1/chat/completions", chat())["model"] == "tiny-served"
