"""Scenes of passages: their list under a question, references in answers, and failed searches."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF

from app.domain.documents import DocumentKind, PageStart, PageUnit, Passage, Reads, SearchFault
from app.domain.message import MessageState
from app.domain.parts import ErrorPart, FilePart, Part, PassagesPart, TextPart
from app.store.store import Store
from engine import Role
from scenes_chat import NAME, Scene, ready
from stage import Stage, flush

PASSAGES = (
    Passage(
        1,
        "Pump P-200 manual.pdf",
        "The warranty of the pump is two years from the day of delivery. It does not cover seals,"
        " filters and the battery, which wear out. Keep the receipt: without it the serial number"
        " and the month of manufacture count.",
        "12",
        PageUnit.PAGE,
        "a" * 64,
        score=0.94,
    ),
    Passage(
        2,
        "Terms of sale.docx",
        "For goods that are used in a business the period is one year. A longer period that the"
        " maker grants in writing is not affected.",
        "",
        PageUnit.NONE,
        "b" * 64,
        score=0.71,
    ),
    Passage(
        3,
        "Pump P-200 manual.pdf",
        "Clean the filter every week and replace it every three months. A pump that ran dry is not"
        " repaired free of charge.",
        "14",
        PageUnit.PAGE,
        "a" * 64,
        score=0.38,
    ),
    Passage(
        4,
        "Prices 2026.xlsx",
        "| Part | Price | Warranty |\n|---|---|---|\n| Pump P-200 | 412.00 | 24 months |",
        "Pumps",
        PageUnit.SHEET,
        "c" * 64,
        score=0.22,
    ),
)
_PAGES = (
    "Pump P-200\n\nPut the pump on a firm floor, and let it stand upright for an hour.",
    f"Warranty\n\n{PASSAGES[0].text}\n\nThis does not touch your rights by law.",
    f"Care\n\n{PASSAGES[2].text}",
)
_TEXT = "\n\n".join(_PAGES)
_FILE = FilePart(
    "Pump P-200 manual.pdf",
    _TEXT,
    "a" * 64,
    DocumentKind.PDF,
    PageUnit.PAGE,
    tuple(
        PageStart(label, _TEXT.index(page))
        for label, page in zip(("11", "12", "14"), _PAGES, strict=True)
    ),
    Reads.PASSAGES,
)
_ASKED = TextPart("How long is the warranty of the pump, and what does it not cover?")
_SAID = (
    "The warranty is **two years** from delivery [1], or one year if you use the pump in a business"
    " [2]. These are not covered [1, 3]:\n\n"
    "- seals, filters and the battery [1]\n"
    "- a pump that ran dry [3]\n\n"
    "| Part | Warranty |\n|:--|:--|\n| Pump P-200 | 24 months [4] |\n\n"
    "The number [9] is of no passage, and `parts[1]` is code."
)


def _placed(passage: Passage) -> Passage:
    """A passage with its place in the manual, if it is of it."""
    start = _TEXT.find(passage.text)
    return passage if start < 0 else replace(passage, start=start, end=start + len(passage.text))


def show(
    stage: Stage,
    part: PassagesPart,
    answer: tuple[Part, ...] = (TextPart(_SAID),),
    error: ErrorPart | None = None,
) -> None:
    """Open a chat whose question has these passages."""
    store = Store.open(stage.folder / "conversations.sqlite")
    chat = store.create_conversation("The warranty of the pump").id
    part = replace(part, passages=tuple(map(_placed, part.passages)))
    asked = (_FILE, _ASKED) if error else (_FILE, part, _ASKED)
    own = store.add_message(chat, None, Role.USER, asked).id
    said = store.add_message(chat, own, Role.ASSISTANT, answer, MessageState.STREAMING, NAME).id
    state = MessageState.FAILED if error else MessageState.COMPLETE
    store.finish(said, state, error=error, generated_tokens=90, seconds=6.0)
    store.close()
    ready(stage)
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()


def unfold(stage: Stage) -> None:
    view = stage.window.transcript
    rows = view.stack.views[0].rows
    view.message_layout.toggle_row(0, len(rows) - 1)
    view.scroller.scroll_to(0)
    flush()


def passages(stage: Stage) -> None:
    show(stage, PassagesPart(PASSAGES, unread=5))


def passages_unfolded(stage: Stage) -> None:
    show(stage, PassagesPart(PASSAGES, unread=5))
    unfold(stage)


def passages_struck(stage: Stage) -> None:
    """One is pinned, one was struck out before, and one is struck out now; it is not sent."""
    one, two, three, four = PASSAGES
    made = (replace(one, pinned=True), two, three, replace(four, struck=True))
    show(stage, PassagesPart(made, searched="How long is the warranty of the pump?\nand for me?"))
    unfold(stage)
    stage.controller.retrieval.toggle(stage.state.messages[0].id, 3)
    stage.window.transcript.scroller.scroll_to(0)
    flush()


def passages_hover(stage: Stage) -> None:
    """The keyboard is at a reference, and the mouse at another."""
    show(stage, PassagesPart(PASSAGES))
    view = stage.window.transcript
    view.setFocus()
    view.keys.enter(backwards=False)
    view.keys.step(forward=True)
    layout, answer = view.message_layout, view.stack.views[1]
    part = answer.parts[0]
    area: QRectF = part.view.links()[0].moved(part.x, part.y).area
    point = area.center() + QPointF(layout.left_of(1), layout.message_top(1))
    view.pointer.moved(point)
    flush()


def passages_opened(stage: Stage) -> None:
    """A reference was followed: the passage is marked in its document."""
    show(stage, PassagesPart(PASSAGES))
    stage.window.transcript.message_layout.use_link(1, "passage:1")
    flush()


def passages_none(stage: Stage) -> None:
    show(stage, PassagesPart(), (TextPart("I know nothing of that."),))


def passages_failed(stage: Stage) -> None:
    show(stage, PassagesPart(), (), ErrorPart(SearchFault("disk I/O error")))


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        passages,
        passages_unfolded,
        passages_struck,
        passages_hover,
        passages_opened,
        passages_none,
        passages_failed,
    )
}
