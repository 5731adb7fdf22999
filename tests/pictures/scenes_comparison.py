"""Scenes of two compared answers and of the card that asks for them, for tests/pictures/shots.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from adapter_stage import FORMAL, PIRATE
from app.domain.message import Message
from app.domain.model_ref import Local
from engine import Chat, FinishReason
from scenes_adapters import add
from scenes_chat import ask, ready
from stage import Stage, flush

PLAIN = (
    "Sunlight holds every colour. As it crosses the air, tiny molecules scatter the short, blue "
    "waves far more than the long, red ones.\n\nSo blue light reaches your eyes from **every part "
    "of the sky**, not only from the sun.\n\n- Noon: little air on the way, much blue\n"
    "- Sunset: a long way through the air, and mostly red is left\n"
)
SALTY = (
    "Arr, ye ask why the heavens be blue! The sun sends all the colours o' the rainbow, and the "
    "air be throwin' the small blue waves about like spray off the bow.\n\nThe red ones sail "
    "straight on, so blue be what ye see wherever ye look.\n"
)


def answered(stage: Stage, words: str = "Why is the sky blue?") -> Message:
    ready(stage)
    ask(stage, words)
    stage.engine.write("Because of the air.")
    stage.engine.finish()
    stage.wait_until_idle()
    return stage.state.messages[-1]


def compare(stage: Stage, one: str, other: str) -> tuple[Chat, Chat]:
    """Compare two answers as the card proposes it, and write something of both."""
    stage.window.transcript.compare_requested.emit(stage.state.messages[-1].id)
    card = stage.window.cards.comparison
    assert card is not None
    card.compare_button.click()
    first, second = stage.engine.unfinished
    stage.engine.interleave({first.request: one, second.request: other})
    stage.drain()
    flush()
    return first, second


def with_adapter(stage: Stage) -> None:
    answered(stage)
    add(stage, stage.controller.adapters, PIRATE, 0.8)


def streaming(stage: Stage) -> None:
    with_adapter(stage)
    compare(stage, SALTY[:190], PLAIN[:231])


def finished(stage: Stage) -> None:
    with_adapter(stage)
    for command in compare(stage, SALTY, PLAIN):
        stage.engine.finish(request=command.request)
    stage.wait_until_idle()


def temperatures(stage: Stage) -> None:
    stage.window.resize(1500, 860)
    answered(stage, "Show me how to read a file in Python.")
    code = (
        '```python\nfrom pathlib import Path\n\ntext = Path("notes.txt").read_text("utf-8")\n```\n'
    )
    first, second = compare(
        stage,
        f"Use `pathlib`:\n\n{code}\nIt closes the file for you.",
        f"Here is one way:\n\n{code}\n| Call | Reads |\n|---|---|\n| `read_text` | text |\n",
    )
    stage.engine.finish(request=first.request)
    stage.engine.finish(request=second.request, reason=FinishReason.CANCELLED)
    stage.wait_until_idle()


def one_ended(stage: Stage) -> None:
    with_adapter(stage)
    first, _ = compare(stage, SALTY, PLAIN[:180])
    stage.engine.finish(request=first.request)
    stage.drain()


def uneven(stage: Stage) -> None:
    """A short answer beside a long one, where the long one ends."""
    with_adapter(stage)
    for command in compare(stage, "Arr, 'tis the air.", "\n".join([PLAIN] * 5)):
        stage.engine.finish(request=command.request)
    stage.wait_until_idle()
    stage.window.transcript.jump_to_end()
    flush()


def refused(stage: Stage) -> None:
    finished(stage)
    stage.window.composer.set_text("And at sunset?")
    stage.window.composer.submitted.emit("And at sunset?")


def narrow(stage: Stage) -> None:
    stage.window.resize(560, 820)
    finished(stage)


def kept(stage: Stage) -> None:
    finished(stage)
    stage.window.transcript.keep_requested.emit(
        stage.state.compared[stage.state.messages[-1].id].id
    )
    stage.wait_until_idle()


def card(stage: Stage) -> None:
    with_adapter(stage)
    stage.window.transcript.compare_requested.emit(stage.state.messages[-1].id)


def card_mixes(stage: Stage) -> None:
    """Two saved mixes, of which each answer gets one."""
    with_adapter(stage)
    adapters = stage.controller.adapters
    adapters.save_mix("At sea")
    add(stage, adapters, FORMAL, 0.65)
    adapters.save_mix("Letters from the harbour office")
    stage.window.transcript.compare_requested.emit(stage.state.messages[-1].id)
    shown = stage.window.cards.comparison
    assert shown is not None
    shown.columns[1].mix.picked.emit("At sea")
    flush()


def card_more(stage: Stage) -> None:
    answered(stage)
    stage.window.transcript.compare_requested.emit(stage.state.messages[-1].id)
    shown = stage.window.cards.comparison
    assert shown is not None
    shown.more_button.click()


def card_models(stage: Stage) -> None:
    """Another model writes the second answer."""
    with_adapter(stage)
    stage.window.transcript.compare_requested.emit(stage.state.messages[-1].id)
    shown = stage.window.cards.comparison
    assert shown is not None
    assert shown.columns[1].model is not None
    shown.columns[1].model.picked.emit(Local(Path("/models/b.gguf")))


def models_waiting(stage: Stage) -> None:
    """The second answer waits for its model."""
    card_models(stage)
    shown = stage.window.cards.comparison
    assert shown is not None
    shown.compare_button.click()
    stage.engine.write(PLAIN[:231])
    stage.drain()
    flush()


def card_models_narrow(stage: Stage) -> None:
    stage.window.resize(440, 520)
    card_models(stage)


def card_narrow(stage: Stage) -> None:
    stage.window.resize(440, 520)
    card(stage)


def panel(stage: Stage) -> None:
    with_adapter(stage)
    stage.window.open_panel("adapters")
    flush()


SCENES: dict[str, Callable[[Stage], None]] = {
    "compared_streaming": streaming,
    "compared": finished,
    "compared_uneven": uneven,
    "compared_wide": temperatures,
    "compared_narrow": narrow,
    "compared_one_ended": one_ended,
    "compared_refused": refused,
    "compared_kept": kept,
    "comparison_card": card,
    "comparison_card_mixes": card_mixes,
    "comparison_card_more": card_more,
    "comparison_card_models": card_models,
    "comparison_card_models_narrow": card_models_narrow,
    "compared_models_waiting": models_waiting,
    "comparison_card_narrow": card_narrow,
    "comparison_panel": panel,
}
