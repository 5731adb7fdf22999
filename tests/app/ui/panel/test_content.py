"""The sections of the panel: fields, format, faults, file, marks, resets and what is typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLineEdit, QRadioButton

from adapter_stage import PIRATE, accept
from app.domain.chat import Conversation
from app.domain.chat_settings import (
    NO_SETTINGS,
    PARTS,
    AdapterChoice,
    AnswerFormat,
    ChatSettings,
    changed_parts,
)
from app.domain.model_ref import Local, Remote
from app.engines.capabilities import Capabilities
from app.settings.samplers import Thinking
from app.state.chat import ChatModel, ModelFile, ServedModel
from app.ui.panel.content import PanelContent
from app.ui.panel.stop_texts import lines_of, stops_of
from engine import CheckConstraint, ConstraintChecked, ContextPolicy, Role, Sampling
from engine.frontend.constraints.checking import check
from fakes import MODEL
from stage import Stage, flush, until

BUTTON = "Chat settings (Ctrl+Shift+O)"


def opened(stage: Stage) -> PanelContent:
    """The content of the open panel."""
    stage.window.activateWindow()
    stage.window.open_panel()
    stage.wait_for_animations()
    return stage.window.panel.content


def panel_button(stage: Stage) -> str:
    return stage.window.top_bar.panel_button.toolTip()


def pick(card: PanelContent, format: AnswerFormat) -> None:
    """Choose a format in the menu of its button."""
    menu = card.format.field.kinds.menu_of_choices()
    menu.actions()[list(AnswerFormat).index(format)].trigger()


ANSWERED = replace(NO_SETTINGS, model=Local(MODEL))  # nothing but the model of its first answer


@pytest.fixture
def card(stage: Stage) -> PanelContent:
    stage.ready(MODEL)
    return opened(stage)


def line_of(card: PanelContent, name: str) -> QLineEdit:
    found = card.sampling.rows[name].field.findChild(QLineEdit)
    assert isinstance(found, QLineEdit)
    return found


def typed(card: PanelContent, name: str, text: str) -> None:
    """Type a value and press Enter."""
    line = line_of(card, name)
    line.setText(text)
    line.setModified(True)
    line.editingFinished.emit()


def described(card: PanelContent, format: AnswerFormat, text: str) -> None:
    pick(card, format)
    card.format.field.editor.setPlainText(text)
    card.format.field.finish()


def test_a_typed_value_is_of_this_chat(stage: Stage, card: PanelContent) -> None:
    typed(card, "temperature", "0.25")
    typed(card, "top_k", "7")
    assert dict(stage.states.chat_settings.settings.sampling) == {"temperature": 0.25, "top_k": 7}
    assert not card.sampling.rows["temperature"].reset.isHidden()
    assert panel_button(stage) == f"{BUTTON}. Changed: Sampling"
    card.sampling.rows["top_k"].reset.click()
    assert dict(stage.states.chat_settings.settings.sampling) == {"temperature": 0.25}
    typed(card, "temperature", "0.7")  # as in the settings
    assert stage.states.chat_settings.settings == NO_SETTINGS
    assert panel_button(stage) == BUTTON


def test_a_value_out_of_range_changes_nothing(stage: Stage, card: PanelContent) -> None:
    typed(card, "temperature", "9")
    assert stage.states.chat_settings.settings == NO_SETTINGS
    assert "0" in card.sampling.rows["temperature"].problem.text()


def test_the_usual_values_are_those_of_the_settings(stage: Stage, card: PanelContent) -> None:
    stage.controller.change_settings(temperature=0.4)
    assert line_of(card, "temperature").text() == "0.4"
    assert card.sampling.rows["temperature"].reset.isHidden()
    assert stage.states.chat_settings.shown.usual.temperature == 0.4


def test_more_values_are_shown_on_request(stage: Stage, card: PanelContent) -> None:
    assert card.sampling.rows["mirostat"].isHidden()
    card.sampling.more_button.click()
    assert not card.sampling.rows["mirostat"].isHidden()
    buttons = card.sampling.rows["mirostat"].field.findChildren(QRadioButton)
    buttons[2].click()
    assert dict(stage.states.chat_settings.settings.sampling) == {"mirostat": 2}
    assert stage.states.chat_settings.settings.applied(Sampling()).mirostat == 2
    card.sampling.more_button.click()
    assert not card.sampling.rows["mirostat"].isHidden()  # what is changed stays visible
    assert card.sampling.rows["typical_p"].isHidden()


def test_reset_all_is_there_while_something_is_changed(stage: Stage, card: PanelContent) -> None:
    assert card.reset_button.isHidden()
    typed(card, "min_p", "0.2")
    described(card, AnswerFormat.CHOICES, "yes\nno")
    assert not card.reset_button.isHidden()
    card.reset_button.click()
    assert stage.states.chat_settings.settings == NO_SETTINGS
    assert card.reset_button.isHidden()


def test_a_format_is_described_and_checked(stage: Stage, card: PanelContent) -> None:
    described(card, AnswerFormat.SCHEMA, '{\n"type": "objekt"}')
    assert card.format.field.status.text() == "Checking…"
    request = stage.engine.last(CheckConstraint).request
    stage.engine.deliver(ConstraintChecked(request, "Unknown type (line 2).", "", 2, 9))
    stage.drain()
    assert card.format.field.status.text() == "Unknown type (line 2)."
    (mark,) = card.format.field.editor.extraSelections()
    assert mark.cursor.blockNumber() == 1  # type: ignore[attr-defined]
    assert stage.window.composer.chip.words.text() == "JSON schema: cannot be used yet"
    described(card, AnswerFormat.SCHEMA, '{"type": "object"}')
    stage.engine.deliver(ConstraintChecked(stage.engine.last(CheckConstraint).request))
    stage.drain()
    assert card.format.field.status.text() == "This format can be used."
    assert card.format.field.editor.extraSelections() == []
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
    stage: Stage, card: PanelContent, text: str, said: str, line: int
) -> None:
    described(card, AnswerFormat.SCHEMA, text)
    asked = stage.engine.last(CheckConstraint)
    (checked,) = filter(None, check(asked.constraint, asked.request, None, lambda: None))
    stage.engine.deliver(checked)
    stage.drain()
    marks = card.format.field.editor.extraSelections()
    if not said:
        assert card.format.field.status.text() == "This format can be used."
        assert marks == []
        return
    assert said in card.format.field.status.text()
    assert marks[0].cursor.blockNumber() == line  # type: ignore[attr-defined]


def test_each_format_keeps_its_text(stage: Stage, card: PanelContent) -> None:
    described(card, AnswerFormat.CHOICES, "yes\nno")
    described(card, AnswerFormat.REGEX, "[a-z]+")
    pick(card, AnswerFormat.CHOICES)
    assert card.format.field.editor.toPlainText() == "yes\nno"
    pick(card, AnswerFormat.JSON)
    assert not card.format.field.editor.isVisible()
    pick(card, AnswerFormat.REGEX)
    assert card.format.field.editor.toPlainText() == "[a-z]+"


def test_typing_that_is_not_finished_is_kept_and_saved_on_closing(
    stage: Stage, card: PanelContent
) -> None:
    pick(card, AnswerFormat.CHOICES)
    card.format.field.editor.setPlainText("maybe")
    typed(card, "min_p", "0.2")  # shows the state again
    assert card.format.field.editor.toPlainText() == "maybe"
    stage.window.panel.close_panel()
    assert stage.states.chat_settings.settings.text == "maybe"
    assert dict(stage.states.chat_settings.settings.sampling) == {"min_p": 0.2}


def test_the_chip_clears_the_format(stage: Stage, card: PanelContent) -> None:
    described(card, AnswerFormat.CHOICES, "yes")
    chip = stage.window.composer.chip
    assert not chip.isHidden()
    chip.clear_button.click()
    assert chip.isHidden()
    assert stage.states.chat_settings.settings.format is AnswerFormat.FREE
    chip.change_button.click()
    pick(card, AnswerFormat.CHOICES)
    assert card.format.field.editor.toPlainText() == "yes"  # as it was


def test_a_description_is_read_from_a_file(
    stage: Stage, card: PanelContent, tmp_path: Path
) -> None:
    pick(card, AnswerFormat.GRAMMAR)
    file = tmp_path / "yes.gbnf"
    file.write_text('\ufeffroot ::= "yes"', encoding="utf-8")
    card.load_format(file)
    assert stage.states.chat_settings.settings.text == 'root ::= "yes"'
    file.write_bytes(b"\xff\xfe\x00")
    card.load_format(file)
    assert (
        "yes.gbnf cannot be read: it is not a text file." in stage.state.notices["format"].sentence
    )
    card.load_format(tmp_path / "none")
    assert "none cannot be read" in stage.state.notices["format"].sentence
    file.write_bytes(b"x" * (2 << 20))
    card.load_format(file)
    assert "too large" in stage.state.notices["format"].sentence
    assert stage.states.chat_settings.settings.text == 'root ::= "yes"'


def test_the_notice_about_a_format_opens_the_panel_there(stage: Stage, card: PanelContent) -> None:
    described(card, AnswerFormat.REGEX, "[")
    request = stage.engine.last(CheckConstraint).request
    stage.engine.deliver(ConstraintChecked(request, "Unclosed.", "", 1, 1))
    stage.drain()
    stage.window.panel.close_panel()
    stage.window.composer.set_text("one")
    stage.window.composer.submitted.emit("one")
    assert stage.window.composer.text() == "one"  # nothing is lost
    stage.window.banners.acted.emit("format")
    assert stage.window.panel.is_open
    flush()
    assert stage.window.focusWidget() is card.format
    flush()


@pytest.fixture
def thinking_card(stage: Stage) -> PanelContent:
    """The card, for a model that can think."""
    stage.start(MODEL)
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    return opened(stage)


def test_thinking_is_offered_for_models_that_can(stage: Stage, card: PanelContent) -> None:
    assert not card.thinking.isVisible()
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    stage.wait_until_idle()
    stage.engine.finish_load(can_think=True)
    stage.wait_until_idle()
    assert card.thinking.isVisible()
    assert not card.thinking.budget.isVisible()


def test_a_budget_of_thoughts_is_of_this_chat(stage: Stage, thinking_card: PanelContent) -> None:
    card = thinking_card
    buttons = {one.text(): one for one in card.thinking.choice.findChildren(QRadioButton)}
    assert list(buttons) == ["As in settings", "On", "Off", "Budget"]
    buttons["Budget"].click()
    assert card.thinking.budget.isVisible()
    line = card.thinking.budget.field.findChild(QLineEdit)
    assert isinstance(line, QLineEdit)
    line.setText("200")
    line.setModified(True)
    line.editingFinished.emit()
    options = stage.states.chat_settings.settings
    assert (options.thinking, options.thinking_budget) == (Thinking.BUDGET, 200)
    assert panel_button(stage) == f"{BUTTON}. Changed: Thinking"
    stage.controller.send("Why?")
    stage.wait_until_idle()
    asked = stage.engine.last_generate
    assert (asked.thinking, asked.thinking_budget) == (True, 200)
    stage.engine.finish()
    stage.wait_until_idle()
    buttons["Off"].click()
    assert not card.thinking.budget.isVisible()
    stage.controller.send("And now?")
    stage.wait_until_idle()
    asked = stage.engine.last_generate
    assert (asked.thinking, asked.thinking_budget) == (False, None)
    stage.engine.finish()
    stage.wait_until_idle()
    card.thinking.reset.click()
    assert stage.states.chat_settings.settings == ANSWERED


# --- instructions, stop texts and the model -------------------------------------------------------


def shown(stage: Stage) -> ChatSettings:
    return stage.states.chat_settings.settings


def test_instructions_are_of_this_chat_and_counted(stage: Stage, card: PanelContent) -> None:
    field = card.instructions.field.editor
    field.setPlainText("Answer in three words")
    until(lambda: card.instructions.tokens.text() == "4 tokens")
    card.finish()
    assert shown(stage).instructions == "Answer in three words"
    assert card.instructions.mark.isVisible()
    stage.controller.send("Why?")
    stage.wait_until_idle()
    assert stage.engine.last_generate.turns[0].text == "Answer in three words"
    stage.engine.finish()
    stage.wait_until_idle()
    field.setPlainText("")
    card.finish()
    assert shown(stage).instructions is None
    assert not card.instructions.mark.isVisible()


def test_the_field_of_instructions_is_as_high_as_its_text(card: PanelContent) -> None:
    editor = card.instructions.field.editor
    heights: list[int] = []
    for lines in (1, 6, 200, 400, 1):
        editor.setPlainText("\n".join(["Be brief"] * lines))
        flush()
        heights.append(editor.height())
    low, more, most, limit, again = heights
    assert low == again < more < most == limit


def test_usual_instructions_are_shown_counted_copied_and_left_out(
    stage: Stage, card: PanelContent
) -> None:
    stage.controller.change_settings(system_prompt="Be kind and brief")
    part = card.instructions
    assert part.field.editor.placeholderText() == "Be kind and brief"
    assert part.origin.text() == "From the settings:"
    until(lambda: part.tokens.text() == "4 tokens")
    part.copy_button.click()
    assert shown(stage).instructions == part.field.editor.text() == "Be kind and brief"
    assert not part.origin.isVisible()
    part.reset.click()
    assert shown(stage).instructions is None
    part.none_button.click()
    assert shown(stage).instructions == ""
    until(lambda: not part.tokens.text())
    stage.controller.send("Why?")
    stage.wait_until_idle()
    assert stage.engine.last_generate.turns[0].role is Role.USER
    part.reset.click()
    assert part.field.editor.placeholderText() == "Be kind and brief"


@pytest.mark.parametrize(
    ("typed", "stops"),
    [
        ("###", ("###",)),
        ("\\nUser:\n\n###\n###", ("\nUser:", "###")),
        ("\\\\n\n a \n\\t\\d", ("\\n", " a ", "\t\\d")),
        ("\u00a0\n\u2028x", ("\u00a0", "\u2028x")),
        ("  \n\\s\nAs a \n\\s\\sx", (" ", "As a ", "  x")),
        ("", ()),
    ],
)
def test_stop_texts_are_lines_with_escapes(
    stage: Stage, card: PanelContent, typed: str, stops: tuple[str, ...]
) -> None:
    card.stop.field.editor.set_text(typed)
    card.finish()
    assert shown(stage).stop == stops
    assert stops_of(lines_of(stops)) == stops
    stage.controller.send("Why?")
    stage.wait_until_idle()
    assert stage.engine.last_generate.stop == stops


def test_another_chats_stop_texts_are_shown_as_lines(stage: Stage, card: PanelContent) -> None:
    stage.controller.chat_settings.change_shown(ChatSettings(stop=("a\nb", "c\\ ")))
    assert card.stop.field.editor.text() == "a\\nb\nc\\\\\\s"


def test_the_model_of_the_chat_is_chosen_among_the_installed(
    stage: Stage, card: PanelContent
) -> None:
    other = MODEL.with_name("Other.gguf")
    files = [
        ModelFile(MODEL, "Small", 1, "Q4_K_M"),
        ModelFile(other, "Small", 1, "Q8_0"),
        ModelFile(MODEL.with_name("Bad.gguf"), "Bad", 1, bad=True),
    ]
    stage.state.set_installed(files)
    actions = [each for each in card.model.menu_of_models().actions() if each.text()]
    assert [each.text() for each in actions] == [
        "The model in use",
        "Small · Q4_K_M",
        "Small · Q8_0",
        "Use a model that runs elsewhere…",
    ]
    assert actions[0].isChecked()
    actions[2].trigger()
    assert shown(stage).model == Local(other)
    assert card.model.button.text() == "Small · Q8_0"
    assert card.model.line.text().endswith("is loaded.")
    stage.state.set_installed(files[:1])
    assert card.model.button.accessibleName() == "Model: Other"
    stage.wait_until_idle()
    assert (
        card.model.line.text() == "Other, the model of this chat, is not on this computer any more."
    )
    *_, last, _, _ = card.model.menu_of_models().actions()
    assert (last.text(), last.isChecked()) == ("Other", True)
    card.model.reset.click()
    assert shown(stage).model is None


# --- marks and resets -----------------------------------------------------------------------------


EVERYTHING = replace(
    NO_SETTINGS.with_format(AnswerFormat.CHOICES, "yes\nno").with_value("top_k", 3),
    model=Local(MODEL),
    instructions="Be brief",
    stop=("###",),
    thinking=Thinking.BUDGET,
    thinking_budget=64,
    policy=ContextPolicy.STOP,
    adapters=(AdapterChoice(PIRATE),),
    collections=(5,),
    tools=("builtin/clock",),
)


def test_every_part_is_marked_and_reset_on_its_own(stage: Stage, card: PanelContent) -> None:
    other = Local(MODEL.with_name("Other.gguf"))  # the loaded one is not marked
    stage.controller.chat_settings.change_shown(replace(EVERYTHING, model=other))
    assert set(card.sections) == set(PARTS)
    left = set(PARTS)
    for part, section in card.sections.items():
        assert section.mark.isVisible(), part
        section.reset.click()
        left.discard(part)
        assert changed_parts(shown(stage)) == left
        assert not section.mark.isVisible(), part
    assert shown(stage) == NO_SETTINGS
    assert panel_button(stage) == BUTTON


def test_a_reset_can_be_undone_until_something_else_is_changed(
    stage: Stage, card: PanelContent
) -> None:
    stage.controller.chat_settings.change_shown(EVERYTHING)
    assert not card.undo_button.isVisible()
    card.reset_button.click()
    assert shown(stage) == ChatSettings(model=EVERYTHING.model)  # it is loaded, and not marked
    assert stage.states.adapters.stack == ()
    card.undo_button.click()
    assert shown(stage) == EVERYTHING
    assert [entry.path for entry in stage.states.adapters.stack] == [PIRATE]
    assert not card.undo_button.isVisible()
    card.instructions.reset.click()
    assert card.undo_button.isVisible()
    typed(card, "temperature", "0.25")
    assert not card.undo_button.isVisible()


def test_reset_all_keeps_a_model_that_is_not_marked(stage: Stage, card: PanelContent) -> None:
    loaded = Local(MODEL)
    stage.controller.chat_settings.change_shown(ChatSettings(model=loaded, stop=("END",)))
    assert not card.model.mark.isVisible()
    assert card.reset_button.toolTip() == "Resets: Stop texts"
    card.reset_button.click()
    assert shown(stage) == ChatSettings(model=loaded)
    assert not card.reset_button.isVisible()


def test_reset_all_resets_and_names_a_marked_model(stage: Stage, card: PanelContent) -> None:
    other = ChatSettings(model=Local(MODEL.with_name("other.gguf")), stop=("END",))
    stage.controller.chat_settings.change_shown(other)
    assert card.model.mark.isVisible()
    assert card.reset_button.toolTip() == "Resets: Model, Stop texts"
    card.reset_button.click()
    assert shown(stage) == NO_SETTINGS
    card.undo_button.click()
    assert shown(stage) == other


def test_a_reset_is_undone_in_its_own_chat_only(stage: Stage, card: PanelContent) -> None:
    stage.controller.chat_settings.change_shown(EVERYTHING)
    card.reset_button.click()
    stage.controller.send("Why?")
    stage.wait_until_idle()
    assert not card.undo_button.isVisible()


# --- several chats --------------------------------------------------------------------------------


def two_chats(stage: Stage) -> tuple[int, int]:
    """The ids of two chats; the second is shown."""
    ids = []
    for text in ("One?", "Two?"):
        stage.controller.new_conversation()
        stage.controller.send(text)
        stage.wait_until_idle()
        stage.engine.finish()
        stage.wait_until_idle()
        assert stage.state.current is not None
        ids.append(stage.state.current)
    return ids[0], ids[1]


def test_what_is_typed_stays_in_its_chat_when_another_is_opened(
    stage: Stage, card: PanelContent
) -> None:
    first, second = two_chats(stage)
    pick(card, AnswerFormat.CHOICES)
    card.instructions.field.editor.setPlainText("Of the second")
    card.stop.field.editor.setPlainText("##")
    card.format.field.editor.setPlainText("yes")
    line = line_of(card, "temperature")
    line.setText("0.25")
    line.setModified(True)
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    assert stage.state.settings(first) == ANSWERED
    assert card.instructions.field.editor.text() == ""
    assert card.stop.field.editor.text() == ""
    assert line.text() == "0.7"
    kept = stage.state.settings(second)
    assert (kept.instructions, kept.stop, kept.text) == ("Of the second", ("##",), "yes")
    assert dict(kept.sampling) == {"temperature": 0.25}
    card.finish()
    stage.controller.open_conversation(second)
    stage.wait_until_idle()
    assert stage.state.settings(first) == ANSWERED
    assert card.instructions.field.editor.text() == "Of the second"
    assert line.text() == "0.25"


def test_what_is_typed_is_of_the_answer_that_is_asked_for_next(
    stage: Stage, card: PanelContent
) -> None:
    assert stage.state.current is None
    card.instructions.field.editor.setPlainText("Be brief")
    stage.window.chat.empty_view.suggested.emit("Tell me a story")
    stage.wait_until_idle()
    assert stage.engine.last_generate.turns[0].text == "Be brief"
    assert shown(stage).instructions == "Be brief"
    assert stage.state.settings(None) == NO_SETTINGS
    assert card.instructions.field.editor.text() == "Be brief"


def test_a_wrong_number_is_not_taken_to_another_chat(stage: Stage, card: PanelContent) -> None:
    first, second = two_chats(stage)
    line = line_of(card, "temperature")
    line.setText("9")
    line.setModified(True)
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    assert line.text() == "0.7"
    assert stage.state.settings(first) == stage.state.settings(second) == ANSWERED


def test_a_change_during_an_answer_is_said_to_apply_to_the_next(
    stage: Stage, card: PanelContent
) -> None:
    stage.controller.send("Why?")
    stage.engine.write("Because")
    stage.wait_until_idle()
    assert not card.note.isVisible()
    typed(card, "temperature", "0.25")
    assert card.note.text() == "Takes effect with the next answer."
    assert stage.engine.last_generate.sampling.temperature == 0.7
    card.sampling.rows["temperature"].reset.click()
    assert not card.note.isVisible()
    typed(card, "temperature", "0.25")
    stage.engine.finish()
    stage.wait_until_idle()
    assert not card.note.isVisible()
    stage.controller.send("And now?")
    stage.wait_until_idle()
    assert stage.engine.last_generate.sampling.temperature == 0.25


def test_settings_survive_another_model_and_a_restart(
    stage: Stage, card: PanelContent, tmp_path: Path
) -> None:
    stage.controller.chat_settings.change_shown(EVERYTHING)
    stage.controller.send("Why?")
    stage.wait_until_idle()
    accept(stage.engine)
    stage.wait_until_idle()
    stage.engine.finish()
    stage.wait_until_idle()
    chat = stage.state.current
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    stage.wait_until_idle()
    stage.engine.finish_load("Other")
    stage.wait_until_idle()
    kept = replace(EVERYTHING, model=Local(MODEL.with_name("Other.gguf")))
    assert shown(stage) == kept
    card.instructions.field.editor.setPlainText("Typed last")
    stage.window.close()
    stage.wait_until_idle()
    found: list[tuple[Conversation, ...]] = []
    stage.store_queue.read(lambda store: tuple(store.conversations()), found.append)
    stage.wait_until_idle()
    ((row,),) = found
    assert (row.id, row.settings) == (chat, replace(kept, instructions="Typed last"))


def test_the_model_of_the_first_answer_is_no_change(stage: Stage, card: PanelContent) -> None:
    stage.controller.send("Why?")
    stage.engine.write("Because")
    stage.wait_until_idle()
    assert shown(stage) == ANSWERED
    assert not card.note.isVisible()  # it takes effect with this answer
    assert not card.model.mark.isVisible()
    assert panel_button(stage) == BUTTON


def test_a_model_elsewhere_is_offered_and_its_place_is_named(
    stage: Stage, card: PanelContent
) -> None:
    there = Remote("gpu", "big")
    stage.state.set_served([ServedModel(there, "big", "GPU", "gpu:8000")])
    section = card.model
    (entry,) = [a for a in section.menu_of_models().actions() if a.text() == "big · GPU"]
    entry.trigger()
    stage.wait_until_idle()
    assert stage.state.settings(None).model == there
    stage.state.set_capabilities(Capabilities(server="gpu:8000"))
    stage.state.set_chat_model(ChatModel(there, "big", server="gpu:8000", context=4096))
    assert "It runs on" in section.line.text()
    assert "gpu:8000" in section.line.text()
    line = stage.window.chat.status_line.words
    assert line.text() == "big on gpu:8000"
    assert stage.state.capabilities.reason("counts") in line.toolTip()
