"""Scenes of the answer options, for tests/pictures/shots.py."""

from __future__ import annotations

from dataclasses import replace

from app.domain.chat_settings import NO_SETTINGS, AnswerFormat
from app.settings.samplers import Thinking
from engine import CheckConstraint, ConstraintChecked
from scenes_chat import Scene, ready
from stage import Stage, flush

THOUGHT = """<think>
The question asks how many months have 28 days. Usually one thinks of February at once, since it is
the only month that has exactly 28 days in most years.

But it does not ask for months that have **only** 28 days. January has 31 days, so it has 28 days as
well. The same is true of March, April, May, and all others, so that
</think>

All twelve. Every month has at least 28 days; February is the only one that may have no more."""
SCHEMA = """{
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {"type": "integr"}
  },
  "required": ["name", "age"]
}"""


def _check(stage: Stage, message: str = "", line: int = 0) -> None:
    """Answer the check of the format in use."""
    command = stage.engine.last(CheckConstraint)
    stage.engine.deliver(ConstraintChecked(command.request, message, "", line, 20 if line else 0))
    stage.drain()


def options(stage: Stage) -> None:
    """Nothing is changed."""
    ready(stage)
    stage.window.options.open()
    flush()


def options_changed(stage: Stage) -> None:
    """Sampling values of this chat, those of "More values" too."""
    ready(stage)
    changed = NO_SETTINGS.with_value("temperature", 0.2).with_value("dry_multiplier", 0.8)
    stage.controller.chat_settings.change_shown(changed)
    stage.window.options.open()
    card = stage.window.options.card
    assert card is not None
    card.more_button.click()
    flush()


def options_schema(stage: Stage) -> None:
    """A schema that can be used."""
    ready(stage)
    text = SCHEMA.replace("integr", "integer")
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_format(AnswerFormat.SCHEMA, text))
    _check(stage)
    stage.window.options.open()
    flush()


def options_fault(stage: Stage) -> None:
    """A schema with a fault, whose line is marked."""
    ready(stage)
    stage.controller.chat_settings.change_shown(
        NO_SETTINGS.with_format(AnswerFormat.SCHEMA, SCHEMA)
    )
    _check(
        stage,
        "The JSON schema cannot be used: unknown type 'integr' (line 5, column 20).",
        5,
    )
    stage.window.options.open()
    flush()


def options_chip(stage: Stage) -> None:
    """The composer of a chat with a format and another temperature."""
    ready(stage)
    changed = NO_SETTINGS.with_format(AnswerFormat.CHOICES, "yes\nno").with_value(
        "temperature", 0.2
    )
    stage.controller.chat_settings.change_shown(changed)
    _check(stage)
    stage.window.composer.set_text("Is the sky blue at night?")
    flush()


def options_narrow(stage: Stage) -> None:
    """The smallest window."""
    ready(stage)
    stage.window.resize(420, 560)
    text = SCHEMA.replace("integr", "integer")
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_format(AnswerFormat.SCHEMA, text))
    _check(stage)
    stage.window.options.open()
    flush()


def thinking(stage: Stage) -> None:
    """A model that can think: a budget of thoughts for this chat."""
    _think(stage)
    stage.window.options.open()
    flush()


def thinking_narrow(stage: Stage) -> None:
    """The smallest window."""
    stage.window.resize(stage.window.minimumSize())
    thinking(stage)


def thought_to_its_budget(stage: Stage) -> None:
    """An answer whose thoughts were ended by their budget, folded."""
    _think(stage)
    stage.controller.new_conversation()
    stage.window.composer.submitted.emit("How many months have 28 days?")
    stage.wait_until_idle()
    stage.engine.write(THOUGHT, tokens=260)
    stage.engine.finish(
        tokens=260, thought_tokens=200, thought_seconds=12.3, thought_budget_reached=True
    )
    stage.wait_until_idle()


def thought_to_its_budget_open(stage: Stage) -> None:
    """The same with its thoughts shown."""
    thought_to_its_budget(stage)
    view = stage.window.transcript
    message = len(view.stack) - 1
    view.places.toggle_row(message, 0)
    flush()


def _think(stage: Stage) -> None:
    ready(stage, can_think=True)
    stage.controller.chat_settings.change_shown(
        replace(NO_SETTINGS, thinking=Thinking.BUDGET, thinking_budget=200)
    )


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        options,
        options_changed,
        options_schema,
        options_fault,
        options_chip,
        options_narrow,
        thinking,
        thinking_narrow,
        thought_to_its_budget,
        thought_to_its_budget_open,
    )
}
