"""Scenes of message parts: tools, attachments and thoughts in the transcript."""

from __future__ import annotations

from app.domain.message import MessageState
from app.domain.parts import (
    ErrorPart,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
)
from app.store.store import Store
from engine import Fault, FaultKind, Role
from scenes_chat import NAME, Scene, ready
from scenes_files import wait_for_counts
from stage import Stage, flush

LOG = "\n".join(f"2026-03-0{day} 07:{day}5 Kyoto rain {day * 3} mm" for day in range(1, 10)) + (
    "\n" + "2026-03-10 07:00 Kyoto sun\n" * 40
)
QUESTION: tuple[Part, ...] = (
    FilePart("", LOG),
    FilePart("packing list.txt", "A hat\nAn umbrella\nShoes"),
    ImagePart("garden.png", "0" * 64, "/pictures/garden.png", 1280, 960, 431_000),
    TextPart("What should I wear for a walk in Kyoto today?"),
)
ANSWER: tuple[Part, ...] = (
    ThoughtPart("\nThe log ends yesterday, so I should ask for the weather.\n"),
    TextPart("\n\nI look up the weather first.\n\n"),
    ToolCallPart("get_weather", '{"city": "Kyoto", "days": 1}', "1"),
    ToolCallPart("get_air_quality", '{"city": "Kyoto"}', "2"),
    ToolResultPart("get_weather", "07:00  9 °C  rain\n12:00  14 °C  showers", "1"),
    ToolResultPart("get_air_quality", "timed out", "2", failed=True),
    ThoughtPart("Rain in the morning, so an umbrella."),
    TextPart("It rains until noon: take the **umbrella** of your list, and the shoes."),
)


def _show(stage: Stage, answer: tuple[Part, ...], state: MessageState) -> None:
    """Open a chat with attachments and this answer."""
    store = Store.open(stage.folder / "conversations.sqlite")
    chat = store.create_conversation("A walk in Kyoto").id
    own = store.add_message(chat, None, Role.USER, QUESTION).id
    said = store.add_message(chat, own, Role.ASSISTANT, answer, MessageState.STREAMING, NAME).id
    error = ErrorPart(Fault(FaultKind.CHAT_FULL, most_context=4096), NAME)
    failed = state is MessageState.FAILED
    store.finish(said, state, error=error if failed else None, generated_tokens=90, seconds=6.0)
    store.close()
    ready(stage)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()


def parts(stage: Stage) -> None:
    _show(stage, ANSWER, MessageState.COMPLETE)


def parts_unfolded(stage: Stage) -> None:
    parts(stage)
    view = stage.window.transcript
    for message, row in ((1, 3), (1, 1), (1, 0), (0, 1)):
        view.message_layout.toggle_row(message, row)
    view.scroller.scroll_to(0)
    flush()


def parts_failed(stage: Stage) -> None:
    """An answer that failed after its tools; the keyboard is at the row of one."""
    _show(stage, ANSWER[:6], MessageState.FAILED)
    view = stage.window.transcript
    view.setFocus()
    view.keys.enter(backwards=False)
    view.keys.step(forward=True)
    flush()


def parts_editing(stage: Stage) -> None:
    parts(stage)
    stage.window.transcript.edit_message(stage.state.messages[0].id)
    wait_for_counts(stage)


SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (parts, parts_unfolded, parts_failed, parts_editing)
}
