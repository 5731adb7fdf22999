"""Consent to a tool's call in the transcript: what it shows, its answers, misclicks, focus, place."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.domain.parts import TextPart
from app.domain.tools import Effect
from app.state.tools import CallPhase, Consent, LiveCall, ToolsState
from app.ui.theme.palette import DARK
from app.ui.transcript.message.consent import (
    SETTLE_SECONDS,
    ConsentCard,
    argument_fault,
    effect_words,
)
from app.ui.transcript.view import Transcript
from stage import flush
from tool_calls import ANSWER, FORECAST, SUM, WRITE, call, live, show, use_tools
from transcript_driver import message

HIDDEN = '{\n  "path": "photo\u202egnp.exe"\n}'


@pytest.fixture
def tools(view: Transcript) -> ToolsState:
    return use_tools(view)


def asked(view: Transcript, qtbot: QtBot, tools: ToolsState, *asking: LiveCall) -> ConsentCard:
    """Show an answer whose calls ask; returns the first card."""
    show(view, qtbot, *(call(n + 1) for n in range(len(asking))), streaming=True)
    for each in asking:
        tools.set_live(each)
    flush()
    return next(iter(view.calls.consents.values()))


def settle(card: ConsentCard) -> None:
    """Let the card have stood still for long enough."""
    card._clock = lambda: card._still_since + SETTLE_SECONDS


def shown_words(card: ConsentCard) -> list[str]:
    return [words.text for words in card._texts]


def press(qtbot: QtBot, widget: QWidget) -> None:
    qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)


# --- what it shows ------------------------------------------------------------------------------


def test_it_shows_all_that_a_call_does_and_nothing_is_cut(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    changes = tuple(f"It changes the file number {n} {'very ' * 60}long." for n in range(12))
    card = asked(
        view, qtbot, tools,
        live(1, FORECAST, changes=changes, repeated=True, scope="weather.example.org",
             differences=("-Old words", "+New words")),
    )  # fmt: skip
    words = shown_words(card)
    assert words[:3] == [
        "Allow “Forecast”?",
        "A tool of the server weather",
        "This call had begun before Tokonoma ended; it may have been carried out already.",
    ]
    assert [each.removeprefix("•  ") for each in words[3:15]] == list(changes)
    assert words[15:] == [
        "This tool has been changed since you allowed it:",
        "-Old words",
        "+New words",
        "What you allow in this chat or always holds for weather.example.org only.",
    ]
    for each in card._texts:
        assert each.height() >= each.heightForWidth(each.width()) > 0
    assert card.origin.isHidden()
    height = card.height()
    card.details.click()
    flush()
    assert not card.origin.isHidden()
    assert FORECAST.origin in card.origin.text()
    assert card.height() > height
    area = view.stack.views[1].cards.consent_area("1")
    assert card.height() == area.height() == card.wanted_height(card.width())


def test_a_call_without_its_own_words_says_what_its_tool_does(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    assert shown_words(asked(view, qtbot, tools, live(1, WRITE)))[1:] == ["•  It changes files."]
    assert len(effect_words(frozenset(Effect))) == len(Effect)
    assert effect_words(frozenset()) == ("It changes nothing and sends nothing.",)


def test_hidden_characters_cannot_change_the_words(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1, arguments=HIDDEN, changes=("It opens \u202eexe.",)))
    assert card.field.text() == HIDDEN.replace("\u202e", "\\u202e")
    assert shown_words(card)[1] == "•  It opens \\u202eexe."
    with qtbot.waitSignal(view.decided) as decided:
        card.buttons[Consent.ONCE].click()
    assert decided.args == [ANSWER, "1", Consent.ONCE, HIDDEN]


def test_always_is_offered_only_where_it_can_be_and_with_its_scope(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1, WRITE))
    assert card.buttons[Consent.ALWAYS].isHidden()
    tools.set_live(live(1, WRITE, may_always=True, scope="a&b.org"))
    button = card.buttons[Consent.ALWAYS]
    assert button.isVisible()
    assert button.text() == "Always allow for a&&b.org"
    assert button.accessibleName() == "Always allow “Write a file”"
    assert button.accessibleDescription() == "In the chat “Chat 1”"


def test_long_arguments_scroll_inside(view: Transcript, qtbot: QtBot, tools: ToolsState) -> None:
    rows = json.dumps({f"key {n}": "x " * 40 for n in range(100)}, indent=2)
    card = asked(view, qtbot, tools, live(1, arguments=rows))
    line = card.field.fontMetrics().lineSpacing()
    assert 12 * line < card.field.height() < 15 * line
    assert card.field.verticalScrollBar().maximum() > 0
    assert card.field.horizontalScrollBar().maximum() == 0
    assert card.field.text() == rows
    card.edit('{\n  "a": "' + "word " * 50 + '"\n}')
    flush()
    assert card.field.verticalScrollBar().maximum() == 0  # all of its wrapped lines are seen
    assert card.field.height() > 5 * line


# --- answering ----------------------------------------------------------------------------------


def test_edited_arguments_are_what_is_allowed(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1))
    card.field.selectAll()
    qtbot.keyClicks(card.field, '{"n": 2}')
    with qtbot.waitSignal(view.decided) as decided:
        card.buttons[Consent.CHAT].click()
    assert decided.args == [ANSWER, "1", Consent.CHAT, '{"n": 2}']
    assert not any(button.isEnabled() for button in list(card.buttons.values())[:3])


def test_a_program_is_read_and_edited_line_by_line(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    program = "total = 0\nfor n in range(5):\n    total += n\n"
    arguments = json.dumps({"code": program, "seconds": 5}, indent=2)
    card = asked(view, qtbot, tools, live(1, arguments=arguments))
    assert card.texts["code"].text() == program
    assert json.loads(card.field.text()) == {"seconds": 5}
    assert card.edited is None
    card.texts["code"].setPlainText("total = 10\n")
    assert card.edited is not None
    card.edit(card.edited)  # as when the chat is shown again
    with qtbot.waitSignal(view.decided) as decided:
        card.buttons[Consent.ONCE].click()
    assert decided.args is not None
    assert json.loads(decided.args[3]) == {"code": "total = 10\n", "seconds": 5}


def test_a_call_whose_arguments_are_wrong_can_only_be_denied(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1, may_always=True))
    card.field.setPlainText('{\n"n": }')
    enabled = {answer for answer, button in card.buttons.items() if button.isEnabled()}
    assert enabled == {Consent.DENY}
    assert card.fault.text == "This is not JSON: look at line 2."
    assert card.fault.isVisible()
    with qtbot.waitSignal(view.decided) as decided:
        card.buttons[Consent.DENY].click()
    assert decided.args[2] is Consent.DENY
    assert argument_fault("[1]") != ""
    assert argument_fault("[" * 100_000) != ""
    assert argument_fault('{"a": 1}') == ""


def test_a_click_just_after_the_card_has_appeared_or_moved_is_ignored(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1))
    now = [card._still_since]
    card._clock = lambda: now[0]
    allow = card.buttons[Consent.ONCE]
    now[0] += SETTLE_SECONDS - 0.01
    with qtbot.assertNotEmitted(view.decided):
        press(qtbot, allow)
    now[0] += 0.01
    card.move(card.x(), card.y() + 40)
    with qtbot.assertNotEmitted(view.decided):
        press(qtbot, allow)
    now[0] += SETTLE_SECONDS
    qtbot.mousePress(allow, Qt.MouseButton.LeftButton)
    card.move(card.x(), card.y() - 40)
    with qtbot.assertNotEmitted(view.decided):
        qtbot.mouseRelease(allow, Qt.MouseButton.LeftButton)
    qtbot.mousePress(allow, Qt.MouseButton.LeftButton)
    now[0] += SETTLE_SECONDS
    with qtbot.assertNotEmitted(view.decided):  # it was pressed before it had stood still
        qtbot.mouseRelease(allow, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(view.decided):
        press(qtbot, allow)


def test_what_is_typed_elsewhere_decides_nothing(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    field = QLineEdit(view)
    field.show()
    field.setFocus()
    card = asked(view, qtbot, tools, live(1))
    settle(card)
    assert field.hasFocus()
    with qtbot.assertNotEmitted(view.decided):
        qtbot.keyClick(field, Qt.Key.Key_Return)
        qtbot.keyClick(view, Qt.Key.Key_Return)
        qtbot.keyClick(view, Qt.Key.Key_Space)
    view.calls.focus(live(1))
    assert card.buttons[Consent.ONCE].hasFocus()
    qtbot.keyClick(card.buttons[Consent.ONCE], Qt.Key.Key_Escape)
    assert field.hasFocus()
    view.calls.focus(live(1))
    with qtbot.waitSignal(view.decided):
        qtbot.keyClick(card.buttons[Consent.ONCE], Qt.Key.Key_Return)
    assert field.hasFocus()


def test_tab_goes_through_the_card(view: Transcript, qtbot: QtBot, tools: ToolsState) -> None:
    card = asked(view, qtbot, tools, live(1, may_always=True))
    card.field.setFocus()
    seen: list[QWidget | None] = []
    for _ in range(5):
        qtbot.keyClick(view.window().focusWidget() or card, Qt.Key.Key_Tab)
        seen.append(view.window().focusWidget())
    assert seen == [card.details, *card.buttons.values()]
    assert card.field.text() == '{"n": 1}'


# --- where it is --------------------------------------------------------------------------------


def test_it_stands_in_its_card_and_moves_with_it(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1), live(2, WRITE))
    one = view.stack.views[1]
    second = view.calls.consents[ANSWER, "2"]
    for each, row in ((card, one.rows[0]), (second, one.rows[1])):
        top = view.message_layout.message_top(1)
        assert round(top + row.area.bottom()) == each.y()
        assert abs(top + row.frame.bottom() - each.geometry().bottom()) <= 2
    view.resize(420, 500)
    flush()
    assert card.width() == round(one.column)
    assert one.rows[0].frame.bottom() < one.rows[1].frame.top()
    view.scroller.scroll_to(0)
    y = second.y()
    view.scroller.scroll_to(30)
    assert second.y() == y - 30
    tools.set_live(live(1, phase=CallPhase.RUNNING))
    assert list(view.calls.consents) == [(ANSWER, "2")]
    tools.end_live(ANSWER, "2")
    assert not view.calls.consents
    assert not one.rows[0].folded or one.rows[0].frame == one.rows[0].area


def test_it_is_made_when_it_is_seen(view: Transcript, qtbot: QtBot, tools: ToolsState) -> None:
    text = TextPart("A line.\n\n" * 120)
    show(view, qtbot, text, call(1), streaming=True)
    view.scroller.follow = False
    view.scroller.scroll_to(0)
    tools.set_live(live(1))
    assert not view.calls.consents
    view.calls.focus(live(1))
    card = view.calls.consents[ANSWER, "1"]
    assert card.isVisible()
    assert card.buttons[Consent.ONCE].hasFocus()
    assert card.geometry().bottom() <= view.viewport().height()


def test_another_chat_hides_it_and_keeps_what_was_edited(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1))
    card.field.setPlainText('{"n": 7}')
    view.set_messages([message(8, "Other", is_user=True), message(9, "chat")])
    assert not view.calls.consents
    view.calls.focus(live(1))  # it is shown when its chat is
    show(view, qtbot, call(1), streaming=True)
    flush()
    card = view.calls.consents[ANSWER, "1"]
    assert card.field.text() == '{"n": 7}'
    assert card.buttons[Consent.ONCE].hasFocus()


def test_a_theme_keeps_what_was_edited(view: Transcript, qtbot: QtBot, tools: ToolsState) -> None:
    card = asked(view, qtbot, tools, live(1))
    card.field.setPlainText('{"n": 7}')
    view._recolor(DARK)
    view.set_zoom(2.0)
    flush()
    assert view.calls.consents[ANSWER, "1"].field.text() == '{"n": 7}'
    assert DARK.sunken in card.field.styleSheet()
    assert card.height() == card.wanted_height(card.width())


def test_screen_readers_find_it_among_the_messages(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    card = asked(view, qtbot, tools, live(1, SUM))
    listed = QAccessible.queryAccessibleInterface(view)
    assert listed.childCount() == 3
    found = listed.child(2)
    assert found.object() is card
    assert listed.indexOfChild(found) == 2
    names = [found.child(n).text(QAccessible.Text.Name) for n in range(found.childCount())]
    assert "Allow “Calculate”?" in names
    assert view.stack.views[1].spoken == "Calculate, n: 1, waits for you"
