"""Variables in instructions: replaced at a chat's first message, and then kept."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.requests import prompts
from app.domain.chat_settings import ChatSettings, settings_text
from app.domain.variables import has_variables, resolved
from app.settings.table import Settings
from app.system import translation
from engine import Chat, Role
from fakes import MODEL
from stage import Stage

MONDAY = datetime(2026, 3, 2, 7, 5)
TUESDAY = datetime(2026, 3, 3, 18, 30)
SOURCE = "It is {{date}}, {{time}}. Answer in {{language}}. {{name}} {date}"


class Clock:
    """Gives the prompt builder the time."""

    now = MONDAY

    @classmethod
    def read(cls) -> datetime:
        return cls.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    Clock.now = MONDAY
    monkeypatch.setattr(prompts.PromptBuilder.__init__, "__defaults__", (Clock.read,))
    return Clock


def system(stage: Stage) -> str:
    """The instructions of the last request for an answer, which ends."""
    command = stage.engine.last(Chat)
    stage.engine.finish()
    stage.drain()
    assert command.turns[0].role is Role.SYSTEM
    return command.turns[0].text


def give(stage: Stage, instructions: str) -> None:
    stage.controller.chat_settings.change_shown(ChatSettings(instructions=instructions))


def test_words_of_the_variables() -> None:
    text = resolved(SOURCE, MONDAY)
    assert text == "It is Monday, 2 March 2026, 07:05. Answer in English. {{name}} {date}"
    assert resolved("{{ Date }}{{DATE}}", TUESDAY) == "Tuesday, 3 March 2026" * 2
    for plain in ("{{name}}", "{date}", "{{{dat}}}", "{{date", ""):
        assert not has_variables(plain)
        assert resolved(plain, MONDAY) == plain


def test_the_language_is_the_windows_by_its_english_name() -> None:
    try:
        for code in translation.LANGUAGES:
            translation.use(translation.Catalog(), language=code)
            assert resolved("{{language}}", MONDAY).isascii()
        translation.use(translation.Catalog(), language="de")
        assert resolved("{{language}}", MONDAY) == "German"
    finally:
        translation.use(translation.Catalog())


def test_a_chat_keeps_the_values_of_its_first_message(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    give(stage, SOURCE)
    stage.controller.send("one")
    first, chat = system(stage), stage.state.current
    assert first.startswith("It is Monday, 2 March 2026")
    Clock.now = TUESDAY
    stage.controller.send("two")
    assert system(stage) == first
    stage.close()
    again = Stage(tmp_path)
    try:
        again.ready(MODEL)
        assert chat is not None
        again.controller.open_conversation(chat)
        again.wait_until_idle()
        again.controller.send("three")
        assert system(again) == first
        copy = again.state.settings(chat)  # as a duplicate has it
        twin = again.store_queue
        twin.write(lambda store: store.create_conversation("twin", settings_text(copy), id=77))
        again.controller.conversations.read()
        again.wait_until_idle()
        again.controller.open_conversation(77)
        again.wait_until_idle()
        again.controller.send("four")
        assert system(again) == first
        give(again, f"Now: {SOURCE}")
        again.controller.send("five")
        assert system(again).startswith("Now: It is Tuesday, 3 March 2026, 18:30.")
    finally:
        again.close()


def test_instructions_of_the_settings_are_kept_too(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path, settings=Settings(system_prompt="Today is {{date}}."))
    try:
        stage.ready(MODEL)
        for _ in range(2):
            stage.controller.send("one")
            assert system(stage) == "Today is Monday, 2 March 2026."
            Clock.now = TUESDAY
        stage.controller.new_conversation()
        stage.controller.send("one")
        assert system(stage) == "Today is Tuesday, 3 March 2026."
        stage.controller.change_settings(system_prompt="The day is {{date}}.")
        stage.controller.send("two")
        assert system(stage) == "The day is Tuesday, 3 March 2026."
        stage.controller.change_settings(system_prompt="No variable.")
        stage.controller.send("three")
        assert system(stage) == "No variable."
    finally:
        stage.close()
