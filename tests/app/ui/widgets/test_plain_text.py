"""Plain text field: gives back what was put into it, folds long lines, and keeps compositions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent, QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui.widgets.plain_text import LINE_LIMIT, PlainTextField, for_qt

# What other programs alter: spaces of all kinds, joiners, marks, line separators, noncharacters.
STRANGE = "a \u00a0\u2060\u200b\u200d\u00ad\ufeff\u3000\u2028\t\n\x00\x0b\x0c\x85\ufffc\ufdd5\U0001f600\u0301"


@pytest.fixture
def field(qtbot: QtBot) -> Iterator[PlainTextField]:
    made = PlainTextField()
    qtbot.addWidget(made)
    made.resize(400, 200)
    made.show()
    return made


def paste(field: PlainTextField, text: str) -> None:
    data = QMimeData()
    data.setText(for_qt(text))
    field.insertFromMimeData(data)


def longest_block(field: PlainTextField) -> int:
    return max(map(len, field.document().toRawText().split("\u2029")))


@given(st.text(STRANGE, min_size=1, max_size=30))
@settings(deadline=None, max_examples=200)
def test_text_is_given_back_unaltered(qapp: QApplication, text: str) -> None:
    field = PlainTextField()
    field.set_text(text)
    assert field.text() == text
    paste(field, text)
    assert field.text() == text + text
    field.selectAll()
    field.cut()
    assert field.text() == ""
    field.paste()
    assert field.text() == text + text


@pytest.mark.parametrize("end", ["\r\n", "\r", "\u2029"])
def test_line_ends_become_one_kind(field: PlainTextField, end: str) -> None:
    paste(field, f"a{end}b{end}")
    assert field.text() == "a\nb\n"


def test_shift_enter_is_a_line_break(field: PlainTextField, qtbot: QtBot) -> None:
    qtbot.keyClicks(field, "a")
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(field, "b")
    assert field.text() == "a\nb"


@pytest.mark.parametrize(
    "text",
    [
        "x" * (3 * LINE_LIMIT + 1),
        "word " * LINE_LIMIT,
        "\u2060\n".join(["x" * LINE_LIMIT] * 3),  # what once marked a fold
        "short\n" + "y" * (LINE_LIMIT + 1) + "\n\nshort",
        ("z" * LINE_LIMIT + "\r\n").replace("\r", "") * 2,
    ],
)
def test_long_lines_are_folded_and_given_back(field: PlainTextField, text: str) -> None:
    field.set_text(text)
    assert field.text() == text
    assert longest_block(field) <= LINE_LIMIT
    field.selectAll()
    field.copy()
    assert QApplication.clipboard().text() == text
    assert field.block_of_line(text.count("\n") + 1).isValid()
    assert not field.block_of_line(text.count("\n") + 2).isValid()


def test_line_breaks_typed_at_a_fold_are_in_the_text(field: PlainTextField, qtbot: QtBot) -> None:
    text = "x" * LINE_LIMIT + "y" * 3
    field.set_text(text)
    field.moveCursor(QTextCursor.MoveOperation.End)
    for _ in range(3):
        qtbot.keyClick(field, Qt.Key.Key_Backspace)  # the block after the fold is empty now
    qtbot.keyClick(field, Qt.Key.Key_Return)
    qtbot.keyClicks(field, "z")
    assert field.text() == "x" * LINE_LIMIT + "\nz"
    for _ in range(12):
        field.undo()
    assert field.text() == text
    for _ in range(12):
        field.redo()
    assert field.text() == "x" * LINE_LIMIT + "\nz"


def test_a_removed_fold_leaves_nothing_in_the_text(field: PlainTextField, qtbot: QtBot) -> None:
    field.set_text("x" * LINE_LIMIT + "y")
    cursor = field.textCursor()
    cursor.setPosition(LINE_LIMIT + 1)
    field.setTextCursor(cursor)
    qtbot.keyClick(field, Qt.Key.Key_Backspace)
    assert field.text() == "x" * LINE_LIMIT + "y"
    field.undo()
    assert field.text() == "x" * LINE_LIMIT + "y"


def compose(field: PlainTextField, preedit: str, commit: str = "") -> None:
    event = QInputMethodEvent(preedit, [])
    event.setCommitString(commit)
    QApplication.sendEvent(field, event)


def test_composed_text_is_kept_when_the_field_loses_the_focus(
    field: PlainTextField, qtbot: QtBot
) -> None:
    field.setFocus()
    qtbot.keyClicks(field, "a")
    compose(field, "にほ")
    assert (field.text(), field.composing) == ("a", True)
    field.clearFocus()
    assert (field.text(), field.composing) == ("aにほ", False)


def test_text_inserted_before_leaves_a_composition_alone(field: PlainTextField) -> None:
    QTest.keyClicks(field, "ab")
    field.moveCursor(QTextCursor.MoveOperation.Left)
    compose(field, "ka")
    field.insert_before("earlier\n")
    assert field.composing
    compose(field, "", "か")
    assert field.text() == "earlier\naかb"


@pytest.mark.parametrize(
    ("text", "to_right", "mirrored"),
    [
        ("What is this?\nما هذا؟", False, False),
        ("ما هذا؟\nWhat is this?", True, True),
        ("12", False, True),
        ("", False, True),
    ],
)
def test_lines_begin_at_the_side_of_their_language(
    field: PlainTextField, text: str, *, to_right: bool, mirrored: bool
) -> None:
    for direction, expected in (
        (Qt.LayoutDirection.LeftToRight, to_right),
        (Qt.LayoutDirection.RightToLeft, mirrored),
    ):
        field.setLayoutDirection(direction)
        field.set_text(text)
        assert (field.cursorRect().x() > field.width() / 2) == expected, direction
    assert not field.document().isUndoAvailable()


def test_code_begins_at_the_left_in_a_window_from_right_to_left(field: PlainTextField) -> None:
    field.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    field.set_text('{\n "a": 1\n}')
    option = field.document().defaultTextOption()
    assert option.alignment() == Qt.AlignmentFlag.AlignRight
    field.set_code(True)
    option = field.document().defaultTextOption()
    assert option.alignment() == Qt.AlignmentFlag.AlignLeft
    assert option.textDirection() is Qt.LayoutDirection.LeftToRight
    field.set_text("مرحبا")
    assert field.document().defaultTextOption().alignment() == Qt.AlignmentFlag.AlignLeft
    field.set_code(False)
    option = field.document().defaultTextOption()
    assert option.alignment() == Qt.AlignmentFlag.AlignRight
    assert option.textDirection() is Qt.LayoutDirection.LayoutDirectionAuto
