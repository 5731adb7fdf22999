"""The card of answer options: fields, format, faults, file, keyboard and what the composer shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit, QRadioButton
from pytestqt.qtbot import QtBot

from app.domain.chat_settings import NO_SETTINGS, AnswerFormat
from app.settings.samplers import Thinking
from app.ui.panel.card import OptionsCard
from engine import CheckConstraint, ConstraintChecked, Sampling
from engine.inference.constraints.checking import check
from fakes import MODEL
from stage import Stage, flush


@pytest.fixture
def card(stage: Stage) -> OptionsCard:
    stage.ready(MODEL)
    stage.window.options.open()
    found = stage.window.options.card
    assert found is not None
    return found


def line_of(card: OptionsCard, name: str) -> QLineEdit:
    found = card.rows[name].field.findChild(QLineEdit)
    assert isinstance(found, QLineEdit)
    return found


def typed(card: OptionsCard, name: str, text: str) -> None:
    """Type a value and press Enter."""
    line = line_of(card, name)
    line.setText(text)
    line.setModified(True)
    line.editingFinished.emit()


def described(card: OptionsCard, format: AnswerFormat, text: str) -> None:
    card.format.kinds.buttons[format.value].click()
    card.format.editor.setPlainText(text)
    card.format.finish()


def test_a_typed_value_is_of_this_chat(stage: Stage, card: OptionsCard) -> None:
    typed(card, "temperature", "0.25")
    typed(card, "top_k", "7")
    assert dict(stage.states.chat_settings.settings.sampling) == {"temperature": 0.25, "top_k": 7}
    assert not card.rows["temperature"].reset.isHidden()
    assert stage.window.composer.options_button.toolTip() == "Answer options (2 values changed)"
    card.rows["top_k"].reset.click()
    assert dict(stage.states.chat_settings.settings.sampling) == {"temperature": 0.25}
    typed(card, "temperature", "0.7")  # as in the settings
    assert stage.states.chat_settings.settings == NO_SETTINGS
    assert stage.window.composer.options_button.toolTip() == "Answer options"


def test_a_value_out_of_range_changes_nothing(stage: Stage, card: OptionsCard) -> None:
    typed(card, "temperature", "9")
    assert stage.states.chat_settings.settings == NO_SETTINGS
    assert "0" in card.rows["temperature"].problem.text()


def test_the_usual_values_are_those_of_the_settings(stage: Stage, card: OptionsCard) -> None:
    stage.controller.change_settings(temperature=0.4)
    assert line_of(card, "temperature").text() == "0.4"
    assert card.rows["temperature"].reset.isHidden()
    assert stage.states.chat_settings.shown.usual.temperature == 0.4


def test_more_values_are_shown_on_request(stage: Stage, card: OptionsCard) -> None:
    assert card.rows["mirostat"].isHidden()
    card.more_button.click()
    assert not card.rows["mirostat"].isHidden()
    buttons = card.rows["mirostat"].field.findChildren(QRadioButton)
    buttons[2].click()
    assert dict(stage.states.chat_settings.settings.sampling) == {"mirostat": 2}
    assert stage.states.chat_settings.settings.applied(Sampling()).mirostat == 2
    card.more_button.click()
    assert not card.rows["mirostat"].isHidden()  # what is changed stays visible
    assert card.rows["typical_p"].isHidden()


def test_reset_all_is_there_while_something_is_changed(stage: Stage, card: OptionsCard) -> None:
    assert card.reset_button.isHidden()
    typed(card, "min_p", "0.2")
    described(card, AnswerFormat.CHOICES, "yes\nno")
    assert not card.reset_button.isHidden()
    card.reset_button.click()
    assert stage.states.chat_settings.settings == NO_SETTINGS
    assert card.reset_button.isHidden()


def test_a_format_is_described_and_checked(stage: Stage, card: OptionsCard) -> None:
    described(card, AnswerFormat.SCHEMA, '{\n"type": "objekt"}')
    assert card.format.status.text() == "Checking…"
    request = stage.engine.last(CheckConstraint).request
    stage.engine.deliver(ConstraintChecked(request, "Unknown type (line 2).", "", 2, 9))
    stage.drain()
    assert card.format.status.text() == "Unknown type (line 2)."
    (mark,) = card.format.editor.extraSelections()
    assert mark.cursor.blockNumber() == 1  # type: ignore[attr-defined]
    assert stage.window.composer.chip.words.text() == "JSON schema: cannot be used yet"
    described(card, AnswerFormat.SCHEMA, '{"type": "object"}')
    stage.engine.deliver(ConstraintChecked(stage.engine.last(CheckConstraint).request))
    stage.drain()
    assert card.format.status.text() == "This can be used."
    assert card.format.editor.extraSelections() == []
    assert stage.window.composer.chip.words.text() == "Answer format: JSON schema"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ('{"type": "array",\n"items": {"type": "string"},\n"uniqueItems": true}', "uniqueItems", 2),
        ('{"type": "string",\n"pattern": "(?<=a)b"}', "looks behind", 1),
        ('{"type": "string", "format": "password",\n"title": "brackets ([{"}', "", 0),
    ],
)
def test_the_fault_of_a_schema_is_shown_at_its_line(
    stage: Stage, card: OptionsCard, text: str, said: str, line: int
) -> None:
    described(card, AnswerFormat.SCHEMA, text)
    asked = stage.engine.last(CheckConstraint)
    (checked,) = filter(None, check(asked, None, lambda: None))
    stage.engine.deliver(checked)
    stage.drain()
    marks = card.format.editor.extraSelections()
    if not said:
        assert card.format.status.text() == "This can be used."
        assert marks == []
        return
    assert said in card.format.status.text()
    assert marks[0].cursor.blockNumber() == line  # type: ignore[attr-defined]


def test_each_format_keeps_its_text(stage: Stage, card: OptionsCard) -> None:
    described(card, AnswerFormat.CHOICES, "yes\nno")
    described(card, AnswerFormat.REGEX, "[a-z]+")
    card.format.kinds.buttons["choices"].click()
    assert card.format.editor.toPlainText() == "yes\nno"
    card.format.kinds.buttons["json"].click()
    assert not card.format.editor.isVisible()
    card.format.kinds.buttons["regex"].click()
    assert card.format.editor.toPlainText() == "[a-z]+"


def test_typing_that_is_not_finished_is_kept_and_saved_on_closing(
    stage: Stage, card: OptionsCard
) -> None:
    card.format.kinds.buttons["choices"].click()
    card.format.editor.setPlainText("maybe")
    typed(card, "min_p", "0.2")  # shows the state again
    assert card.format.editor.toPlainText() == "maybe"
    assert stage.window.options.popover is not None
    stage.window.options.popover.close_card()
    assert stage.states.chat_settings.settings.text == "maybe"
    assert dict(stage.states.chat_settings.settings.sampling) == {"min_p": 0.2}


def test_the_chip_clears_the_format(stage: Stage, card: OptionsCard) -> None:
    described(card, AnswerFormat.CHOICES, "yes")
    chip = stage.window.composer.chip
    assert not chip.isHidden()
    chip.clear_button.click()
    assert chip.isHidden()
    assert stage.states.chat_settings.settings.format is AnswerFormat.FREE
    chip.change_button.click()
    card.format.kinds.buttons["choices"].click()
    assert card.format.editor.toPlainText() == "yes"  # as it was


def test_a_description_is_read_from_a_file(stage: Stage, card: OptionsCard, tmp_path: Path) -> None:
    card.format.kinds.buttons["grammar"].click()
    file = tmp_path / "yes.gbnf"
    file.write_text('\ufeffroot ::= "yes"', encoding="utf-8")
    stage.window.options.load(file)
    assert stage.states.chat_settings.settings.text == 'root ::= "yes"'
    file.write_bytes(b"\xff\xfe\x00")
    stage.window.options.load(file)
    assert "yes.gbnf cannot be read: it is no text." in stage.state.notices["format"].sentence
    stage.window.options.load(tmp_path / "none")
    assert "none cannot be read" in stage.state.notices["format"].sentence
    file.write_bytes(b"x" * (2 << 20))
    stage.window.options.load(file)
    assert "too large" in stage.state.notices["format"].sentence
    assert stage.states.chat_settings.settings.text == 'root ::= "yes"'


def test_keys_open_and_close_the_card(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.actions_by_id["options"].trigger()
    popover = stage.window.options.popover
    assert popover is not None
    assert not popover.isHidden()
    qtbot.keyClick(popover, Qt.Key.Key_Escape)
    assert popover.isHidden()
    stage.wait_for_animations()


def test_the_notice_about_a_format_opens_the_card(stage: Stage, card: OptionsCard) -> None:
    described(card, AnswerFormat.REGEX, "[")
    request = stage.engine.last(CheckConstraint).request
    stage.engine.deliver(ConstraintChecked(request, "Unclosed.", "", 1, 1))
    stage.drain()
    assert stage.window.options.popover is not None
    stage.window.options.popover.close_card()
    stage.window.composer.set_text("one")
    stage.window.composer.submitted.emit("one")
    assert stage.window.composer.text() == "one"  # nothing is lost
    stage.window.banners.acted.emit("format")
    assert not stage.window.options.popover.isHidden()
    flush()


@pytest.fixture
def thinking_card(stage: Stage) -> OptionsCard:
    """The card, for a model that can think."""
    stage.start(MODEL)
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    stage.window.options.open()
    found = stage.window.options.card
    assert found is not None
    return found


def test_thinking_is_offered_for_models_that_can(stage: Stage, card: OptionsCard) -> None:
    assert not card.thinking.isVisible()
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    stage.wait_until_idle()
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    assert card.thinking.isVisible()
    assert not card.budget.isVisible()


def test_a_budget_of_thoughts_is_of_this_chat(stage: Stage, thinking_card: OptionsCard) -> None:
    card = thinking_card
    buttons = {one.text(): one for one in card.thinking.field.findChildren(QRadioButton)}
    assert list(buttons) == ["As in settings", "On", "Off", "Budget"]
    buttons["Budget"].click()
    assert card.budget.isVisible()
    line = card.budget.field.findChild(QLineEdit)
    assert isinstance(line, QLineEdit)
    line.setText("200")
    line.setModified(True)
    line.editingFinished.emit()
    options = stage.states.chat_settings.settings
    assert (options.thinking, options.thinking_budget) == (Thinking.BUDGET, 200)
    assert stage.window.composer.options_button.toolTip() == "Answer options (1 value changed)"
    stage.controller.send("Why?")
    stage.wait_until_idle()
    asked = stage.engine.last_generate
    assert (asked.thinking, asked.thinking_budget) == (True, 200)
    stage.engine.finish()
    stage.wait_until_idle()
    buttons["Off"].click()
    assert not card.budget.isVisible()
    stage.controller.send("And now?")
    stage.wait_until_idle()
    asked = stage.engine.last_generate
    assert (asked.thinking, asked.thinking_budget) == (False, None)
    stage.engine.finish()
    stage.wait_until_idle()
    card.thinking.reset.click()
    assert stage.states.chat_settings.settings == replace(NO_SETTINGS, thinking_budget=200)
