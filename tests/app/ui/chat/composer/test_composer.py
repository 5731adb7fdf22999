"""Composer: sending, Stop, growing with the text, pasting, and drafts that are saved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.domain.parts import TextPart, prompt_text
from app.ui.chat.composer.composer import Composer


@pytest.fixture
def composer(qtbot: QtBot) -> Iterator[Composer]:
    made = Composer()
    made.resize(600, 60)
    qtbot.addWidget(made)
    made.show()
    return made


def sent(composer: Composer) -> list[str]:
    texts: list[str] = []
    composer.submitted.connect(lambda parts: texts.append(prompt_text(parts)))
    return texts


def test_enter_sends(qtbot: QtBot, composer: Composer) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.editor, "Hello")
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    assert texts == ["Hello"]


def test_keypad_enter_sends(qtbot: QtBot, composer: Composer) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.editor, "Hello")
    qtbot.keyClick(composer.editor, Qt.Key.Key_Enter, Qt.KeyboardModifier.KeypadModifier)
    assert texts == ["Hello"]


def test_shift_enter_inserts_a_line_break(qtbot: QtBot, composer: Composer) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.editor, "a")
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(composer.editor, "b")
    assert composer.text() == "a\nb"
    assert texts == []


def test_blank_text_is_not_sent(qtbot: QtBot, composer: Composer) -> None:
    texts = sent(composer)
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    qtbot.keyClicks(composer.editor, "   ")
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    assert texts == []


def test_enter_does_not_send_while_an_input_method_composes(
    qtbot: QtBot, composer: Composer
) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.editor, "a")
    QApplication.sendEvent(composer.editor, QInputMethodEvent("にほん", []))
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    assert texts == []
    commit = QInputMethodEvent("", [])
    commit.setCommitString("日本")
    QApplication.sendEvent(composer.editor, commit)
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    assert texts == ["a日本"]


def test_enter_submits_during_an_answer_too(qtbot: QtBot, composer: Composer) -> None:
    texts = sent(composer)
    composer.set_busy(True)
    qtbot.keyClicks(composer.editor, "next question")
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    assert texts == ["next question"]


def test_button_is_stop_during_an_answer(qtbot: QtBot, composer: Composer) -> None:
    composer.set_busy(True)
    with qtbot.waitSignal(composer.stopped, timeout=1000):
        qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert composer.button.accessibleName().startswith("Stop")


def test_button_sends_the_text(qtbot: QtBot, composer: Composer) -> None:
    assert not composer.button.isEnabled()
    texts = sent(composer)
    qtbot.keyClicks(composer.editor, "Hello")
    assert composer.button.isEnabled()
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert texts == ["Hello"]


def test_composer_grows_with_the_text_up_to_its_limit(composer: Composer) -> None:
    composer.set_limit(200)
    low = composer.editor.height()
    composer.set_text("one\ntwo\nthree\nfour")
    middle = composer.editor.height()
    composer.editor.setPlainText("\n".join(["line"] * 100))
    assert low < middle < composer.editor.height() == 200
    composer.set_text("")
    assert composer.editor.height() == low


def test_only_plain_text_is_pasted(composer: Composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold")
    composer.editor.insertFromMimeData(data)
    assert composer.text() == "bold"
    assert composer.editor.textCursor().charFormat().fontWeight() == 400


def test_dropped_files_are_ignored_by_the_composer(composer: Composer) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/models/a.gguf")])
    event = QDragEnterEvent(
        QPoint(5, 5),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    QApplication.sendEvent(composer.editor.viewport(), event)
    assert not event.isAccepted()  # the window handles it


def test_huge_line_is_folded_and_returned_unchanged(composer: Composer) -> None:
    text = "x" * 1_000_000 + "\n" + "word " * 100_000
    data = QMimeData()
    data.setText(text)
    composer.editor.insertFromMimeData(data)
    assert composer.text() == text
    # Qt takes a minute to lay out one line of a million characters.
    longest = max(len(line) for line in composer.editor.toPlainText().split("\n"))
    assert longest <= 4001


def test_up_in_an_empty_field_requests_editing_the_last_message(
    qtbot: QtBot, composer: Composer
) -> None:
    with qtbot.waitSignal(composer.edit_last_requested, timeout=1000):
        qtbot.keyClick(composer.editor, Qt.Key.Key_Up)
    qtbot.keyClicks(composer.editor, "text")
    with qtbot.assertNotEmitted(composer.edit_last_requested):
        qtbot.keyClick(composer.editor, Qt.Key.Key_Up)


def test_edited_comes_soon_after_a_change(qtbot: QtBot, composer: Composer) -> None:
    with qtbot.waitSignal(composer.edited, timeout=2000) as edited:
        qtbot.keyClicks(composer.editor, "half a thought")
    assert edited.args == [(TextPart("half a thought"),)]


def test_edited_comes_while_the_user_types_on(qtbot: QtBot, composer: Composer) -> None:
    seen: list[object] = []
    composer.edited.connect(seen.append)

    def typed() -> bool:
        qtbot.keyClicks(composer.editor, "x")  # no pause is longer than the one before a save
        return bool(seen)

    qtbot.waitUntil(typed, timeout=20000)


def test_set_text_does_not_emit_edited(qtbot: QtBot, composer: Composer) -> None:
    qtbot.keyClicks(composer.editor, "typed")
    with qtbot.assertNotEmitted(composer.edited, wait=600):
        composer.set_text("a draft")
    assert composer.text() == "a draft"
