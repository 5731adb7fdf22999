"""Documents of passages of collections: as they were searched, changed since, or gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.documents import PageUnit, Passage
from app.domain.parts import FilePart
from app.domain.passages import passages_part
from collection_table import FILTER, Table
from fakes import MODEL
from stage import until

TEXT = f"The pump is blue.\f{FILTER}"


class Shown:
    """What was opened last."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.found: tuple[FilePart, range, str] | None = None
        table.stage.controller.passage_documents.opened.connect(self._take)

    def _take(self, passage: Passage, part: FilePart, place: range, note: str) -> None:
        del passage
        self.found = part, place, note

    def open(self, passage: Passage) -> tuple[str, str, str]:
        """Open the document of a passage: its text, the marked characters, and what is said."""
        self.found = None
        self.table.stage.controller.passage_documents.open(passage)
        until(lambda: self.found is not None)
        assert self.found is not None
        part, place, note = self.found
        return part.text, part.text[place.start : place.stop], note


@pytest.fixture
def table(tmp_path: Path, qapp: object) -> Iterator[Table]:
    made = Table(tmp_path)
    made.write("manual.txt", TEXT)
    made.stage.ready(MODEL)
    made.add()
    made.use()
    made.ask("When do I clean the filter?")
    made.extractor.names.clear()
    yield made
    made.stage.close()


@pytest.fixture
def shown(table: Table) -> Shown:
    return Shown(table)


def cited(table: Table) -> Passage:
    return passages_part(table.stage.state.messages[-2].parts).passages[0]  # type: ignore[union-attr]


def forget(table: Table, passage: Passage) -> None:
    """Remove the document of a passage from the index, after the step in progress."""
    indexing = table.stage.controller.indexing
    indexing.forget([passage.sha256])
    until(lambda: not (indexing._jobs or indexing._working))


def test_the_document_is_shown_as_it_was_searched(table: Table, shown: Shown) -> None:
    text, marked, note = shown.open(cited(table))
    assert text.split() == TEXT.split()
    assert (marked, note) == (FILTER, "")
    assert table.extractor.names == []  # it is in the index
    part = shown.found[0]  # type: ignore[index]
    assert (part.unit, [page.label for page in part.pages]) == (PageUnit.PAGE, ["1", "2"])
    assert part.path == str(table.folder / "manual.txt")


def test_a_document_that_is_not_in_the_index_is_read(table: Table, shown: Shown) -> None:
    passage = cited(table)
    forget(table, passage)
    assert shown.open(passage) == ("The pump is blue.\n\n" + FILTER, FILTER, "")
    assert table.extractor.names == ["manual.txt"]


def test_a_changed_file_is_shown_as_it_is_now(table: Table, shown: Shown) -> None:
    table.write("manual.txt", f"Read this first.\f\fThe pump is red.\f{FILTER}")
    text, marked, note = shown.open(cited(table))
    assert text.startswith("Read this first.")
    assert marked == FILTER
    assert note == "manual.txt has changed since. This is its text as it is now."


@pytest.mark.parametrize("indexed", [True, False])
def test_a_passage_that_is_no_longer_in_its_file(table: Table, shown: Shown, indexed: bool) -> None:
    passage = cited(table)
    table.write("manual.txt", "All is new.")
    table.settle()  # the old text stays in the index, as a chat cites it
    if not indexed:
        forget(table, passage)
    text, marked, note = shown.open(passage)
    assert text.split() == (TEXT if indexed else FILTER).split()
    assert marked == FILTER
    assert note == (
        "manual.txt has changed since, and the passage is no longer in it."
        " This is the text that was found."
    )


def test_a_file_that_is_gone_is_shown_as_it_was(table: Table, shown: Shown) -> None:
    (table.folder / "manual.txt").unlink()
    table.write("other.txt", "Something else.")
    table.settle()
    text, marked, note = shown.open(cited(table))
    assert text.split() == TEXT.split()
    assert marked == FILTER
    assert note == "manual.txt is no longer there. This is the text that was found."


def test_a_file_that_cannot_be_read_any_more_is_said(table: Table, shown: Shown) -> None:
    table.write("manual.txt", "protected")
    marked, note = shown.open(cited(table))[1:]
    assert marked == FILTER
    assert note.startswith("manual.txt is protected with a password.")


def test_only_the_last_one_is_read(table: Table, shown: Shown) -> None:
    passage = cited(table)
    table.write("manual.txt", "This is new.")
    table.extractor.free.clear()
    documents = table.stage.controller.passage_documents
    documents.open(passage)
    until(lambda: "manual.txt" in table.extractor.names)
    table.write("other.txt", FILTER)
    documents.open(replace(passage, path=str(table.folder / "other.txt")))
    table.extractor.free.set()
    until(lambda: shown.found is not None)
    assert shown.found[0].name == "other.txt"  # type: ignore[index]


def test_a_click_shows_the_document_in_the_window(table: Table) -> None:
    attaching = table.stage.window.attaching
    passage = cited(table)
    table.stage.window.chat.transcript.passage_opened.emit(passage)
    card = attaching.viewer.card
    assert card is not None
    assert card.part.text == passage.text  # at once
    until(lambda: "pump" in card.part.text)
    assert card.warning.isHidden()
    (table.folder / "manual.txt").unlink()
    table.stage.window.chat.transcript.passage_opened.emit(passage)
    until(lambda: not card.warning.isHidden())
    assert card.warning.text().startswith("manual.txt is no longer there.")
    table.stage.window.chat.transcript.passage_opened.emit(passage)
    attaching.viewer.popover.close_card()  # type: ignore[union-attr]
    table.stage.wait_until_idle()
    assert attaching.viewer.popover.isHidden()  # type: ignore[union-attr]
