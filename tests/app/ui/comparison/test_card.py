"""The card that asks with what two answers are written: defaults, values, narrow windows, access."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.domain.generation_settings import GenerationSettings, UsedAdapter
from app.domain.model_ref import Local, Remote
from app.engines.capabilities import Capabilities
from app.system.translation import isolated
from app.ui.comparison.card import CARD_WIDTH, ComparisonCard
from app.ui.comparison.values import default_choices, mix_name, with_mix
from app.ui.settings.fields import Segments
from app.ui.theme.palette import PALETTES, show_palette
from app.ui.theme.theme import load_fonts
from engine import Sampling
from stage import flush

PIRATE = UsedAdapter("pirate-speech", 0.8, Path("/a/pirate-speech.gguf"))
FORMAL = UsedAdapter("formal", path=Path("/a/formal.gguf"), on=False)
SAMPLING = Sampling(temperature=0.7, top_k=40)


@pytest.fixture
def card(qtbot: QtBot) -> ComparisonCard:
    load_fonts()
    made = ComparisonCard()
    qtbot.addWidget(made)
    made.resize(CARD_WIDTH, 400)
    made.show()
    return made


def accepted(
    card: ComparisonCard, qtbot: QtBot
) -> tuple[int, GenerationSettings, GenerationSettings]:
    with qtbot.waitSignal(card.accepted) as done:
        qtbot.mouseClick(card.compare_button, Qt.MouseButton.LeftButton)
    message, first, second = done.args
    return message, first, second


def thinking(card: ComparisonCard, column: int) -> Segments:
    found = card.columns[column].thinking
    assert found is not None
    return found


def test_the_default_is_with_and_without_adapters() -> None:
    first, second = default_choices([PIRATE, FORMAL], SAMPLING, None)
    assert first == GenerationSettings((PIRATE, FORMAL), SAMPLING, None)
    assert [entry.acts for entry in second.adapters] == [False, False]
    assert second.sampling == SAMPLING


@pytest.mark.parametrize(("temperature", "other"), [(0.7, 0.2), (0.5, 0.2), (0.3, 1.0), (0.0, 1.0)])
def test_without_acting_adapters_it_is_two_temperatures(temperature: float, other: float) -> None:
    sampling = Sampling(temperature=temperature)
    first, second = default_choices([FORMAL], sampling, True)
    assert (first.sampling.temperature, second.sampling.temperature) == (temperature, other)
    assert second.adapters == (FORMAL,)
    assert second.thinking is True


def test_what_is_shown_is_what_is_accepted(card: ComparisonCard, qtbot: QtBot) -> None:
    choices = default_choices([PIRATE, FORMAL], SAMPLING, None)
    card.show_choices(7, choices)
    assert accepted(card, qtbot) == (7, *choices)
    assert [heading.text() for heading in card.headings] == [
        "pirate-speech at 0.80",
        "Without adapters",
    ]


def test_every_value_can_be_changed_on_either_side(card: ComparisonCard, qtbot: QtBot) -> None:
    card.show_choices(7, default_choices([PIRATE, FORMAL], SAMPLING, None))
    one, other = card.columns
    qtbot.mouseClick(one.adapters[0].switch, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(other.adapters[1].switch, Qt.MouseButton.LeftButton)
    other.adapters[1].field.setValue(-0.5)
    qtbot.mouseClick(card.more_button, Qt.MouseButton.LeftButton)
    for key, typed in (("temperature", "1.25"), ("top_k", "0"), ("repeat_penalty", "1.3")):
        line = other.numbers[key].line
        line.selectAll()
        qtbot.keyClicks(line, typed)
        qtbot.keyClick(line, Qt.Key.Key_Return)
    thinking(card, 0).buttons["on"].click()
    _, first, second = accepted(card, qtbot)
    assert [entry.acts for entry in first.adapters] == [False, False]
    assert [(entry.on, entry.strength) for entry in second.adapters] == [(False, 0.8), (True, -0.5)]
    assert first.sampling == SAMPLING
    used = second.sampling
    assert (used.temperature, used.top_k, used.repeat_penalty) == (1.25, 0, 1.3)
    assert (first.thinking, second.thinking) == (True, None)
    assert card.headings[1].text().startswith("formal at -0.50")


def test_a_wrong_number_is_not_taken(card: ComparisonCard, qtbot: QtBot) -> None:
    card.show_choices(7, default_choices([], SAMPLING, None))
    line = card.columns[0].numbers["temperature"].line
    line.selectAll()
    qtbot.keyClicks(line, "99")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert line.property("wrong")
    assert accepted(card, qtbot)[1].sampling == SAMPLING


def test_the_settings_are_the_only_default_of_thinking(card: ComparisonCard) -> None:
    card.show_choices(7, default_choices([], SAMPLING, None))
    assert list(thinking(card, 0).buttons) == ["auto", "on", "off"]
    card.show_choices(7, default_choices([], SAMPLING, False))
    assert list(thinking(card, 0).buttons) == ["on", "off"]
    assert thinking(card, 1).buttons["off"].isChecked()


def test_thinking_is_offered_for_models_with_that_switch_only(
    card: ComparisonCard, qtbot: QtBot
) -> None:
    card.show_choices(7, default_choices([], SAMPLING, None), thinks=False)
    assert card.columns[0].thinking is None
    assert accepted(card, qtbot)[1].sampling == SAMPLING
    card.show_choices(7, default_choices([], SAMPLING, None), thinks=True)
    assert thinking(card, 0).isVisible()


def test_less_usual_values_are_shown_on_request(card: ComparisonCard, qtbot: QtBot) -> None:
    card.show_choices(7, default_choices([], SAMPLING, None))
    field = card.columns[0].numbers["top_p"]
    assert not field.isVisible()
    with qtbot.waitSignal(card.resized):
        qtbot.mouseClick(card.more_button, Qt.MouseButton.LeftButton)
    assert field.isVisible()
    assert card.more_button.text() == "Fewer values"
    qtbot.mouseClick(card.more_button, Qt.MouseButton.LeftButton)
    assert not field.isVisible()


def test_a_narrow_card_has_the_names_above_the_values(card: ComparisonCard) -> None:
    card.show_choices(7, default_choices([PIRATE], SAMPLING, None))
    high = card.sizeHint().height()
    card.resize(404, 400)
    assert card.sizeHint().height() > high
    for column in card.columns:
        field = column.numbers["temperature"]
        right = field.mapTo(card, field.rect().topRight()).x()
        assert 0 < right < 404
    card.resize(CARD_WIDTH, 400)
    assert card.sizeHint().height() == high


def test_every_control_has_a_name_that_tells_the_columns_apart(card: ComparisonCard) -> None:
    card.show_choices(7, default_choices([PIRATE], SAMPLING, None))
    for palette in PALETTES.values():
        show_palette(palette)
    tab = Qt.FocusPolicy.TabFocus
    stops = [
        each
        for each in card.findChildren(QWidget)
        if each.focusPolicy() & tab == tab and each.objectName() != "qt_spinbox_lineedit"
    ]
    names = [each.accessibleName() or each.property("text") for each in stops]
    assert all(names)
    assert len(set(names)) == len(names)
    assert "First answer: pirate-speech" in names
    assert "Second answer: Temperature" in names


# --- mixes ----------------------------------------------------------------------------------------

MIXES = {
    "At sea": (PIRATE,),
    "Letters & more": (replace(FORMAL, on=True, strength=0.5), replace(PIRATE, strength=-0.2)),
}


def test_a_mix_is_exactly_what_is_switched_on() -> None:
    choices = default_choices([PIRATE], SAMPLING, None)
    first, second = with_mix(choices, 1, MIXES["Letters & more"])
    assert first.adapters == (PIRATE, replace(FORMAL, on=False, strength=0.5))
    assert second.adapters == MIXES["Letters & more"][::-1]
    assert mix_name(second.adapters, MIXES) == "Letters & more"
    back = with_mix((first, second), 1, MIXES["At sea"])[1]
    assert [entry.acts for entry in back.adapters] == [True, False]
    assert mix_name(back.adapters, MIXES) == "At sea"
    assert mix_name([FORMAL], MIXES) == ""
    assert mix_name([], {"Empty": ()}) == ""


def test_a_mix_is_chosen_for_one_answer(card: ComparisonCard, qtbot: QtBot) -> None:
    card.show_choices(7, default_choices([PIRATE], SAMPLING, None), MIXES)
    buttons = [column.mix for column in card.columns]
    assert [button.text() for button in buttons] == ["At sea", "Choose a mix"]
    assert buttons[1].accessibleName() == "Second answer: Mix: Choose a mix"
    qtbot.mouseClick(card.more_button, Qt.MouseButton.LeftButton)
    card.columns[1].numbers["temperature"].picked.emit(0.1)
    menu = buttons[1].menu_of_choices()
    sea, letters = menu.actions()
    assert letters.text() == "Letters && more"
    assert not sea.isChecked()
    letters.trigger()
    menu.close()
    flush()
    assert [column.mix.text() for column in card.columns] == ["At sea", "Letters && more"]
    assert card.columns[0].numbers["top_k"].isVisible()
    assert card.columns[1].mix.hasFocus()
    _, first, second = accepted(card, qtbot)
    assert [(entry.name, entry.on) for entry in first.adapters] == [
        ("pirate-speech", True),
        ("formal", False),
    ]
    assert [(entry.name, entry.strength) for entry in second.adapters if entry.acts] == [
        ("pirate-speech", -0.2),
        ("formal", 0.5),
    ]
    assert (first.sampling.temperature, second.sampling.temperature) == (0.7, 0.1)
    assert card.columns[1].mix.menu_of_choices().actions()[1].isChecked()
    qtbot.mouseClick(card.columns[1].adapters[0].switch, Qt.MouseButton.LeftButton)
    assert card.columns[1].mix.text() == "Choose a mix"


def test_without_saved_mixes_there_is_no_row_for_them(card: ComparisonCard) -> None:
    card.show_choices(7, default_choices([PIRATE], SAMPLING, None), MIXES)
    assert all(column.mix and column.mix.isVisible() for column in card.columns)
    card.show_choices(7, default_choices([PIRATE], SAMPLING, None))
    assert [column.mix for column in card.columns] == [None, None]


# --- models ---------------------------------------------------------------------------------------

SMALL, BIG = Local(Path("/m/small.gguf")), Local(Path("/m/big.gguf"))
MODELS = [(SMALL, "Small 1B"), (BIG, "Big & 8B")]


def test_models_are_offered_if_there_are_several(card: ComparisonCard) -> None:
    card.show_choices(7, default_choices([], SAMPLING, None, SMALL, "Small 1B"), models=MODELS[:1])
    assert [column.model for column in card.columns] == [None, None]
    card.show_choices(7, default_choices([], SAMPLING, None, SMALL, "Small 1B"), models=MODELS)
    buttons = [column.model for column in card.columns]
    assert all(button is not None and button.text() == "Small 1B" for button in buttons)
    assert buttons[1] is not None
    assert buttons[1].accessibleName() == "Second answer: Model: Small 1B"


def test_two_models_are_compared_with_the_same_values(card: ComparisonCard, qtbot: QtBot) -> None:
    chosen = default_choices([PIRATE], SAMPLING, True, SMALL, "Small 1B")
    card.show_choices(7, chosen, models=MODELS)
    button = card.columns[1].model
    assert button is not None
    menu = button.menu_of_choices()
    assert [action.text() for action in menu.actions()] == ["Small 1B", "Big && 8B"]
    menu.actions()[1].trigger()
    assert card.columns[1].model is not None
    assert card.columns[1].model.hasFocus()
    assert [heading.text() for heading in card.headings] == [
        "Small 1B · pirate-speech at 0.80",
        "Big & 8B · Without adapters",
    ]
    assert card.note.text().startswith("The second answer waits until its model is loaded.")
    _, first, second = accepted(card, qtbot)
    assert (first.model, second.model) == (SMALL, BIG)
    assert (first.sampling, first.thinking) == (second.sampling, second.thinking)
    assert [entry.acts for entry in second.adapters or ()] == [False]


def test_first_answer_can_have_another_model_too(card: ComparisonCard, qtbot: QtBot) -> None:
    card.show_choices(7, default_choices([], SAMPLING, None, SMALL, "Small 1B"), models=MODELS)
    for place in (0, 1):
        button = card.columns[place].model
        assert button is not None
        button.picked.emit(BIG)
    assert card.note.text() == "You keep one; the other stays as a version."
    _, first, second = accepted(card, qtbot)
    assert (first.model, second.model) == (BIG, BIG)


def test_what_a_server_does_not_use_is_greyed_in_its_column(card: ComparisonCard) -> None:
    here, there = Local(Path("/m.gguf")), Remote("gpu", "big")
    gpu = Capabilities(server="gpu:8000", samplers=frozenset({"temperature"}), thinking=False)
    choices = default_choices([PIRATE], SAMPLING, None, here, "Small")
    card.show_choices(
        1,
        choices,
        models=[(here, "Small"), (there, "big")],
        capabilities=lambda model: gpu if model == there else Capabilities(adapters=True),
    )
    assert "greyed" not in card.note.text()
    model = card.columns[1].model
    assert model is not None
    model.picked.emit(there)
    first, second = card.columns
    for column, usable in ((first, True), (second, False)):
        assert column.numbers["temperature"].line.isEnabled()
        assert column.numbers["top_k"].line.isEnabled() is usable
        assert column.adapters[0].isEnabled() is usable
    assert not thinking(card, 1).isEnabled()
    assert second.numbers["top_k"].line.toolTip() == gpu.sampler_reason("top_k")
    assert card.note.text().startswith(f"{isolated('gpu:8000')} does not use what is greyed. ")
