"""The index of documents: what is found, added anew, removed, and what survives faults."""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crash_index
from app.documents import ranking
from app.documents.index import BATCH, DocumentIndex
from app.domain.documents import (
    Document,
    DocumentKind,
    FoundPassage,
    Page,
    PageStart,
    PageUnit,
)

LEASE = "The notice period of this lease is three months to the end of a quarter."
FRUIT = 'Apples and pears are fruit. The "force majeure" clause does not cover them.'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "documents.sqlite"


@pytest.fixture
def index(path: Path):
    made = DocumentIndex(path)
    yield made
    made.close()


def long_text(paragraphs: int, name: str = "word", seed: int = 1) -> str:
    chance = random.Random(seed)
    return "\n\n".join(
        " ".join(f"{name}{chance.randrange(500)}" for _ in range(120)) + f" unique{at}."
        for at in range(paragraphs)
    )


def number(index: DocumentIndex, statement: str) -> int:
    """A number in the file of an index."""
    return index._guarded(lambda base: base.execute(statement).fetchone()[0], -1)


def keys_of(found: list[FoundPassage]) -> list[str]:
    return [each.key for each in found]


def erase(index: DocumentIndex) -> None:
    while index.tidy():
        pass


def test_a_passage_is_found_with_its_place(index: DocumentIndex) -> None:
    document = Document(
        DocumentKind.PDF,
        (Page("i", "Nothing here."), Page("1", f"# Terms\n\n{LEASE}")),
        PageUnit.PAGE,
    )
    index.add("lease", document.text, document.starts)
    index.add("fruit", FRUIT)
    (found,) = index.search("What is the notice period?")
    assert (found.key, found.page_index, found.page) == ("lease", 1, "1")
    assert document.text[found.start : found.end] == found.text == f"# Terms\n\n{LEASE}"
    assert 0 < found.score <= 1


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Die Kündigung ist möglich.", "KÜNDIGUNG"),
        ("Die Kündigung ist möglich.", "kundigung"),
        ("Die Kündigungsfrist beträgt drei Monate.", "kündigung"),
        ("The contracts were signed.", "signing a contract"),
        ("東京都は日本の首都です。", "首都"),
        ("東京都は日本の首都です。", "日本の首都はどこですか"),
        ("서울은 대한민국의 수도이다", "대한민국"),
        ("ภาษาไทยเป็นภาษาที่สวยงาม", "สวยงาม"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("שָׁלוֹם עולם", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("def readFile(name): pass", "read file"),
        ("def read_file(name): pass", "read_file"),
        ("Kubernetes is installed.", "kubernets"),
        ("Plant a tree \U0001f333 here", "\U0001f333"),
        ("Cafe\u0301 au lait", "café"),
        ("L’été 2024", "l'été"),
    ],
)
def test_words_are_found_as_they_are_written(index: DocumentIndex, text: str, asked: str) -> None:
    index.add("other", FRUIT)
    index.add("wanted", text, kind=DocumentKind.TEXT)
    assert keys_of(index.search(asked)) == ["wanted"]


def test_a_quoted_phrase_is_required_unless_nobody_wrote_it(index: DocumentIndex) -> None:
    index.add("fruit", FRUIT)
    index.add("apart", "The force of a majeure event.")
    assert keys_of(index.search('what does "force majeure" mean')) == ["fruit"]
    assert set(keys_of(index.search('"majeure force"'))) == {"fruit", "apart"}


def test_rare_words_count_more_than_frequent_ones(index: DocumentIndex) -> None:
    for number in range(30):
        index.add(f"report {number}", f"The annual report of the company, number {number}.")
    index.add("rare", "The dividend of the company.")
    assert index.search("dividend in the annual report")[0].key == "rare"


def test_of_a_word_that_is_everywhere_the_newest_passages_are_searched(
    index: DocumentIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "_MOST_POSTINGS", 8)
    monkeypatch.setattr(ranking, "_MOST_RANKED", 4)
    for number in range(12):
        index.add(str(number), f"The lease of house {number}." + " It is long." * (11 - number))
    assert keys_of(index.search("lease")) == ["11", "10", "9", "8"]
    assert keys_of(index.search("lease", ["0", "1", "2", "3", "9"])) == ["9", "3", "2", "1"]
    assert keys_of(index.search("lease three house 7")) == ["7"]  # the rare word decides
    index.remove(["11", "9"])
    assert keys_of(index.search("lease")) == ["10", "8", "7", "6"]
    for number in range(8):
        index.remove([str(number)])
    assert keys_of(index.search("lease")) == ["10", "8"]


def test_only_documents_with_the_keys_are_searched(index: DocumentIndex) -> None:
    for number in range(20):
        index.add(str(number), f"Document {number} has a notice period.")
    assert set(keys_of(index.search("notice period", ["3", "4", "9"]))) == {"3", "4", "9"}
    assert keys_of(index.search("notice period", ["7"])) == ["7"]
    assert index.search("notice period", []) == []
    assert index.search("notice period", ["unknown"]) == []


def test_the_headings_above_are_searched_too(index: DocumentIndex) -> None:
    index.add("book", "# Whales\n\n" + long_text(20), kind=DocumentKind.MARKDOWN)
    assert len(index.search("whales", limit=3)) == 3


def test_overlapping_passages_are_merged_and_copies_left_out(index: DocumentIndex) -> None:
    text = " ".join(f"Sentence number {at} says that whales sing." for at in range(60))
    index.add("one", text)
    index.add("copy", text)
    found = index.search("whales sing", limit=8)
    assert len({each.text for each in found}) == len(found)
    assert all(text[each.start : each.end] == each.text for each in found)
    for each in found:
        for other in found:
            apart = each.end <= other.start or other.end <= each.start
            assert (
                each is other
                or each.key != other.key
                or apart
                or (max(each.end, other.end) - min(each.start, other.start) > 2_400)
            )


def test_an_unchanged_document_is_not_written_again(index: DocumentIndex) -> None:
    text = long_text(100)
    assert list(index.adding("a", text))
    assert list(index.adding("a", text)) == []


def test_a_document_with_another_text_replaces_the_old_one(index: DocumentIndex) -> None:
    index.add("a", LEASE)
    index.add("a", FRUIT)
    assert index.search("notice period") == []
    assert keys_of(index.search("apples")) == ["a"]
    assert number(index, "SELECT count(*) FROM document WHERE key IS NOT NULL") == 1


def test_a_removed_document_is_not_found_and_leaves_no_text_in_the_file(path: Path) -> None:
    index = DocumentIndex(path)
    secret = "xylophone"
    index.add("kept", long_text(100))
    index.add("gone", f"A {secret} is " + long_text(100, secret))
    index.set_vectors("m", [(each.id, [0.5, 1.0]) for each in index.without_vectors("m", 10_000)])
    before = number(index, "PRAGMA page_count")
    assert index.search(secret)
    index.remove(["gone", "unknown"])
    assert index.search(secret) == []
    assert keys_of(index.search("x", vector=[0.5, 1.0], model="m", limit=1)) == ["kept"]
    assert index.count_without_vectors("m") == 0
    erase(index)
    assert number(index, "PRAGMA page_count") < before * 0.7
    content = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert secret.encode() not in content
    assert secret[:7].encode() not in content
    assert b"word1" in content
    assert keys_of(index.search("word1"))[0] == "kept"
    index.close()


def test_a_document_that_was_begun_is_continued(path: Path) -> None:
    text = long_text(300)
    first = DocumentIndex(path)
    steps = first.adding("a", text)
    done = [next(steps) for _ in range(3)]
    first.close()
    second = DocumentIndex(path)
    assert second.keys() == set()
    more = list(second.adding("a", text))
    assert more[0] > done[-1]
    whole = DocumentIndex(None)
    assert len(more) + 3 == len(list(whole.adding("a", text)))
    for question in ("unique0", "unique150", "unique299"):
        assert [e.text for e in second.search(question)] == [e.text for e in whole.search(question)]
    second.close()


def test_a_document_that_was_begun_before_another_is_begun_again(index: DocumentIndex) -> None:
    text = long_text(300)
    steps = index.adding("a", text)
    next(steps)
    index.add("b", FRUIT)
    assert list(steps) == []
    assert index.keys() == {"b"}
    index.add("a", text)
    assert index.keys() == {"a", "b"}
    assert keys_of(index.search("unique0")) == ["a"]
    assert index.search("unique299", ["a"])[0].text.endswith("unique299.")


def test_a_document_removed_while_it_is_written_is_gone(index: DocumentIndex) -> None:
    steps = index.adding("a", long_text(300))
    next(steps)
    index.remove(["a"])
    assert list(steps) == []
    erase(index)
    assert not number(index, "SELECT count(*) FROM document")
    assert not number(index, "SELECT count(*) FROM passage")


def test_search_finds_what_is_written_so_far(index: DocumentIndex) -> None:
    index.add("b", FRUIT)
    steps = index.adding("a", long_text(300))
    next(steps)
    assert keys_of(index.search("unique0")) == ["a"]
    assert index.search("unique299") == []
    for _ in steps:
        assert keys_of(index.search("apples")) == ["b"]
    assert keys_of(index.search("unique299")) == ["a"]


def test_meaning_and_words_both_count(index: DocumentIndex) -> None:
    index.add("words", "The notice period is three months.")
    index.add("meaning", "One must tell the landlord a quarter of a year before.")
    index.add("neither", FRUIT)
    near = {"words": [0.1, 1.0], "meaning": [1.0, 0.1], "neither": [-1.0, -1.0]}
    for each in index.without_vectors("m"):
        key = index.search(each.text, limit=1)[0].key
        index.set_vectors("m", [(each.id, near[key])])
    assert index.without_vectors("m") == []
    found = index.search("notice period", vector=[1.0, 0.0], model="m")
    assert set(keys_of(found[:2])) == {"words", "meaning"}
    assert keys_of(index.search("zzz", vector=[1.0, 0.0], model="m", limit=1)) == ["meaning"]
    assert keys_of(index.search("zzz", ["words"], [1.0, 0.0], "m")) == ["words"]
    assert index.search("zzz", vector=[1.0, 0.0], model="another") == []
    assert index.search("zzz", vector=[1.0, 0.0, 0.0], model="m") == []


def test_vectors_are_kept_by_model_in_the_file(path: Path) -> None:
    index = DocumentIndex(path)
    index.add("a", long_text(100))
    passages = index.count_without_vectors("none")
    todo = index.without_vectors("m", 10)
    assert [len(todo), todo[0].id] == [10, 1]
    index.set_vectors("m", [(each.id, [1.0, each.id]) for each in todo])
    assert index.without_vectors("m", 1)[0].id == 11
    assert index.count_without_vectors("m") == passages - 10
    assert index.count_without_vectors("n") == passages
    index.close()
    again = DocumentIndex(path)
    (found,) = again.search("?", vector=[1.0, 5.0], model="m", limit=1)
    assert found.text == todo[4].text
    again.close()


def test_a_passage_is_found_by_its_best_part(path: Path) -> None:
    index = DocumentIndex(path)
    texts = {"a": "Apples are red. " * 40, "b": "Pears are green. " * 40}
    for key, text in texts.items():
        index.add(key, text)
    first, second = index.without_vectors("m", 2)
    assert "".join(first.parts).replace(" ", "") == first.text.replace(" ", "")
    whole = [(first.id, (0.8, 0.6, 0.0)), (second.id, (0.6, 0.8, 0.0))]
    away, near = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)
    index.set_vectors("m", whole)
    index.set_parts("m", {first.id: [away, away], second.id: [away, near]})
    for _ in range(2):
        found = index.search("", vector=(1.0, 0.0, 0.0), model="m")
        assert [each.key for each in found] == ["b", "a"]
        index.close()
        index = DocumentIndex(path)
    index.set_vectors("m", whole)
    assert [each.key for each in index.search("", vector=near, model="m")] == ["a", "b"]


def test_vectors_of_parts_may_come_later(index: DocumentIndex) -> None:
    index.add("a", long_text(3))
    index.add("b", LEASE)
    away, near = [0.0, 1.0], [1.0, 0.0]
    todo = index.without_vectors("m")
    index.set_vectors("m", [(each.id, [1.0, 1.0]) for each in todo])
    before = index.search("?", vector=near, model="m")
    unrefined = index.without_parts("m")
    assert unrefined == todo
    assert unrefined[-1].parts == ()
    index.set_parts("m", {todo[0].id: [away, near], todo[-1].id: [], 99: [near]})
    assert index.without_parts("m") == todo[1:-1]
    assert index.without_vectors("m") == []
    after = index.search("?", vector=near, model="m")
    assert (after[0].start, after[0].key) == (0, "a")
    assert after[0].score > max(each.score for each in before)
    index.set_vectors("m", [(todo[0].id, [1.0, 1.0])])  # read again, as a whole
    assert index.without_parts("m") == todo[:-1]


def test_vectors_that_are_no_numbers_are_near_to_nothing(index: DocumentIndex) -> None:
    index.add("a", LEASE)
    index.set_vectors("m", [(1, [float("nan"), 1.0]), (99, [1.0, 1.0])])
    assert index.without_vectors("m") == []
    (found,) = index.search("zzz", vector=[1.0, 1.0], model="m")
    assert found.score == 0
    assert index.search("zzz", vector=[float("inf"), 1.0], model="m") == []


ODD = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from('"*^():{}+-<>\\/ \n\0\u0301\ufe0f\U0001f333\u202eא東ก'),
        st.characters(categories=["Cs"]),
    ),
    max_size=60,
)
WORDS = st.sampled_from(["AND", "OR", "NOT", "NEAR(a b, 5)", "above:", "body : x", "rank", "tree"])


@settings(deadline=None)
@given(st.lists(st.one_of(ODD, WORDS), max_size=8).map(" ".join))
def test_nothing_of_a_question_is_syntax(asked: str) -> None:
    index = odd_index()
    index.search(asked)
    index.search(f'"{asked}"', ["tree"])
    assert index.lost == 0


def odd_index(made: list[DocumentIndex] = []) -> DocumentIndex:  # noqa: B006 (made once)
    if not made:
        made.append(DocumentIndex(None))
        made[0].add("tree", "A tree AND a NEAR miss, or NOT.")
    return made[0]


@settings(deadline=None)
@given(st.lists(ODD, max_size=10).map("\n".join))
def test_every_text_can_be_indexed_found_and_removed(text: str) -> None:
    index = odd_index()
    index.add("odd", text)
    for each in index.search(text, ["odd"]):
        assert len(each.text) == each.end - each.start
    index.remove(["odd"])
    erase(index)
    assert index.lost == 0
    assert index.keys() == {"tree"}


def test_one_very_long_line_is_indexed(index: DocumentIndex) -> None:
    text = "needle " + "x" * 1_000_000 + " " + "word " * 20_000 + "pin"
    index.add("long", text)
    assert index.search("needle")[0].start == 0
    assert index.search("pin")[0].text.endswith("pin")


def damage_header(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : len(content) - 4096] = bytes(len(content) - 8192)
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])


def change(statement: str):
    def work(path: Path) -> None:
        with closing(sqlite3.connect(path)) as base:
            base.execute(statement)
            base.commit()

    return work


@pytest.mark.parametrize(
    "damage",
    [
        damage_header,
        damage_middle,
        truncate,
        change("UPDATE state SET value = '1 99'"),
        change("PRAGMA application_id = 7"),
        change("DROP TABLE passage"),
        change("DELETE FROM words_data WHERE id > 10"),
    ],
)
def test_a_file_that_is_damaged_or_of_another_version_is_made_anew(
    path: Path, damage, caplog: pytest.LogCaptureFixture
) -> None:
    first = DocumentIndex(path)
    first.add("a", long_text(50))
    first.add("b", LEASE)
    first.close()
    damage(path)
    index = DocumentIndex(path)
    index.search("notice period unique1", vector=[1.0], model="m")
    index.without_vectors("m")
    index.add("c", FRUIT)
    index.add("b", LEASE)
    index.remove(["a"])
    erase(index)
    assert index.lost == 1
    assert "made anew" in caplog.text
    index.add("a", long_text(50))
    index.add("b", LEASE)
    index.add("c", FRUIT)
    assert keys_of(index.search("apples")) == ["c"]
    assert keys_of(index.search("notice period")) == ["b"]
    index.close()
    again = DocumentIndex(path)
    assert again.keys() == {"a", "b", "c"}
    assert again.lost == 0
    again.close()


def test_a_file_that_another_program_has_open_stays_and_the_index_is_in_memory(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = DocumentIndex(path)
    first.add("a", LEASE)
    second = DocumentIndex(path)
    second.add("b", FRUIT)
    assert second._path is None
    assert "in memory only" in caplog.text
    assert second.lost == 1
    assert keys_of(second.search("apples")) == ["b"]
    second.close()
    first.close()
    third = DocumentIndex(path)
    assert third.keys() == {"a"}
    third.close()


def test_a_folder_that_cannot_be_written_makes_the_index_one_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    index = DocumentIndex(blocked / "documents.sqlite")
    index.add("a", LEASE)
    assert index._path is None
    assert "in memory only" in caplog.text
    assert keys_of(index.search("notice period")) == ["a"]
    index.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_file_is_readable_by_its_owner_only(index: DocumentIndex, path: Path) -> None:
    index.add("a", LEASE)
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}


def test_an_index_copied_in_the_middle_of_a_document_is_consistent(path: Path) -> None:
    """As after a loss of power: every transaction is whole."""
    index = DocumentIndex(path)
    for number, _ in enumerate(index.adding("a", long_text(200))):
        copy = path.parent / f"copy{number}" / path.name
        copy.parent.mkdir()
        for each in path.parent.glob(path.name + "*"):
            shutil.copy(each, copy.parent / each.name)
        with closing(sqlite3.connect(copy)) as base:
            base.execute("INSERT INTO words(words) VALUES ('integrity-check')")
            assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            count = base.execute("SELECT count(*) FROM passage").fetchone()[0]
            first, last = base.execute("SELECT first, last FROM document").fetchone()
            assert last - first + 1 == count
            assert count <= BATCH * (number + 1)
    index.close()


def test_a_killed_process_loses_no_document_that_was_complete(tmp_path: Path) -> None:
    for kill in crash_index.rounds(tmp_path, kills=2, seed=7):
        assert kill.kept, kill


@pytest.mark.parametrize("kind", [DocumentKind.TEXT, DocumentKind.MARKDOWN, DocumentKind.TABLE])
def test_the_text_of_a_document_is_had_from_its_passages(kind: DocumentKind) -> None:
    rows = "".join(f"| {n} | value {n} of a table |\n" for n in range(400))
    long = "One sentence of many. " * 900
    text = f"\n\n# Head\n\nFirst.\n\n\n{long}\n\n## Table\n\n| a | b |\n| - | - |\n{rows}\nEnd.\n"
    starts = (PageStart("i", 0), PageStart("ii", text.index("First.")))
    index = DocumentIndex(None)
    index.add("key", text, starts, kind)
    found = index.text("key")
    assert found is not None
    made, pages = found
    assert made.split() == text.split()
    for word in ("First.", "value 399", "End."):
        assert made.index(word) == text.index(word)
    assert [page.label for page in pages][-1] == "ii"
    assert index.text("other") is None
    index.remove(["key"])
    assert index.text("key") is None
