"""Long documents on an application stage: sent, and answered part by part by the fake engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.domain.documents import Reads
from app.domain.message import Message, MessageState
from app.domain.parts import SectionPart
from fakes import MODEL
from stage import Stage, flush, until

WISH = "Summarise this document."


def stages(folder: Path) -> Iterator[Callable[[], Stage]]:
    """Makes stages over one store, one after the other: each is a start of the app."""
    made: list[Stage] = []

    def start() -> Stage:
        if made:
            made[-1].close()
        made.append(Stage(folder))
        made[-1].ready(MODEL)
        return made[-1]

    folder.mkdir()
    yield start
    made[-1].close()


def document(words: int) -> str:
    """Paragraphs of forty words, all different."""
    each = [f"word{n}" for n in range(words)]
    return "\n\n".join(" ".join(each[at : at + 40]) for at in range(0, words, 40))


def ask(stage: Stage, tmp_path: Path, text: str, reads: Reads = Reads.SUMMARY) -> None:
    """Send a document that is to be read part by part."""
    path = tmp_path / "report.txt"
    path.write_text(text, encoding="utf-8")
    stage.controller.attachments.attach([path])
    for _ in range(3):
        stage.wait_until_idle()
    stage.controller.attachments.read_by_parts(reads)
    assert stage.controller.send(WISH)
    settle(stage)


def settle(stage: Stage) -> None:
    """Until the next request for text: parts are counted one after the other."""
    stage.drain()
    until(lambda: bool(stage.engine.unfinished) or last(stage).state is not MessageState.STREAMING)
    flush()


def last(stage: Stage) -> Message:
    return stage.state.messages[-1]


def sections(stage: Stage) -> list[SectionPart]:
    return [part for part in last(stage).parts if isinstance(part, SectionPart)]


def write(stage: Stage, text: str) -> None:
    stage.engine.write(text)
    stage.engine.finish()
    settle(stage)


def asked(stage: Stage) -> Any:
    """The request in progress."""
    [found] = stage.engine.unfinished
    return found


def read_part(text: str) -> str:
    """The text of the part in a prompt."""
    return text.split(">\n", 1)[1].rsplit("\n</", 1)[0]
