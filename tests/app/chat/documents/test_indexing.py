"""Indexing in the background: what waits for what, pauses, faults, and searches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.chat.documents.encoder import TextKind, Vectors
from app.chat.documents.indexing import DocumentText, Indexing, Offered, Reader, SearchResult
from app.documents.index import DocumentIndex
from app.documents.passages import parts_of
from app.domain.documents import DocumentKind
from app.state.chat import Generation, State
from app.state.encoder import EncoderState, EncoderView
from app.state.indexing import IndexingState, IndexingView
from stage import until

LEASE = "The notice period of this lease is three months."
FRUIT = "Apples and pears are fruit."


class FakeEncoder:
    """Gives each text a vector of whether it has a word; or holds what it gets."""

    def __init__(self, word: str = "landlord") -> None:
        self.model_id, self.state, self.word = "model", EncoderState(), word
        self.state.set_view(EncoderView(searched=True))
        self.holds = self.fails = False
        self.held: list[Callable[[], None]] = []
        self.texts: list[tuple[TextKind, str]] = []

    def look(self) -> None:
        pass

    def embed(
        self,
        texts: Sequence[str],
        then: Callable[[Vectors | None], None],
        kind: TextKind = TextKind.DOCUMENT,
    ) -> None:
        self.texts += [(kind, text) for text in texts]
        rows = tuple((1.0, 0.1) if self.word in text else (0.1, 1.0) for text in texts)
        found = None if self.fails else Vectors(self.model_id, rows)
        self.held.append(lambda: then(found))
        if not self.holds:
            self.release()

    def release(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()


class Bench:
    """An index service and what it found."""

    def __init__(self, path: Path | None = None, encoder: FakeEncoder | None = None) -> None:
        self.state, self.own = State(), IndexingState()
        self.indexing = Indexing(self.state, self.own, path, encoder)
        self.shown: list[IndexingView] = []
        self.own.changed.connect(lambda: self.shown.append(self.own.view))

    def want(self, key: str, text: str | Reader, version: str = "") -> None:
        wanted = DocumentText(text) if isinstance(text, str) else text
        self.indexing.want(key, wanted, version)

    def idle(self) -> None:
        until(lambda: not (self.indexing._working or self.own.view.is_working))

    def search(
        self, question: str, keys: Sequence[str] | None = None, limit: int = 8
    ) -> SearchResult:
        results: list[SearchResult] = []
        self.indexing.search(question, keys, results.append, limit)
        until(lambda: bool(results))
        return results[0]

    def found(self, question: str, keys: Sequence[str] | None = None) -> list[str]:
        return [each.key for each in self.search(question, keys).found]

    def answer(self, runs: bool) -> None:
        if runs:
            self.state.set_generation(Generation(1, 1, 1))
        else:
            self.state.end_generation(1)


@pytest.fixture
def make(qapp):
    made: list[Bench] = []

    def work(path: Path | None = None, encoder: FakeEncoder | None = None) -> Bench:
        made.append(Bench(path, encoder))
        return made[-1]

    yield work
    for each in made:
        each.indexing.close()


def test_wanted_documents_are_indexed_and_found(make) -> None:
    bench = make()
    bench.want("lease", LEASE)
    bench.want("fruit", lambda: DocumentText(FRUIT, kind=DocumentKind.TEXT))
    bench.idle()
    assert bench.found("notice period") == ["lease"]
    assert bench.found("apples", ["fruit", "lease"]) == ["fruit"]
    assert max(view.documents for view in bench.shown) == 2
    assert bench.own.view == IndexingView()


def test_nothing_is_begun_or_written_before_a_document_is_wanted(make, tmp_path: Path) -> None:
    bench = make(tmp_path / "documents.sqlite", FakeEncoder())
    bench.indexing.start()
    bench.indexing.forget(["a"])
    bench.indexing.keep_only([])
    bench.idle()
    assert list(tmp_path.iterdir()) == []


def test_a_known_document_is_not_read_again(make, tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    first = make(path)
    first.want("a", LEASE, "1")
    first.idle()
    first.indexing.close()
    second = make(path)
    reads: list[str] = []

    def read() -> DocumentText:
        reads.append("a")
        return DocumentText(FRUIT)

    second.want("a", read, "1")
    second.idle()
    assert reads == []
    second.want("a", read, "2")
    second.idle()
    assert reads == ["a"]
    assert second.found("apples") == ["a"]
    assert second.found("notice") == []


def test_indexing_pauses_while_an_answer_is_written(make) -> None:
    bench = make()
    bench.answer(True)
    bench.want("a", LEASE)
    bench.idle_steps = until(lambda: not bench.indexing._working)
    assert bench.own.view.paused
    assert bench.search("notice").found == ()
    assert bench.own.view.documents_done == 0
    bench.answer(False)
    bench.idle()
    assert bench.found("notice") == ["a"]


def test_a_question_gets_its_documents_first_even_while_an_answer_is_written(make) -> None:
    bench = make()
    bench.answer(True)
    for number in range(20):
        bench.want(str(number), f"Document {number} has a notice period.")
    result = bench.search("notice period", ["17"])
    assert [each.key for each in result.found] == ["17"]
    assert result.missing == 0
    assert bench.own.view.documents_done == 1
    assert bench.search("notice period", [str(number) for number in range(100)]).missing == 99


def test_a_document_that_only_a_question_knows_is_read_from_a_source(make) -> None:
    bench = make()
    texts = {"lease": Offered(DocumentText(LEASE), "1")}
    bench.indexing.sources.append(lambda _: texts)
    assert bench.found("notice", ["lease"]) == ["lease"]
    result = bench.search("notice", ["lease", "nowhere"])
    assert [each.key for each in result.found] == ["lease"]
    assert result.missing == 1
    texts["lease"] = Offered(DocumentText(FRUIT), "2")
    assert bench.found("notice", ["lease"]) == []
    assert bench.found("apples", ["lease"]) == ["lease"]


def test_a_reader_that_fails_ends_its_document_only(make, caplog: pytest.LogCaptureFixture) -> None:
    bench = make()

    def fail() -> DocumentText:
        raise RuntimeError("of a reader")

    bench.want("bad", fail)
    bench.want("none", lambda: None)
    bench.want("good", LEASE)
    bench.idle()
    assert bench.found("notice", ["bad", "none", "good"]) == ["good"]
    assert "of a reader" in caplog.text


def test_a_forgotten_document_is_gone_whatever_its_state(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.documents.indexing._TIDY_MILLISECONDS", 50)
    path = tmp_path / "documents.sqlite"
    bench = make(path)
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> DocumentText:
        entered.set()
        assert go_on.wait(20)
        return DocumentText("secretword " * 50_000)

    bench.want("done", "secretword is here")
    bench.idle()
    bench.want("current", slow)
    bench.want("waiting", "secretword again")
    until(entered.is_set)
    results: list[SearchResult] = []
    bench.indexing.search("secretword", ["current", "waiting"], results.append)
    go_on.set()
    bench.indexing.forget(["done", "current", "waiting"])
    until(lambda: bool(results))
    bench.idle()
    assert bench.found("secretword") == []
    assert bench.own.view.documents == 0
    until(lambda: not bench.indexing._untidy and not bench.indexing._working)
    bench.indexing.close()
    assert not any(b"secret" in each.read_bytes() for each in tmp_path.iterdir())


def test_documents_that_nothing_names_are_removed(make) -> None:
    bench = make()
    for key in ("kept", "purged"):
        bench.want(key, f"{key} notice")
    bench.idle()
    bench.indexing.keep_only(["kept", "another"])
    bench.idle()
    assert bench.found("notice") == ["kept"]


def test_the_index_is_continued_after_the_app_was_ended(make, tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    text = "\n\n".join(f"Paragraph {number} says nothing. " * 20 for number in range(2_000))
    first = make(path)
    first.want("a", text)
    until(lambda: any(0 < view.fraction < 1 for view in first.shown))
    first.indexing.close()
    index = DocumentIndex(path)
    begun = index.count_without_vectors("none")
    assert begun > 0
    assert index.keys() == set()
    index.close()
    second = make(path)
    second.want("a", text)
    second.idle()
    second.indexing.close()
    index = DocumentIndex(path)
    assert index.keys() == {"a"}
    assert index.count_without_vectors("none") > begun
    (last,) = index.search('"Paragraph 1999"', limit=1)
    assert last.end == len(text.rstrip())
    index.close()


def test_passages_get_vectors_and_questions_use_them(make) -> None:
    encoder = FakeEncoder()
    bench = make(None, encoder)
    bench.want("meaning", "One must tell the landlord a quarter before.")
    bench.want("fruit", FRUIT)
    bench.idle()
    until(lambda: len(encoder.texts) == 2)
    bench.idle()
    result = bench.search("landlord?", ["meaning", "fruit"], 1)
    assert result.by_meaning
    assert [each.key for each in result.found] == ["meaning"]
    assert encoder.texts[-1] == (TextKind.QUERY, "landlord?")
    assert max(view.passages for view in bench.shown) == 2


def test_the_parts_of_passages_are_read_after_all_passages(make, tmp_path: Path) -> None:
    encoder = FakeEncoder()
    bench = make(tmp_path / "documents.sqlite", encoder)
    texts = [" ".join(f"Sentence {n} of {key} says nothing." for n in range(25)) for key in "ab"]
    for key, text in zip("ab", texts, strict=True):
        bench.want(key, text)
    parts = sum(len(parts_of(text)) for text in texts)
    until(lambda: len(encoder.texts) == 2 + parts)
    assert [text for _, text in encoder.texts[:2]] == texts
    assert max(view.passages for view in bench.shown) == 2
    until(lambda: bench.indexing._refined == "model")
    bench.indexing.close()
    again = make(tmp_path / "documents.sqlite", FakeEncoder())
    again.indexing.start()
    until(lambda: again.indexing._refined == "model")
    assert again.indexing._encoder.texts == []


def test_only_words_count_when_the_embedding_model_is_busy(
    make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.documents.indexing._VECTOR_MILLISECONDS", 50)
    encoder = FakeEncoder()
    encoder.holds = True
    bench = make(None, encoder)
    bench.want("lease", LEASE)
    result = bench.search("notice", ["lease"])
    assert [each.key for each in result.found] == ["lease"]
    assert not result.by_meaning
    encoder.holds = False
    encoder.release()
    bench.idle()
    assert bench.search("notice", ["lease"]).by_meaning


def test_a_fault_of_the_embedding_model_is_not_repeated_until_it_can_be_used_again(make) -> None:
    encoder = FakeEncoder()
    encoder.fails = True
    bench = make(None, encoder)
    bench.want("lease", LEASE)
    bench.idle()
    until(lambda: bool(encoder.texts))
    encoder.state.set_view(EncoderView(searched=True, problem="out of memory"))
    bench.want("fruit", FRUIT)
    bench.idle()
    assert len(encoder.texts) == 1
    assert not bench.search("notice", ["lease"]).by_meaning
    encoder.fails = False
    encoder.state.set_view(EncoderView(searched=True))
    until(lambda: len(encoder.texts) == 4)
    bench.idle()
    assert bench.search("notice", ["lease"]).by_meaning


def test_another_embedding_model_reads_all_again(make) -> None:
    encoder = FakeEncoder()
    bench = make(None, encoder)
    bench.want("lease", LEASE)
    bench.idle()
    until(lambda: len(encoder.texts) == 1)
    encoder.model_id = "another"
    encoder.state.set_view(EncoderView(searched=True, loaded=True))
    until(lambda: len(encoder.texts) == 2)
    bench.idle()
    assert bench.search("?", ["lease"]).found[0].score > 0


def test_no_passage_is_read_while_an_answer_is_written(make) -> None:
    encoder = FakeEncoder()
    bench = make(None, encoder)
    bench.answer(True)
    bench.want("lease", LEASE)
    assert bench.found("notice", ["lease"]) == ["lease"]
    assert [kind for kind, _ in encoder.texts] == [TextKind.QUERY]
    bench.answer(False)
    until(lambda: len(encoder.texts) == 2)


def test_vectors_that_are_missing_are_made_after_a_start(make, tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    index = DocumentIndex(path)
    index.add("lease", LEASE)
    index.close()
    encoder = FakeEncoder()
    bench = make(path, encoder)
    bench.indexing.start()
    until(lambda: len(encoder.texts) == 1)
    bench.idle()


def test_a_damaged_index_is_said_and_filled_again(
    make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "documents.sqlite"
    path.write_bytes(b"no database " * 1000)
    bench = make(path)
    lost: list[bool] = []
    bench.indexing.lost.connect(lambda: lost.append(True))
    bench.want("lease", LEASE)
    bench.idle()
    assert lost == [True]
    assert bench.found("notice", ["lease"]) == ["lease"]
    assert "made anew" in caplog.text


def test_ten_thousand_documents_are_wanted_at_once(make) -> None:
    bench = make()
    keys = [f"{number:064}" for number in range(10_000)]
    for number, key in enumerate(keys):
        bench.want(key, lambda number=number: DocumentText(f"Text {number} of many."))
    assert bench.found("text 9999", [keys[-1]]) == [keys[-1]]
    assert bench.own.view.documents == 10_000
    bench.indexing.forget(keys[50:])
    bench.idle()
    assert len(bench.search("text", None, 100).found) == 50


def test_a_question_waits_for_the_vectors_of_a_few_passages(make) -> None:
    encoder = FakeEncoder()
    bench = make(encoder=encoder)
    encoder.holds = True
    bench.want("lease", "Tell the landlord a quarter of a year before.")
    bench.want("fruit", FRUIT)
    until(lambda: bool(encoder.held))
    results: list[SearchResult] = []
    bench.indexing.search("the landlord?", None, results.append)
    until(lambda: len(encoder.held) == 2)  # passages, and the question
    encoder.held.pop()()  # of the question
    until(lambda: not bench.indexing._working)
    assert results == []
    encoder.release()
    until(lambda: bool(results))
    assert results[0].by_meaning
    assert next(each.key for each in results[0].found) == "lease"


def asked_while_held(bench: Bench, encoder: FakeEncoder, question: str) -> list[SearchResult]:
    """Ask while the encoder has passages of a document and gives vectors of the question alone."""
    encoder.holds = True
    bench.want("fruit", FRUIT)
    until(lambda: bool(encoder.held))
    results: list[SearchResult] = []
    bench.indexing.search(question, None, results.append)
    until(lambda: len(encoder.held) == 2)  # passages, and the question
    encoder.held.pop()()  # of the question
    until(lambda: not bench.indexing._working)
    assert results == []
    return results


def test_a_question_does_not_wait_for_vectors_while_an_answer_runs(make) -> None:
    encoder = FakeEncoder()
    bench = make(encoder=encoder)
    results = asked_while_held(bench, encoder, "apples")
    bench.answer(True)
    until(lambda: bool(results))
    assert [each.key for each in results[0].found] == ["fruit"]
    bench.answer(False)


def test_a_question_does_not_wait_for_vectors_that_do_not_come(make) -> None:
    encoder = FakeEncoder()
    bench = make(encoder=encoder)
    results = asked_while_held(bench, encoder, "apples")
    encoder.held.clear()
    bench.indexing._stop_waiting()  # the time is over
    until(lambda: bool(results))
    assert [each.key for each in results[0].found] == ["fruit"]


def test_a_document_that_is_interrupted_by_a_question_is_indexed_whole(make) -> None:
    bench = make()
    words = "\n\n".join(f"Section {n} is about gear{n}. " * 40 for n in range(2_000))
    bench.want("long", words)
    until(lambda: 0.1 < bench.own.view.fraction < 0.9)
    bench.want("lease", LEASE)
    assert bench.found("notice period", ["lease"]) == ["lease"]
    assert bench.own.view.is_working
    bench.idle()
    assert bench.found("gear1999", ["long"]) == ["long"]
    result = bench.search("gear1", ["long"])
    assert not result.missing
