"""How well the document index answers the question set: floors of what was measured.

The numbers beside other programs are in `tests/benchmarks/recall.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

import minilm
import recall_set
from app.documents.index import DocumentIndex
from app.domain.documents import DocumentKind
from engine.loading.loader import load
from engine.messages import Pooling
from recall_set import FOLDER, documents, questions, stems
from sessions import finish

MODEL = "all-MiniLM-L6-v2"


def indexed(folder: str = "documents") -> DocumentIndex:
    """An index of the documents, by their file names."""
    index = DocumentIndex(None)
    for name, text in recall_set.documents(folder).items():
        kind = DocumentKind.MARKDOWN if name.endswith(".md") else DocumentKind.TEXT
        index.add(name, text, (), kind)
    return index


def test_questions_are_answered_by_their_words() -> None:
    index, asked = indexed(), recall_set.questions()
    sharing = [one for one in asked if one.shared]
    found = recall_set.measure(asked, lambda one: index.search(one.text))
    assert found.recall >= 0.54, found
    assert found.rank >= 0.44, found
    assert recall_set.measure(sharing, lambda one: index.search(one.text)).recall >= 0.84


def test_questions_about_one_document_find_their_passage() -> None:
    index, asked = indexed(), recall_set.questions()
    found = recall_set.measure(asked, lambda one: index.search(one.text, [one.document]))
    assert found.recall >= 0.66, found


@pytest.mark.parametrize("ending", ["hausordnung.md", "yaoji.md", "dalil.md"])
def test_questions_in_other_languages_are_answered_by_their_words(ending: str) -> None:
    index = indexed("other_languages")
    asked = [one for one in recall_set.questions("other_languages") if one.document == ending]
    assert recall_set.measure(asked, lambda one: index.search(one.text)).recall == 1


# --- with real weights --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched() -> Iterator[tuple[DocumentIndex, dict[str, tuple[float, ...]]]]:
    """The index with vectors, and the vectors of the questions."""
    embedder = load(minilm.model("Q8_0"), embeddings=True).new_embedder()

    @cache
    def vectors(texts: tuple[str, ...]) -> list[tuple[float, ...]]:
        work = embedder.vectors(embedder.tokens(texts, lambda: None), Pooling.MEAN)
        return finish(work, embedder.scheduler)

    index = indexed()
    while todo := index.without_vectors(MODEL, 32):
        rows = zip((one.id for one in todo), vectors(tuple(one.text for one in todo)), strict=True)
        index.set_vectors(MODEL, rows)
        index.set_parts(MODEL, {one.id: vectors(one.parts) if one.parts else [] for one in todo})
    texts = tuple(one.text for one in recall_set.questions())
    yield index, dict(zip(texts, vectors(texts), strict=True))
    index.close()


@pytest.mark.slow
def test_words_and_meaning_together_are_better_than_each_alone(
    searched: tuple[DocumentIndex, dict[str, tuple[float, ...]]],
) -> None:
    index, vectors = searched
    asked = recall_set.questions()
    words = recall_set.measure(asked, lambda one: index.search(one.text))
    meaning = recall_set.measure(
        asked, lambda one: index.search("", vector=vectors[one.text], model=MODEL)
    )
    both = recall_set.measure(
        asked, lambda one: index.search(one.text, vector=vectors[one.text], model=MODEL)
    )
    assert both.recall >= max(words.recall, meaning.recall)
    assert both.rank >= max(words.rank, meaning.rank)
    assert meaning.recall >= 0.87, meaning
    assert both.recall >= 0.89, both
    assert both.rank >= 0.75, both


# --- the question set itself ----------------------------------------------------------------------


def test_there_are_120_questions_over_30_documents() -> None:
    texts, asked = documents(), questions()
    assert (len(texts), len(asked)) == (30, 120)
    assert {one.document for one in asked} == set(texts)
    assert all(600 <= len(text.split()) <= 1500 for text in texts.values())
    assert all(0 < one.end - one.start <= 300 for one in asked)
    assert len({one.text for one in asked}) == 120


def test_two_in_five_questions_share_no_word_with_their_answer() -> None:
    asked = questions()
    apart = [one for one in asked if not one.shared]
    assert len(apart) / len(asked) >= 0.4


def test_there_are_questions_in_other_languages() -> None:
    assert {one.document for one in questions("other_languages")} == set(
        documents("other_languages")
    )


def test_the_set_stays_small() -> None:
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size <= 250_000


@pytest.mark.parametrize(
    ("one", "other"),
    [("measures", "measured"), ("stopping", "stops"), ("companies", "company"), ("leaks", "leak")],
)
def test_stems_of_forms_of_a_word_are_alike(one: str, other: str) -> None:
    assert stems(one) & stems(other)
