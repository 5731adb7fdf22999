"""Embeddings through the engine: beside answers, cancelled, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
import tiny_encoders
import tiny_lora
from engine import (
    AdapterUse,
    Chat,
    Embed,
    Embedded,
    Event,
    Failed,
    Finished,
    FinishReason,
    Load,
    ModelLoaded,
    Pooling,
    Rerank,
    Reranked,
    Restore,
    Save,
    SlowReason,
    SnapshotSaved,
    Text,
)
from engine.errors import Fault, FaultKind
from engine_bench import GREEDY, Bench, answer_text, finished, turns_of

TEXTS = ("hello", "how are you today? " * 30, "x")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {"qwen3.pooling_type": 1}
    path = tmp_path_factory.mktemp("models") / "one.gguf"
    return tiny.write(path, architecture="qwen3", context=2048, metadata=keys)


@pytest.fixture
def bench(model: Path) -> Iterator[Bench]:
    made = Bench()
    made.expect(1, Load(model, embeddings=True), ModelLoaded)
    yield made
    made.engine.stop()


def test_texts_become_vectors(bench: Bench) -> None:
    together = bench.expect(2, Embed(TEXTS), Embedded)
    alone = [bench.expect(3 + at, Embed((text,)), Embedded) for at, text in enumerate(TEXTS)]
    assert together.vectors == tuple(one.vectors[0] for one in alone)
    assert together.tokens == sum(one.tokens for one in alone)
    assert bench.expect(9, Embed(TEXTS, Pooling.MEAN), Embedded).vectors == together.vectors
    assert bench.expect(10, Embed(TEXTS, Pooling.CLS), Embedded).vectors != together.vectors


def test_answers_go_on_while_texts_are_read(bench: Bench) -> None:
    alone = bench.generate(2, "hello", max_tokens=40)
    expected = bench.expect(3, Embed(TEXTS), Embedded).vectors
    bench.send(4, Chat(turns_of("hello"), GREEDY, max_tokens=40))
    seen = bench.until(Text)
    bench.send(5, Embed(TEXTS * 10))
    seen += bench.until(Finished)
    if not any(isinstance(one, Embedded) for one in seen):
        seen += bench.until(Embedded)
    kinds = [type(one) for one in seen]
    assert Text in kinds[: kinds.index(Embedded)]
    (vectors,) = [one.vectors for one in seen if isinstance(one, Embedded)]
    assert vectors == expected * 10
    assert answer_text(seen) == answer_text(alone)


def test_adapters_change_vectors(bench: Bench, model: Path, tmp_path: Path) -> None:
    adapter = tiny_lora.write(tmp_path / "adapter.gguf", model)
    plain = bench.expect(2, Embed(TEXTS), Embedded).vectors
    bench.set_adapters(3, (adapter, 1.0))
    changed = bench.expect(4, Embed(TEXTS), Embedded).vectors
    assert all(one != other for one, other in zip(changed, plain, strict=True))
    assert changed[0] == bench.expect(5, Embed(TEXTS[:1]), Embedded).vectors[0]
    bench.set_adapters(6)
    assert bench.expect(7, Embed(TEXTS), Embedded).vectors == plain


def test_a_request_names_its_adapters(bench: Bench, model: Path, tmp_path: Path) -> None:
    """Those of other requests stay."""
    used = AdapterUse(tiny_lora.write(tmp_path / "adapter.gguf", model))
    plain = bench.expect(2, Embed(TEXTS), Embedded).vectors
    named = bench.expect(3, Embed(TEXTS, adapters=(used,)), Embedded).vectors
    assert named != plain
    assert bench.expect(4, Embed(TEXTS), Embedded).vectors == plain
    bench.set_adapters(5, (used.path, used.strength))
    assert bench.expect(6, Embed(TEXTS), Embedded).vectors == named
    assert bench.expect(7, Embed(TEXTS, adapters=()), Embedded).vectors == plain


def test_a_cancelled_command_has_no_vectors(bench: Bench) -> None:
    bench.send(2, Embed(TEXTS * 200))
    bench.cancel(2)
    (*_, last) = bench.until(Embedded, Failed)
    assert last == Embedded(2, (), 0)
    assert len(bench.expect(3, Embed(TEXTS), Embedded).vectors) == len(TEXTS)


def test_texts_that_cannot_be_read_are_refused_in_one_sentence(bench: Bench) -> None:
    def refused(command: Embed) -> str:
        return bench.expect(2, command, Failed).message

    assert refused(Embed(())) == "There is no text to embed."
    assert refused(Embed(("a", ""))) == "Text 2 is empty."
    assert bench.expect(8, Embed(("0" * 4000, "a"), cuts=True), Embedded).cut == 1
    assert refused(Embed(("0" * 4000,))).startswith("The text is too large: it has 4,000 tokens")
    assert finished(bench.generate(5, "hello", max_tokens=3)).reason is FinishReason.LENGTH


def test_without_a_model_there_are_no_vectors() -> None:
    bench = Bench()
    event: Event = bench.expect(1, Embed(("a",)), Failed)
    none = Fault(FaultKind.NOT_LOADED)
    assert event == Failed(1, "No model is loaded.", "Choose a model first.", fault=none)
    bench.engine.stop()


@pytest.fixture
def encoder(tmp_path: Path) -> Iterator[Bench]:
    """An engine with a model that scores documents."""
    made = Bench()
    path = tiny_encoders.write(tmp_path / "m.gguf", ranks=True)
    loaded = made.expect(1, Load(path, embeddings=True), ModelLoaded)
    missing = [part.part for part in loaded.slow if part.reason is SlowReason.NO_KERNEL]
    assert missing in ([], ["full_attention"])
    yield made
    made.engine.stop()


def test_an_encoder_embeds_and_scores_and_does_not_chat(encoder: Bench) -> None:
    texts = ("hello", "the old tree")
    vectors = encoder.expect(2, Embed(texts), Embedded).vectors
    assert [len(one) for one in vectors] == [tiny_encoders.WIDTH] * 2
    ranked = encoder.expect(3, Rerank("hello", texts), Reranked)
    assert len(ranked.scores) == 2
    assert ranked.tokens == 12
    failed = encoder.expect(4, Chat(turns_of("hello")), Failed)
    assert failed.message.endswith("it cannot chat.")
    failed = encoder.expect(7, Restore(turns_of("hello"), "one"), Failed)
    assert failed.message.endswith("it cannot chat.")
    assert encoder.expect(8, Save("one", 1 << 40, answer=7), SnapshotSaved).tokens == 0
    encoder.send(5, Rerank("hello", texts * 500))
    encoder.cancel(5)
    (*_, last) = encoder.until(Reranked, Failed)
    assert last == Reranked(5, (), 0)
    assert encoder.expect(6, Rerank("hello", ()), Failed).message == (
        "There is no document to score."
    )


def test_a_file_that_only_makes_embeddings_is_not_loaded_to_chat(tmp_path: Path) -> None:
    bench = Bench()
    path = tiny_encoders.write(tmp_path / "m.gguf")
    failed = bench.expect(1, Load(path), Failed)
    assert failed.message == "The model only turns texts into vectors (embeddings); it cannot chat."
    bench.engine.stop()


def test_a_model_that_chats_scores_nothing(bench: Bench) -> None:
    assert "no head that scores" in bench.expect(2, Rerank("a", ("b",)), Failed).message
