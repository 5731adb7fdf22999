"""Attached files in the document index: found for a question, and gone with their last chat."""

from __future__ import annotations

import pytest

from app.documents.index import DocumentIndex
from app.domain.documents import DocumentKind, PageStart, PageUnit, Reads
from app.domain.parts import FilePart, TextPart
from app.domain.passages import passages_part
from app.state.attachments import Attachment, AttachmentPhase
from fakes import MODEL
from stage import Stage, until

PAGES = ("The warranty lasts two years.", "Clean the zirconium filter every month.")
TEXT = "\n\n".join(PAGES)


def manual(sha256: str = "a" * 64, text: str = TEXT) -> FilePart:
    starts = (PageStart("1", 0), PageStart("2", len(PAGES[0]) + 2))
    return FilePart(
        "manual.pdf", text, sha256, DocumentKind.PDF, PageUnit.PAGE, starts, Reads.PASSAGES
    )


def ask(stage: Stage, question: str, *files: FilePart) -> tuple[str, ...]:
    """The texts of the passages with which a question is asked."""
    assert stage.controller.send((*files, TextPart(question)))
    asked = stage.state.messages[-2].id
    until(lambda: passages_part(stage.state.message(asked).parts) is not None)  # type: ignore[union-attr]
    stage.wait_until_idle()
    stage.engine.write("So it is [1].")
    stage.engine.finish()
    stage.wait_until_idle()
    part = passages_part(stage.state.message(asked).parts)  # type: ignore[union-attr]
    return tuple(each.text for each in part.passages) if part else ()


def indexed(stage: Stage) -> set[str]:
    """The keys in the index; asked on its worker."""
    found: list[set[str]] = []
    indexing = stage.controller.indexing
    indexing._worker.run(lambda: indexing._index().keys(), found.append)
    until(lambda: bool(found))
    return found[0]


@pytest.fixture
def asked(stage: Stage) -> Stage:
    stage.ready(MODEL)
    assert ask(stage, "When do I clean the filter?", manual()) == (PAGES[1],)
    return stage


def test_a_question_is_answered_with_passages_of_its_file(asked: Stage) -> None:
    assert ask(asked, "How long is the warranty?") == (PAGES[0],)
    assert PAGES[0] in asked.engine.last_generate.turns[-1].text


def test_the_places_are_those_of_the_text_in_the_chat(asked: Stage) -> None:
    asked.controller.navigation.new()
    other = "An introduction that another version of the reader left out.\n\n" + TEXT
    assert ask(asked, "How long is the warranty?", manual(text=other))[0] in other


def test_an_attached_file_is_indexed_before_it_is_sent(stage: Stage) -> None:
    stage.ready(MODEL)
    made = [Attachment(1, "manual.pdf", "", AttachmentPhase.READY, manual())]
    stage.states.attachments.set(None, made)
    until(lambda: indexed(stage) == {"a" * 64})


def test_a_file_leaves_the_index_with_its_last_chat(asked: Stage) -> None:
    chat = asked.state.current
    ask(asked, "And this one about zirconium?", manual("b" * 64, "A zirconium crucible."))
    asked.controller.navigation.new()
    ask(asked, "When do I clean the filter?", manual())
    asked.controller.deletions.delete([chat])
    asked.wait_until_idle()
    asked.controller.indexed_files.forget_unnamed()
    asked.wait_until_idle()
    assert indexed(asked) == {"a" * 64, "b" * 64}  # it can be restored
    asked.controller.deletions.remove([chat])
    asked.wait_until_idle()
    asked.controller.indexed_files.forget_unnamed()
    until(lambda: indexed(asked) == {"a" * 64})


def test_a_file_without_kept_bytes_is_found_by_its_text(asked: Stage) -> None:
    asked.controller.navigation.new()
    assert ask(asked, "Where is the crucible?", manual("", "A crucible is in the box.")) == (
        "A crucible is in the box.",
    )


def test_what_is_indexed_is_there_after_a_start(asked: Stage) -> None:
    asked.controller.indexing.close()
    index = DocumentIndex(asked.folder / "documents.sqlite")
    assert index.keys() == {"a" * 64}
    index.close()
