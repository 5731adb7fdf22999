"""Scenes of the adapter panel and of the adapter icon on answers, for tests/pictures/shots.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QPoint

from adapter_stage import FOLDER, FORMAL, PIRATE, SHORT, accept, refuse
from app.chat.models.adapters import Adapters
from app.domain.message import AdapterMark
from app.ui.panel.adapters import AdapterSection
from scenes_chat import ask, ready
from stage import Stage, flush


def panel_of(stage: Stage) -> tuple[AdapterSection, Adapters]:
    """Open the panel at the adapters; returns their section and their controller."""
    stage.window.open_panel("adapters")
    flush()
    return stage.window.panel.adapters, stage.controller.adapters


def add(stage: Stage, adapters: Adapters, path: Path, strength: float = 1.0) -> None:
    """Add an adapter that the engine accepts, with a strength."""
    adapters.add(path)
    accept(stage.engine)
    stage.wait_until_idle()
    if strength != 1.0:
        adapters.set_strength(len(stage.states.adapters.stack) - 1, strength)
        adapters.flush()
        accept(stage.engine)
        stage.wait_until_idle()


def three(stage: Stage) -> tuple[AdapterSection, Adapters]:
    ready(stage)
    panel, adapters = panel_of(stage)
    add(stage, adapters, PIRATE)
    add(stage, adapters, FORMAL, 0.65)
    add(stage, adapters, SHORT, -0.5)
    adapters.set_on(2, False)
    accept(stage.engine)
    stage.wait_until_idle()
    return panel, adapters


def empty(stage: Stage) -> None:
    ready(stage)
    panel_of(stage)


def no_model(stage: Stage) -> None:
    stage.start()
    _, adapters = panel_of(stage)
    adapters.add(PIRATE)
    stage.wait_until_idle()


def stacked(stage: Stage) -> None:
    panel, _ = three(stage)
    panel.list.rows[1].open_details()
    ask(stage)
    stage.engine.write("Arr, the sky be blue because the air scatters blue light the most.")
    stage.engine.finish()
    stage.wait_until_idle()


def failed(stage: Stage) -> None:
    ready(stage)
    _, adapters = panel_of(stage)
    add(stage, adapters, PIRATE)
    adapters.add(FORMAL)
    refuse(stage.engine)
    stage.wait_until_idle()


def mixes(stage: Stage) -> None:
    _, adapters = three(stage)
    adapters.save_mix("Captain, formal")
    adapters.set_strength(0, 0.3)
    adapters.flush()
    accept(stage.engine)
    stage.wait_until_idle()
    adapters.save_mix("Only a little of the sea, and never more than two sentences in a row")
    adapters.save_mix("هادئ")


def naming(stage: Stage) -> None:
    panel, _ = three(stage)
    panel.mixes.save_button.click()


def dragging(stage: Stage) -> None:
    panel, _ = three(stage)
    row = panel.list.rows[0]
    row.handle.pressed_at.emit()
    below = panel.list.rows[1]
    row.handle.dragged_to.emit(below.mapToGlobal(QPoint(0, below.height() - 4)).y())


def pending(stage: Stage) -> None:
    _, adapters = three(stage)
    ask(stage)
    stage.engine.write("Arr, the sky be blue")
    stage.wait_until_idle()
    adapters.set_on(1, False)
    stage.wait_until_idle()


def names(stage: Stage) -> None:
    ready(stage)
    _, adapters = panel_of(stage)
    for name in (
        "محاكاة أسلوب القصص القديمة.gguf",
        "文言文写作风格_增强版_第三次训练_最终.gguf",
        "SmolLM2-135M-Instruct-customer-support-tone-r16-alpha32-epoch3-merged-final-v2.gguf",
        *(f"style {number}.gguf" for number in range(1, 9)),
    ):
        add(stage, adapters, FOLDER / name)
    stage.window.panel.content.reveal("adapters")


def narrow(stage: Stage) -> None:
    stage.window.resize(420, 640)
    three(stage)
    flush()


def keyboard(stage: Stage) -> None:
    panel, _ = three(stage)
    stage.window.activateWindow()
    panel.list.rows[1].slider.setFocus()


def typing(stage: Stage) -> None:
    panel, _ = three(stage)
    stage.window.activateWindow()
    panel.list.rows[1].field.setFocus()


def badge(stage: Stage) -> None:
    ready(stage)
    ask(stage)
    stage.engine.write("The sky is blue because air scatters short wavelengths the most.")
    stage.engine.finish()
    stage.wait_until_idle()
    marks = (AdapterMark("pirate-speech", 1.0, "5f3a"), AdapterMark("formal-german", 0.65, "77aa"))
    for message in stage.state.messages[1:]:
        stage.state.change(replace(message, adapters=marks))
    ask(stage, "And at sunset?")
    stage.engine.write("At sunset the light crosses so much air that the blue is gone.")
    stage.engine.finish()
    stage.wait_until_idle()


Scene = Callable[[Stage], None]
SCENES: dict[str, Scene] = {
    "adapters_empty": empty,
    "adapters_no_model": no_model,
    "adapters_stacked": stacked,
    "adapters_failed": failed,
    "adapters_mixes": mixes,
    "adapters_naming": naming,
    "adapters_dragging": dragging,
    "adapters_pending": pending,
    "adapters_names": names,
    "adapters_narrow": narrow,
    "adapters_keyboard": keyboard,
    "adapters_typing": typing,
    "adapters_badge": badge,
}
