"""Smoke test (`--smoke`): asks a question, and one that has two possible answers, opens every page,
typesets a formula, extracts the texts of two documents, and prints the first answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from PySide6.QtCore import SignalInstance
from PySide6.QtWidgets import QWidget

from app.chat.controller import Controller
from app.domain.chat_settings import AnswerFormat
from app.domain.message import Message, MessageState
from app.markdown.formulas import Tex
from app.settings.table import Settings
from app.state.attachments import AttachmentPhase
from app.state.chat import ModelPhase, State
from app.state.library import FileState, LibraryState
from app.system import paths
from app.system.translation import sentences
from app.ui.blocks.typesetting import Wrong, typeset
from app.ui.transcript.message.endings import ending
from app.ui.window import Window
from engine import starter_path

QUESTION = "What is the capital of France?"
CHOICE_QUESTION, CHOICES = "Is Paris in France?", ("yes", "no")
SETTINGS = Settings(temperature=0.0, max_tokens=60)  # deterministic and short
DEADLINE_SECONDS = 240
_PDF_TEXT = "Paris is its capital."
_JAPANESE_TEXT = "昨日の夕方、私たちは川のほとりを歩いて、太陽が森の向こうに沈むのを見ました。"
_PDF = (
    b"%%PDF-1.4\n1 0 obj<</Pages 2 0 R>>endobj 2 0 obj<</Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Parent 2 0 R/MediaBox[0 0 200 50]/Contents 4 0 R/Resources<</Font<</F<</Type/Font"
    b"/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj 4 0 obj<</Length 48>>stream\n"
    b"BT /F 9 Tf 9 9 Td (%s) Tj ET\nendstream endobj trailer<</Root 1 0 R>>"
) % _PDF_TEXT.encode()
_DOCUMENTS = {  # the one library needs its native part in the bundle, the other one its tables
    "smoke.pdf": (_PDF, _PDF_TEXT),
    "smoke.txt": (_JAPANESE_TEXT.encode("cp932"), _JAPANESE_TEXT),
}


class SmokeError(Exception):
    """The smoke test failed."""


async def run(controller: Controller, window: Window) -> str:
    """Run the test; returns the text to print, or raises SmokeError."""
    doing = "an answer"
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await _ask(controller, QUESTION)
            doing = "an answer of a given format"
            await _check_format(controller)
            doing = "a list of models"
            _open(window.library.open, lambda: window.library.page)
            await _check_models(controller.library.state)
            _open(window.preferences.open, lambda: window.preferences.page)
            _open(window.close_page, lambda: window.chat)
            typeset(Tex(r"\frac{x}{2}", display=False))
            doing = "the text of a document"
            for name, (content, text) in _DOCUMENTS.items():
                await _check_document(controller, name, content, text)
    except TimeoutError:
        raise SmokeError(f"There was not {doing} within {DEADLINE_SECONDS} seconds.") from None
    except Wrong as error:
        raise SmokeError(f"A formula could not be typeset: {error}") from None
    _check_notices(controller.state)
    speed = f"{answer.generated_tokens} tokens, {controller.state.speed:.1f} tokens/s"
    return f"> {QUESTION}\n{answer.text.strip()}\n\n{answer.model}: {speed}"


async def _check_format(controller: Controller) -> None:
    """An answer that has to be one of two words must be one of them."""
    usual = controller.state.settings(controller.state.current)
    controller.chat_settings.change_shown(
        usual.with_format(AnswerFormat.CHOICES, "\n".join(CHOICES))
    )
    found = (await _ask(controller, CHOICE_QUESTION)).text
    controller.chat_settings.change_shown(usual)
    if found not in CHOICES:
        raise SmokeError(f"An answer that had to be yes or no was {found!r}.")


async def _ask(controller: Controller, question: str) -> Message:
    """Wait for the model, send a question, and wait until the answer is complete."""
    state = controller.state
    while state.model.phase is not ModelPhase.READY:
        if state.model.error:
            raise SmokeError(sentences(state.model.error, state.model.remedy))
        await _state_changed(state)
    controller.send(question)
    while (answer := state.messages[-1]).state is MessageState.STREAMING:
        await _state_changed(state)
    if answer.error or answer.stop or not answer.text.strip():
        raise SmokeError(ending(answer) or "The answer was empty.")
    _check_notices(state)
    return answer


def _open(open_page: Callable[[], object], page: Callable[[], QWidget | None]) -> None:
    """Open a page and render it."""
    open_page()
    shown = page()
    if shown is None or not shown.isVisible() or shown.grab().isNull():
        raise SmokeError("A page was opened, but is not visible or could not be drawn.")


async def _check_models(library: LibraryState) -> None:
    """Wait for the scan of models; the starter, if installed, must be listed as usable."""
    starter = starter_path()
    while True:
        rows = [row for row in library.installed if row.path == starter]
        if library.searched and not (rows and rows[0].state is FileState.UNKNOWN):
            break
        await _wait_for(library.installed_changed)
    if starter.is_file() and (not rows or rows[0].state is not FileState.GOOD):
        why = sentences(rows[0].problem, rows[0].remedy) if rows else "It is not listed."
        raise SmokeError(f"{starter.name} is not listed as a usable model. {why}".strip())


async def _check_document(controller: Controller, name: str, content: bytes, text: str) -> None:
    """The text of an attached file must be extracted, by a child process of this program."""
    path = paths.data() / name
    path.write_bytes(content)
    attachments = controller.attachments
    attachments.attach([path])
    while True:
        found = attachments.state.of(controller.state.current)
        if found and found[0].phase is not AttachmentPhase.READING:
            break
        await _wait_for(attachments.state.changed)
    seen = found[0].file.text if found[0].file is not None else ""
    attachments.remove(found[0].id)
    if seen != text:
        raise SmokeError(f"The text of {name} was {seen!r}. {found[0].fault}".strip())


def _check_notices(state: State) -> None:
    """Raise SmokeError if the window shows a notice."""
    if notice := next(iter(state.notices.values()), None):
        raise SmokeError(sentences(notice.sentence, notice.remedy))


async def _state_changed(state: State) -> None:
    """Wait until the chat's state changes."""
    await _wait_for(
        state.model_changed, state.generations_changed, state.message_changed, state.notices_changed
    )


async def _wait_for(*signals: SignalInstance) -> None:
    """Wait until one of the signals is emitted."""
    changed = asyncio.Event()
    for signal in signals:
        signal.connect(changed.set)
    try:
        await changed.wait()
    finally:
        for signal in signals:
            signal.disconnect(changed.set)
