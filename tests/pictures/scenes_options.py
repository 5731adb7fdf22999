"""Scenes of the answer options, for tests/pictures/shots.py."""

from __future__ import annotations

from app.settings.answer_options import AS_USUAL, AnswerFormat
from engine import CheckConstraint, ConstraintChecked
from scenes_chat import Scene, ready
from stage import Stage, flush

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
    changed = AS_USUAL.with_value("temperature", 0.2).with_value("dry_multiplier", 0.8)
    stage.controller.options.change(changed)
    stage.window.options.open()
    card = stage.window.options.card
    assert card is not None
    card.more_button.click()
    flush()


def options_schema(stage: Stage) -> None:
    """A schema that can be used."""
    ready(stage)
    text = SCHEMA.replace("integr", "integer")
    stage.controller.options.change(AS_USUAL.with_format(AnswerFormat.SCHEMA, text))
    _check(stage)
    stage.window.options.open()
    flush()


def options_fault(stage: Stage) -> None:
    """A schema with a fault, whose line is marked."""
    ready(stage)
    stage.controller.options.change(AS_USUAL.with_format(AnswerFormat.SCHEMA, SCHEMA))
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
    changed = AS_USUAL.with_format(AnswerFormat.CHOICES, "yes\nno").with_value("temperature", 0.2)
    stage.controller.options.change(changed)
    _check(stage)
    stage.window.composer.set_text("Is the sky blue at night?")
    flush()


def options_narrow(stage: Stage) -> None:
    """The smallest window."""
    ready(stage)
    stage.window.resize(420, 560)
    text = SCHEMA.replace("integr", "integer")
    stage.controller.options.change(AS_USUAL.with_format(AnswerFormat.SCHEMA, text))
    _check(stage)
    stage.window.options.open()
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        options,
        options_changed,
        options_schema,
        options_fault,
        options_chip,
        options_narrow,
    )
}
