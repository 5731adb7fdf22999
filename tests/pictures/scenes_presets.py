"""Scenes of the presets: the menu at New chat, the chips, and the page, for tests/pictures/shots.py."""

from __future__ import annotations

from app.domain.chat import Preset
from app.domain.chat_settings import ChatSettings
from fakes import MODEL
from scenes_chat import Scene, ready
from stage import Stage, flush

ADA = Preset(
    1 << 40,
    "Ada Lovelace",
    ChatSettings(instructions="You are Ada Lovelace. Answer as she would.", stop=("###",)),
    frozenset(("instructions", "stop")),
    "Who wrote the first program",
    "*looks up from her notes* Good evening.",
    ("Oh, a visitor.",),
)


def chips(stage: Stage) -> None:
    ready(stage)
    stage.controller.presets.use(2)


def menu(stage: Stage) -> None:
    ready(stage)
    made = stage.window.preset_menu.menu()
    made.setParent(stage.window, made.windowFlags() & ~made.windowType())
    size = made.sizeHint()
    at_end = stage.window.width() - 12 - size.width()
    made.setGeometry(at_end if made.isRightToLeft() else 12, 46, size.width(), size.height())
    made.show()
    flush()


def page(stage: Stage) -> None:
    ready(stage)
    presets = stage.controller.presets
    presets.save(ADA)
    stage.controller.change_settings(new_chat_preset=1)
    presets.set_for_model(MODEL, 4)
    stage.window.presets.open()
    presets.delete(6)
    flush()


def editor(stage: Stage) -> None:
    page(stage)
    stage.window.presets.open().show_preset(ADA.id)
    flush()


def editor_below(stage: Stage) -> None:
    editor(stage)
    shown = stage.window.presets.page
    assert shown is not None
    shown.editor.parts["adapters"].switch.setFocus()
    area = shown.editor.parentWidget().parentWidget().parentWidget()
    bar = area.verticalScrollBar()  # type: ignore[attr-defined]
    bar.setValue(bar.maximum())
    flush()


def narrow(stage: Stage) -> None:
    stage.window.resize(480, 620)
    page(stage)


def greeting(stage: Stage) -> None:
    ready(stage)
    stage.controller.presets.save(ADA)
    stage.controller.presets.start(ADA.id)
    stage.wait_until_idle()


SCENES: dict[str, Scene] = {
    "presets_chips": chips,
    "presets_menu": menu,
    "presets": page,
    "presets_editor": editor,
    "presets_editor_below": editor_below,
    "presets_narrow": narrow,
    "presets_greeting": greeting,
}
