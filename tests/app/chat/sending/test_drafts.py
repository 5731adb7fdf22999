"""Drafts survive sending, quitting, and a store that opens late."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.domain.parts import FilePart, Parts, TextPart, files, without_files_and_images
from app.domain.unsent import Unsent
from app.store.store import Store
from app.store.unsent import unsent_of, unsent_text
from fakes import MODEL
from stage import Stage, until


class _Stop:
    """A change that blocks until the test sets the event."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __call__(self, store: Store) -> None:
        assert self.over.wait(10)


def test_message_is_stored_before_its_draft_is_cleared(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.composer.insert("Why is the sky blue?")
    stage.controller.drafts.keep(None, (TextPart("Why is the sky blue?"),))
    stage.wait_until_idle()
    stage.store_queue.write(stop := _Stop())
    stage.window.composer.submitted.emit((TextPart("Why is the sky blue?"),))
    kept: list[tuple[int, str]] = []

    def note(store: Store) -> None:
        messages = [m for c in store.conversations() for m in store.branch(c.id)]
        kept.append((len(messages), store.draft(None).text))

    writes = stage.store_queue._writes
    for change in [change for change in writes if change.operation is not stop]:
        writes.remove(change)
        writes.extend((change, replace(change, operation=note)))
    stop.over.set()
    stage.wait_until_idle()
    assert kept
    assert all(messages or draft for messages, draft in kept)
    assert kept[-1] == (2, "")


def test_text_typed_before_loading_is_appended_to_the_stored_draft(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.open(stage.store_queue.path)
    store.set_draft(None, Unsent((TextPart("Typed yesterday"),)))
    stage.start()
    until(lambda: "store" in stage.state.notices)
    stage.window.composer.insert("Typed today")
    stage.controller.drafts.keep(None, (TextPart("Typed today"),))
    store.close()
    until(lambda: stage.window.composer.text() == "Typed yesterday\nTyped today")
    stage.wait_until_idle()
    found: list[str] = []
    stage.store_queue.read(lambda store: store.draft(None).text, found.append)
    until(lambda: bool(found))
    assert found == ["Typed yesterday\nTyped today"]


def test_draft_typed_just_before_quitting_is_saved(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.composer.insert("Half a thou")
    stage.window.close()
    assert stage.state.drafts[None] == (TextPart("Half a thou"),)


def test_cleared_draft_stays_cleared_on_another_branch(
    stage: Stage,
) -> None:
    stage.ready(MODEL)
    stage.controller.send("Count")
    stage.engine.write("one")
    stage.engine.finish()
    stage.wait_until_idle()
    first = stage.state.messages[-1].id
    stage.controller.regenerate(first)
    stage.engine.write("two")
    stage.engine.finish()
    stage.wait_until_idle()
    composer = stage.window.composer
    composer.insert("Half a thought")
    shown = stage.state.current
    until(lambda: stage.state.drafts.get(shown) == (TextPart("Half a thought"),))
    composer.editor.clear()
    stage.controller.navigation.show_sibling(stage.state.messages[-1].id, -1)
    until(lambda: stage.state.messages[-1].text == "one")
    assert composer.text() == ""
    assert stage.state.drafts[shown] == ()
    stage.wait_until_idle()
    kept: list[str] = []
    stage.store_queue.read(lambda store: store.draft(shown).text, kept.append)
    until(lambda: bool(kept))
    assert kept == [""]


def test_attachments_of_a_draft_stay_apart(tmp_path: Path, qtbot: QtBot) -> None:
    parts = (
        FilePart("", "  a\r\n"),
        FilePart("notes.txt", "b\n\nc"),
        TextPart("\u00a0 typed \u2060\n"),
    )
    first = Stage(tmp_path)
    first.ready(MODEL)
    first.window.composer.set_text(without_files_and_images(parts))
    first.controller.attachments.put_back(parts)
    first.window.close()
    first.close()
    second = Stage(tmp_path)
    try:
        second.ready(MODEL)
        assert second.window.composer.parts() == without_files_and_images(parts)
        assert second.controller.attachments.parts(None) == files(parts)
    finally:
        second.close()


@given(
    st.lists(
        st.lists(st.builds(TextPart, st.text(min_size=1)) | st.builds(FilePart, st.text(), st.text()),
                 max_size=3).map(tuple),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_unsent_parts_are_stored_as_they_are(messages: list[Parts]) -> None:
    unsent = Unsent(messages[0], tuple(messages[1:]))
    assert unsent_of(unsent_text(unsent)) == unsent


@pytest.mark.parametrize(
    "text", ['{"unsent": ', '{"unsent": [[["text", "", "a"]]]', '{"unsent": 3}', "{}"]
)
def test_a_damaged_draft_is_shown_as_text(text: str) -> None:
    assert unsent_of(text) == Unsent((TextPart(text),))
    assert unsent_of(unsent_text(Unsent((TextPart(text),)))) == Unsent((TextPart(text),))
