"""Encoder: which model it uses, when it reads, what it answers after faults, and its memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
import tiny_encoders
from app.chat.documents import encoder as module
from app.chat.documents.encoder import Encoder, TextKind, Vectors
from app.domain.model_ref import Local
from app.downloads import catalog
from app.downloads.entry import Download
from app.downloads.queue import Phase
from app.engines.local import LocalClient
from app.state.chat import Generation, ModelPhase, ModelStatus, State
from app.state.encoder import EncoderState
from app.state.library import EmbedderRow, FileState, InstalledRow, LibraryState, Offer, Place
from app.system.worker import BackgroundWorker
from engine import (
    Embed,
    Embedded,
    Engine,
    Failed,
    Fault,
    FaultKind,
    Load,
    ModelUnloaded,
    Priority,
    Unload,
)
from fakes import Cancel, FakeEngine
from stage import flush, until


class Bench:
    """An encoder over a fake engine or a real one, with the states that it reads."""

    def __init__(self, *, real: bool = False) -> None:
        self.state, self.library, self.own = State(), LibraryState(), EncoderState()
        self.files = BackgroundWorker("files", self.state)
        self.chosen, self.got = "", list[Offer]()
        self.faults: list[Exception] = []
        self.fakes: list[FakeEngine] = []
        self.client = LocalClient(Engine if real else self._fake, lambda event: None, self.state)
        self.encoder = Encoder(
            self.state,
            self.library,
            self.own,
            self.client,
            self.files,
            lambda: self.chosen,
            self.got.append,
            self.faults.append,
        )
        rows = [EmbedderRow(one, Offer(one.source, one.name)) for one in catalog.load_embedders()]
        self.library.set_embedders(rows)
        self.found: list[Vectors | None] = []
        self.client.start()

    def _fake(self, notify: Any) -> FakeEngine:
        self.fakes.append(FakeEngine(notify))
        return self.fakes[0]

    @property
    def engine(self) -> FakeEngine:
        return self.fakes[0]

    def install(self, *paths: Path) -> None:
        rows = [
            InstalledRow(path, path.stem, path.stat().st_size, Place.OWN, FileState.UNKNOWN)
            for path in paths
        ]
        self.library.set_installed(rows)
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            done: list[bool] = []
            self.files.run(lambda: True, done.append)
            until(lambda done=done: bool(done))
        self.client.drain()
        flush()

    def embed(self, *texts: str, kind: TextKind = TextKind.DOCUMENT) -> None:
        self.encoder.embed(texts, self.found.append, kind)
        self.settle()

    def load(self) -> None:
        """The engine has the model."""
        self.engine.finish_load()
        self.settle()

    def answer(self) -> tuple[str, ...]:
        """The engine answers the newest Embed: each vector has the number of its text."""
        asked = self.engine.last(Embed)
        vectors = tuple((float(len(text)),) for text in asked.texts)
        self.engine.deliver(Embedded(asked.request, vectors, 9))
        self.settle()
        return asked.texts

    def fail(self, kind: type, fault: FaultKind) -> None:
        request = self.engine.last(kind).request
        self.engine.deliver(Failed(request, "It is wrong.", "Mend it.", fault=Fault(fault)))
        self.settle()

    def close(self) -> None:
        self.encoder.close()
        self.client.stop()
        self.files.close()
        for each in (self.encoder, self.state, self.library, self.own):
            each.deleteLater()
        flush()


@pytest.fixture
def bench(qapp: object) -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()
    assert not made.faults


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder of three kinds, a chat model, and what is no model."""
    folder = tmp_path_factory.mktemp("models")
    tiny_encoders.write(folder / "minilm.gguf")
    tiny_encoders.write(folder / "bge.gguf", metadata={"general.name": "Bge Small En v1.5"})
    tiny_encoders.write(folder / "nomic.gguf", "nomic-bert")
    tiny_encoders.write(folder / "ranker.gguf", ranks=True)
    pooled = {"qwen3.pooling_type": 3, "general.name": "Qwen3 Embedding 0.6B"}
    tiny.write(folder / "qwen.gguf", architecture="qwen3", metadata=pooled)
    tiny.write(folder / "chat.gguf", architecture="qwen3")
    (folder / "bad.gguf").write_bytes(b"GGUF, but damaged")
    return folder


def test_without_a_model_texts_get_no_vectors_and_one_is_offered(
    bench: Bench, models: Path
) -> None:
    bench.install(models / "chat.gguf", models / "bad.gguf", models / "ranker.gguf")
    bench.embed("a text")
    view = bench.own.view
    assert (bench.found, bench.encoder.model_id, view.model) == ([None], "", None)
    assert view.problem == "No model for searching documents by meaning is installed."
    assert view.offer is not None
    assert view.offer.name == "EmbeddingGemma 300M"
    bench.encoder.get()
    assert [one.source for one in bench.got] == [view.offer.source]
    assert bench.engine.commands == []


def test_the_download_of_the_offer_is_shown_until_it_is_here(bench: Bench, models: Path) -> None:
    bench.install(models / "chat.gguf")
    bench.encoder.look()
    bench.settle()
    offer = bench.own.view.offer
    assert offer is not None
    url = f"https://huggingface.co/{offer.source.repository}/resolve/main/{offer.source.file}"
    going = Download(
        1, url, offer.source.file, models / "new.gguf", offer.source.repository, 100, 25,
        0.0, None, Phase.RUNNING, "", "", "", "",
    )  # fmt: skip
    bench.library.set_downloads([going])
    assert (bench.own.view.download, bench.own.view.progress) == (going, 0.25)
    bench.library.set_downloads([replace(going, phase=Phase.DONE)])
    assert bench.own.view.download is None
    bench.install(models / "chat.gguf", models / "minilm.gguf")
    assert bench.own.view.offer is None
    assert bench.library.embedder == models / "minilm.gguf"
    assert bench.own.view.problem == ""
    assert bench.encoder.model_id


@pytest.mark.parametrize(
    ("names", "used"),
    [
        (("minilm", "bge", "nomic", "qwen", "chat", "bad", "ranker"), "qwen"),
        (("minilm", "nomic", "bge"), "nomic"),
        (("minilm", "bge"), "bge"),
    ],
)
def test_of_several_models_the_preferred_one_is_used(
    bench: Bench, models: Path, names: tuple[str, ...], used: str
) -> None:
    bench.install(*(models / f"{name}.gguf" for name in names))
    bench.embed("a text")
    assert bench.engine.load.path == models / f"{used}.gguf"
    bench.load()
    bench.answer()
    first = bench.encoder.model_id
    bench.chosen = str(models / "minilm.gguf")
    bench.encoder.choose_again()
    assert bench.encoder.model_id not in (first, "")
    bench.embed("another")
    assert bench.engine.load.path == models / "minilm.gguf"


@pytest.mark.parametrize(
    ("name", "query", "document"),
    [
        ("minilm", "", ""),
        ("bge", "Represent this sentence for searching relevant passages: ", ""),
        ("nomic", "search_query: ", "search_document: "),
        (
            "qwen",
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
            "Query:",
            "",
        ),
    ],
)
def test_a_model_gets_the_words_that_it_was_trained_with(
    bench: Bench, models: Path, name: str, query: str, document: str
) -> None:
    bench.install(models / f"{name}.gguf")
    bench.embed("why?", kind=TextKind.QUERY)
    load = bench.engine.load
    assert load.embeddings
    assert load.beside
    assert 0 < load.context <= module.MOST_TOKENS
    bench.load()
    assert bench.answer() == (f"{query}why?",)
    bench.embed("because")
    bench.load()
    assert bench.answer() == (f"{document}because",)
    assert [one and one.model for one in bench.found] == [bench.encoder.model_id] * 2


def test_passages_are_read_in_batches_and_wait_for_answers(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")
    texts = [f"passage {'x' * at}" for at in range(40)]
    bench.embed(*texts)
    assert set(bench.engine.priorities.values()) == {Priority.BACKGROUND}
    read: list[str] = []
    bench.load()
    bench.state.set_generation(Generation(1, 1, 1))
    read += bench.answer()
    assert bench.own.view.waiting == len(texts) - len(read)
    asked = bench.engine.count(Embed)
    bench.embed("a question", kind=TextKind.QUERY)  # it does not wait
    assert bench.engine.priorities[bench.engine.load.request] is Priority.WINDOW
    bench.load()
    assert bench.answer() == ("a question",)
    assert bench.engine.count(Embed) == asked + 1
    bench.state.end_generation(1)
    while len(bench.found) < 2:
        bench.load()
        read += bench.answer()
    assert read == texts
    found = bench.found[1]
    assert found is not None
    assert found.rows == tuple((float(len(text)),) for text in texts)
    assert bench.own.view.waiting == 0


def test_while_a_model_is_loaded_passages_wait(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")
    chat = Local(models / "chat.gguf")
    bench.state.set_model(ModelStatus(ModelPhase.LOADING, chat, "chat"))
    bench.embed("a text")
    assert bench.engine.commands == []
    bench.state.set_model(ModelStatus(ModelPhase.READY, chat, "chat"))
    bench.load()
    bench.answer()
    assert bench.found[0] is not None


def test_a_fault_is_said_and_forgotten_later(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")
    bench.embed("a text")
    bench.fail(Load, FaultKind.MEMORY)
    assert bench.found == [None]
    assert bench.own.view.problem == "This computer ran out of memory."
    asked = bench.engine.count(Load)
    bench.embed("another")  # not tried again at once
    assert (bench.found, bench.engine.count(Load)) == ([None, None], asked)
    bench.encoder.choose_again()
    assert bench.own.view.problem == ""
    bench.embed("a third")
    bench.load()
    bench.answer()
    assert bench.found[2] is not None


def test_a_model_that_gave_its_memory_to_another_is_loaded_again(
    bench: Bench, models: Path
) -> None:
    bench.install(models / "minilm.gguf")
    bench.embed("a text")
    bench.load()
    bench.fail(Embed, FaultKind.NOT_LOADED)
    assert bench.engine.count(Load) == 2
    bench.load()
    bench.answer()
    assert bench.found[0] is not None
    assert bench.own.view.problem == ""


def test_a_model_that_was_idle_for_long_is_unloaded(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")
    bench.embed("a text")
    bench.load()
    assert bench.own.view.loaded
    bench.answer()
    bench.encoder._idle.timeout.emit()
    assert bench.engine.last(Unload).model == models / "minilm.gguf"
    request = bench.engine.last(Unload).request
    bench.engine.deliver(ModelUnloaded(request, 1, 1, models / "minilm.gguf"))
    bench.settle()
    assert not bench.own.view.loaded
    bench.embed("another")
    bench.load()
    bench.answer()
    assert bench.found[1] is not None


def test_a_removed_model_is_used_no_longer(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")
    bench.embed("a text")
    assert bench.encoder.model_id
    bench.install(models / "chat.gguf")
    assert bench.encoder.model_id == ""
    bench.load()
    bench.answer()
    bench.embed("another")
    assert bench.found[-1] is None


def test_a_renamed_copy_makes_the_same_vectors(bench: Bench, models: Path, tmp_path: Path) -> None:
    bench.install(models / "minilm.gguf")
    bench.encoder.look()
    bench.settle()
    first = bench.encoder.model_id
    copy = shutil.copy(models / "minilm.gguf", tmp_path / "other name.gguf")
    bench.install(copy)
    assert bench.encoder.model_id == first
    other = tiny_encoders.write(tmp_path / "minilm.gguf", metadata={"bert.pooling_type": 2})
    bench.install(other)
    assert bench.encoder.model_id not in (first, "")


def test_closing_ends_what_waits(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")
    bench.embed(*"abc")
    bench.encoder.close()
    assert bench.found == [None]
    assert isinstance(bench.engine.commands[-1], Cancel)
    bench.embed("more")
    assert bench.engine.count(Load) == 1


def test_a_listener_that_fails_ends_nothing_else(bench: Bench, models: Path) -> None:
    bench.install(models / "minilm.gguf")

    def fails(found: Vectors | None) -> None:
        raise ValueError("a fault of the listener")

    bench.encoder.embed(["a"], fails)
    bench.embed("b")
    for _ in range(2):
        bench.load()
        bench.answer()
    assert bench.found[0] is not None
    assert [str(fault) for fault in bench.faults] == ["a fault of the listener"]
    bench.faults.clear()


def test_with_the_engine_long_and_short_texts_become_vectors(qapp: object, models: Path) -> None:
    bench = Bench(real=True)
    try:
        bench.install(models / "minilm.gguf")
        texts = ["hello", "", "the quick brown fox " * 400, *"abcdefghijklmnopqrstuvwxyz"]
        bench.encoder.embed(texts, bench.found.append)
        until(lambda: bool(bench.found))
        found = bench.found[0]
        assert found is not None
        assert len(found.rows) == len(texts)
        assert all(sum(x * x for x in row) == pytest.approx(1, abs=1e-5) for row in found.rows)
        bench.encoder.embed(["hello"], bench.found.append, TextKind.QUERY)
        until(lambda: len(bench.found) > 1)
        again = bench.found[1]
        assert again is not None
        assert again.rows[0] == found.rows[0]
    finally:
        bench.close()
    assert not bench.faults
