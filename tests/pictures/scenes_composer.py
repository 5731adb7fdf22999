"""Scenes of the composer, for tests/pictures/shots.py."""

from __future__ import annotations

from PySide6.QtCore import QMimeData
from PySide6.QtTest import QTest

from app.domain.parts import FilePart, TextPart
from engine import FinishReason
from scenes_chat import Scene, answer, ready, streaming
from stage import Stage, flush


def drafting(stage: Stage) -> None:
    ready(stage)
    stage.window.composer.set_text("A first line.\nA second line that says more.\n\nAnd a third.")
    flush()


def full_composer(stage: Stage) -> None:
    ready(stage)
    stage.window.composer.insert("\n".join(f"Line {n} of a long message" for n in range(1, 41)))
    flush()


def pasted(stage: Stage) -> None:
    ready(stage)
    data = QMimeData()
    data.setText("Dear landlord,\n" + "\n".join(f"Line {n} of a letter" for n in range(300)))
    stage.window.composer.editor.insertFromMimeData(data)
    stage.window.composer.insert("Please summarise this in three points.")
    flush()


CODE = """def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]"""


def queue(stage: Stage) -> None:
    """Three messages wait for the answer, one of them held since another one."""
    streaming(stage)
    controller = stage.controller
    controller.send("And why is it red in the evening?")
    controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    controller.send("Go on, please.")
    stage.engine.write("The blue light is scattered most, ")
    controller.send((FilePart("", f"{CODE}\n" * 20), TextPart("Does this do the same?")))
    controller.send(
        "Then write it down as one rule, with an example for each of its three cases please"
    )
    stage.window.composer.insert("And")
    stage.drain()


PROMPTS = (
    "Summarise this in three sentences, for a reader who has not seen it:\n",
    "Review this code. Name faults only, the worst one first.\n",
    "Translate into plain German.",
    "Rewrite this more politely, and keep its length.",
)


def saved_prompts(stage: Stage) -> None:
    """The list behind "/"."""
    ready(stage)
    for text in PROMPTS:
        stage.controller.snippets.add(text)
    stage.window.composer.setFocus()
    QTest.keyClicks(stage.window.composer.editor, "/")
    flush()


def prompt_card(stage: Stage) -> None:
    """The card of the saved prompts, after one was deleted, and while another is edited."""
    saved_prompts(stage)
    stage.window.prompt_list.close_list()
    stage.window.composer.set_text("Explain this to a child.")
    stage.window.open_prompts()
    stage.controller.snippets.delete(stage.states.snippets.snippets[0].id)
    flush()
    stage.window.prompts.rows[1].edit.click()
    flush()


def own_code(stage: Stage) -> None:
    """A question with pasted code that has no fence."""
    ready(stage)
    stage.controller.send(f"{CODE}\n\nWhy does this fail for an even number of values?")
    answer(stage, "It takes the upper one of the two middle values.")


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        *(drafting, full_composer, pasted, queue, own_code),
        *(saved_prompts, prompt_card),
    )
}
