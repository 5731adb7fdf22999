"""Accessible interfaces of custom widgets: names, actions, focus, and ownership by Qt."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAccessibleActionInterface, QAccessibleInterface
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.domain.message import AnswerAgain
from app.ui.adapters.strength_slider import StrengthSlider
from app.ui.transcript.view import Transcript
from app.ui.widgets.accessibility import set_note
from stage import flush
from transcript_driver import CODE, clipboard, message, open_transcript, wait_for_layout

ROOT = Path(__file__).parents[3]

# Connecting a slot for the first time replaces the class's meta-object, for which Qt calls the
# factory again; it then deletes both interfaces with the widget.
TWO_INTERFACES = """
from PySide6.QtCore import QTimer
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication
from shiboken6 import delete
from {module} import {name}
application = QApplication([])
widget = {name}()
first = QAccessible.queryAccessibleInterface(widget)
ids = {{QAccessible.uniqueId(first)}}
timer = QTimer()
for slot in (widget.hide, widget.{slot}):
    timer.timeout.connect(slot)
    ids.add(QAccessible.uniqueId(QAccessible.queryAccessibleInterface(widget)))
assert len(ids) > 1, "Qt called the factory only once: nothing is tested"
delete(widget)
"""


@pytest.mark.parametrize(
    ("module", "name", "slot"),
    [
        ("app.ui.transcript.view", "Transcript", "jump_to_end"),
        ("app.ui.library.list", "LibraryList", "_lay_out"),
        ("app.ui.adapters.strength_slider", "StrengthSlider", "set_strength"),
    ],
)
def test_widget_with_two_interfaces_is_deleted_once(module: str, name: str, slot: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", TWO_INTERFACES.format(module=module, name=name, slot=slot)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (child.returncode, child.stderr) == (0, "")


LINKS = (
    "<think>So.</think>See [a **fine** page](https://example.org/a) and [mail](mailto:a@b.c).\n\n"
    "| Where |\n|---|\n| [cell](https://example.org/b) |\n\n"
)


@pytest.fixture
def view(qtbot: QtBot) -> Iterator[Transcript]:
    with open_transcript(qtbot) as transcript:
        yield transcript


def message_interface(view: Transcript, index: int) -> QAccessibleInterface:
    """The accessible interface of a message, found through the list as a screen reader does."""
    return QAccessible.queryAccessibleInterface(view).child(index)


def controls(view: Transcript, index: int) -> dict[str, QAccessibleInterface]:
    found = message_interface(view, index)
    children = [found.child(n) for n in range(found.childCount())]
    assert [found.indexOfChild(child) for child in children] == list(range(len(children)))
    assert all(child.parent() is found for child in children)
    return {child.text(QAccessible.Text.Name): child for child in children}


def press(control: QAccessibleInterface) -> None:
    action = control.actionInterface()
    assert action.actionNames() == [QAccessibleActionInterface.pressAction()]
    action.doAction(QAccessibleActionInterface.pressAction())
    flush()


def test_each_tool_of_a_message_has_a_name_and_an_action(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages(
        [
            message(1, "Ask", is_user=True, sibling=2, siblings=2),
            message(2, "Said"),
            message(3, "Last"),
        ]
    )
    shown_on_hover = [
        *("Copy as Markdown", "Answer again", "Answer again: shorter, longer…"),
        "Edit this answer",
        *("Compare two answers…", "Fork from here: copy the chat up to this message"),
        "Delete message",
    ]
    assert list(controls(view, 1)) == shown_on_hover
    own = controls(view, 0)
    buttons = [
        *("Copy as Markdown", "Edit and send again"),
        *("Fork from here: copy the chat up to this message", "Delete message"),
        *("Previous version", "2/2", "Next version"),
    ]
    assert list(own) == buttons
    roles = {name: item.role() for name, item in own.items()}
    assert roles.pop("2/2") is QAccessible.Role.StaticText
    assert set(roles.values()) == {QAccessible.Role.Button}
    press(own["Copy as Markdown"])
    assert clipboard() == "Ask"
    with qtbot.waitSignal(view.sibling_requested) as request:
        press(own["Previous version"])
    assert request.args == [1, -1]
    assert own["Next version"].actionInterface() is None
    assert own["Next version"].state().disabled
    with qtbot.waitSignal(view.regenerate_requested) as request:
        press(controls(view, 1)["Answer again"])
    assert request.args == [2, AnswerAgain.SAME]
    with qtbot.waitSignal(view.delete_requested) as request:
        press(controls(view, 1)["Delete message"])
    assert request.args == [2]


def test_links_code_and_thoughts_have_a_name_and_an_action(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, LINKS + CODE)])
    wait_for_layout(view, qtbot)
    found = controls(view, 0)
    thoughts, *links, code, _, _, _, _, _, _, _, _ = found
    assert links == ["a fine page", "mail", "cell"]
    for name, address in zip(
        links, ("https://example.org/a", "mailto:a@b.c", "https://example.org/b"), strict=True
    ):
        link = found[name]
        assert link.role() is QAccessible.Role.Link
        assert link.text(QAccessible.Text.Description) == address
        where = view.viewport().mapFromGlobal(link.rect().center())
        assert view.pointer.target(where.toPointF()).link == address
        with qtbot.waitSignal(view.link_activated) as opened:
            press(link)
        assert opened.args == [address]
    assert code == "Copy code"
    press(found["Copy code"])
    assert clipboard().startswith("def f(x):")
    assert found[thoughts].state().collapsed
    press(found[thoughts])
    assert found[thoughts].state().expanded


def test_interfaces_are_deleted_with_their_message(view: Transcript) -> None:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    question, answer = message_interface(view, 0), message_interface(view, 1)
    tool = controls(view, 1)["Answer again"]
    view.set_messages([message(1, "Ask", is_user=True), message(3, "Said otherwise")])
    assert message_interface(view, 0) is question
    assert not isValid(answer)
    assert not isValid(tool)
    view.remove_message(1)
    assert not isValid(question)
    assert message_interface(view, 0).text(QAccessible.Text.Name) == "Answer: Said otherwise"


def test_the_editor_of_a_message_is_in_the_tree(view: Transcript) -> None:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    view.edit_message(1)
    listed = QAccessible.queryAccessibleInterface(view)
    assert listed.childCount() == 3
    editor = listed.child(2)
    assert listed.indexOfChild(editor) == 2
    inside = [editor.child(n) for n in range(editor.childCount())]
    assert any(isinstance(child.object(), QPlainTextEdit) for child in inside)
    assert list(controls(view, 0)) == []  # hidden while the editor is open


def test_focused_control_has_the_focused_state(view: Transcript, qtbot: QtBot) -> None:
    view.set_messages([message(1, "Ask", is_user=True), message(2, "Said")])
    view.keys.enter(backwards=False)
    assert message_interface(view, 1).state().focused
    qtbot.keyClick(view, Qt.Key.Key_Up)
    assert message_interface(view, 0).state().focused
    assert not message_interface(view, 1).state().focused
    qtbot.keyClick(view, Qt.Key.Key_Right)
    assert controls(view, 0)["Edit and send again"].state().focused
    assert not message_interface(view, 0).state().focused


def test_strength_slider_has_only_the_value_interface(qtbot: QtBot) -> None:
    slider = StrengthSlider()
    qtbot.addWidget(slider)
    found = QAccessible.queryAccessibleInterface(slider)
    assert found.valueInterface().currentValue() == 1.0
    assert found.textInterface() is None  # not the invalid pointer that PySide makes of None
    assert found.editableTextInterface() is None


def test_note_begins_the_description_of_a_field_once_and_ends_again(qtbot: QtBot) -> None:
    field = QPlainTextEdit()
    qtbot.addWidget(field)
    field.setAccessibleDescription("What it is for.")
    for shown, expected in (
        (True, "Changed in this chat\nWhat it is for."),
        (True, "Changed in this chat\nWhat it is for."),
        (False, "What it is for."),
    ):
        set_note(field, "Changed in this chat", shown=shown)
        assert field.accessibleDescription() == expected


def test_message_and_tool_have_the_focus_again_after_a_card_was_closed(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "Question", is_user=True), message(2, "Answer")])
    wait_for_layout(view, qtbot)
    keys, layout = view.keys, view.message_layout
    keys.enter(backwards=False)
    assert keys.step(forward=True)
    before = layout.focused, keys.control
    keys.leave()
    assert layout.focused == -1
    keys.come_back()
    assert (layout.focused, keys.control) == before
    with qtbot.waitSignal(keys.moved) as moved:
        keys.tell_again()  # once Qt has said that the whole list has the focus
    assert tuple(moved.args) == before
