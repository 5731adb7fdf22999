"""Scenes of the panel of a chat, for tests/pictures/shots.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtWidgets import QLineEdit

from adapter_stage import FORMAL, PIRATE
from app.domain.chat_settings import NO_SETTINGS, AdapterChoice, AnswerFormat
from app.domain.model_ref import Local
from app.settings.samplers import Thinking
from app.ui.panel.content import PanelContent
from engine import CheckConstraint, ConstraintChecked, ContextPolicy
from scenes_chat import Scene, ask, ready
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


def open_panel(stage: Stage, part: str = "") -> PanelContent:
    """Open the panel at a section, and return its content."""
    stage.window.open_panel(part)
    flush()
    return stage.window.panel.content


def panel(stage: Stage) -> None:
    """Nothing is set."""
    ready(stage)
    open_panel(stage)


def panel_usual(stage: Stage) -> None:
    """Instructions of the settings are in use; the new chat."""
    ready(stage, can_think=True)
    stage.controller.new_conversation()
    stage.controller.change_settings(system_prompt="Answer in short, plain sentences.")
    open_panel(stage)


def everything(stage: Stage) -> None:
    """Everything is set."""
    ready(stage, can_think=True)
    settings = replace(
        NO_SETTINGS.with_format(AnswerFormat.SCHEMA, SCHEMA),
        model=Local(stage.state.model.path or Path("/models/none.gguf")),
        instructions="You are a gardener of bonsai trees.\nToday is {{date}}. Answer in "
        "{{language}}, in three sentences at most, and name the tree that you speak of.",
        stop=("\nUser:", "###"),
        thinking=Thinking.BUDGET,
        thinking_budget=200,
        policy=ContextPolicy.STOP,
        adapters=(AdapterChoice(PIRATE), AdapterChoice(FORMAL, strength=0.65)),
    )
    for name, value in {"temperature": 0.2, "seed": 7, "dry_multiplier": 0.8}.items():
        settings = settings.with_value(name, value)
    stage.controller.chat_settings.change_shown(settings)
    _check(stage, "The JSON schema cannot be used: unknown type 'integr' (line 5, column 20).", 5)


def panel_set(stage: Stage) -> None:
    """Everything is set: the model and the instructions."""
    everything(stage)
    open_panel(stage)


def panel_sampling(stage: Stage) -> None:
    """Everything is set: sampling, with all values."""
    everything(stage)
    content = open_panel(stage, "sampling")
    content.sampling.more_button.click()
    flush()
    content.reveal("sampling")


def panel_format(stage: Stage) -> None:
    """Everything is set: stop texts, and a schema with a fault, whose line is marked."""
    everything(stage)
    open_panel(stage, "stop")


def panel_end(stage: Stage) -> None:
    """Everything is set: thinking, a full chat and adapters."""
    everything(stage)
    open_panel(stage, "thinking")


def panel_undo(stage: Stage) -> None:
    """All was reset."""
    everything(stage)
    open_panel(stage).reset_button.click()
    flush()


def panel_pending(stage: Stage) -> None:
    """Changed during an answer."""
    ready(stage)
    ask(stage)
    stage.engine.write("Because air scatters blue light")
    stage.wait_until_idle()
    open_panel(stage)
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_value("temperature", 0.2))
    flush()


def panel_keyboard(stage: Stage) -> None:
    """The keyboard focus is on a row."""
    ready(stage)
    content = open_panel(stage, "sampling")
    stage.window.activateWindow()
    content.sampling.rows["temperature"].findChild(QLineEdit).setFocus()
    flush()


def panel_narrow(stage: Stage) -> None:
    """A narrow window."""
    stage.window.resize(420, 680)
    panel_set(stage)


def format_chip(stage: Stage) -> None:
    """The composer of a chat with a format and another temperature."""
    ready(stage)
    changed = NO_SETTINGS.with_format(AnswerFormat.CHOICES, "yes\nno").with_value(
        "temperature", 0.2
    )
    stage.controller.chat_settings.change_shown(changed)
    _check(stage)
    stage.window.composer.set_text("Is the sky blue at night?")
    flush()


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
    view.message_layout.toggle_row(message, 0)
    flush()


def _think(stage: Stage) -> None:
    ready(stage, can_think=True)
    stage.controller.chat_settings.change_shown(
        replace(NO_SETTINGS, thinking=Thinking.BUDGET, thinking_budget=200)
    )


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        panel,
        panel_usual,
        panel_set,
        panel_sampling,
        panel_format,
        panel_end,
        panel_undo,
        panel_pending,
        panel_keyboard,
        panel_narrow,
        format_chip,
        thought_to_its_budget,
        thought_to_its_budget_open,
    )
}
