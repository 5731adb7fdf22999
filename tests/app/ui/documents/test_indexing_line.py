"""Line about indexing: there while it takes long, in a chat that reads passages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.documents import Reads
from app.domain.parts import FilePart
from app.state.attachments import Attachment, AttachmentPhase
from app.state.indexing import IndexingView
from app.ui.documents.indexing_line import indexing_words
from app.ui.widgets import accessibility
from fakes import MODEL
from stage import Stage, until

WORKING = IndexingView(documents=4, documents_done=1, fraction=0.5, passages=100)


def test_it_is_shown_while_documents_are_indexed_for_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda _, words: heard.append(words))
    stage.ready(MODEL)
    line, states = stage.window.chat.indexing_line, stage.states
    part = FilePart("long.pdf", "text", "a", reads=Reads.PASSAGES)
    states.indexing.set_view(WORKING)
    until(lambda: line._is_late)
    assert line.isHidden()  # no passages are read here
    attached = Attachment(9, "long.pdf", phase=AttachmentPhase.READY, part=part)
    states.attachments.set(None, [attached])
    states.indexing.set_view(WORKING)
    assert line.isVisible()
    assert line.text() == "Documents are being indexed: 37 %."
    states.indexing.set_view(replace(WORKING, paused=True))
    assert line.text() == "Indexing goes on when the answer is complete."
    assert len([words for words in heard if "ndex" in words]) == 1  # not at each step
    states.indexing.set_view(IndexingView())
    assert line.isHidden()
    states.indexing.set_view(WORKING)
    assert line.isHidden()  # it has just begun


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (replace(WORKING, documents_done=4, passages_done=25), "The search by meaning is being"
         " prepared: 25 %."),
        (replace(WORKING, fraction=0.0), "Documents are being indexed: 25 %."),
    ],
)  # fmt: skip
def test_words_say_what_is_done(view: IndexingView, words: str) -> None:
    assert indexing_words(view) == words
