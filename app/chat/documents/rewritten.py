"""Rewritten documents: what was made part by part of one, saved as a file.

Of a summary it is the answer, and what was made of each part below it.
"""

from __future__ import annotations

from pathlib import Path

from app.domain.file_words import section_words
from app.domain.parts import Parts, rewritten_text, sections, typed_text
from app.state.chat import Notice, State
from app.system.file_names import safe_name
from app.system.json_file import replace_file
from app.system.translation import tr, trn
from app.system.worker import BackgroundWorker

NOTICE = "rewritten"  # kind of the notice that a document could not be saved
SAVED_NOTICE = "saved"  # of the one about `Rewritten.saved`


def saved_text(parts: Parts) -> str:
    """The Markdown of the file; "" if there is nothing to save."""
    answer = typed_text(parts).strip()
    made = [part for part in sections(parts) if part.text]
    if not (answer and made):
        return rewritten_text(parts)
    return "\n\n".join([answer, *(f"## {section_words(part)}\n\n{part.text}" for part in made)])


class Rewritten:
    """Saves the sections of answers; every intent returns at once."""

    def __init__(self, state: State, user_files: BackgroundWorker) -> None:
        """`user_files` is the worker that writes files of the user."""
        self._state, self._user_files = state, user_files
        self.saved = Path()  # the file that was written last

    def name(self, message_id: int) -> str:
        """The name under which a document is offered to be saved."""
        message = self._state.message(message_id)
        parts = message.parts if message else ()
        name = next((Path(part.name).stem for part in sections(parts)), tr("Document"))
        if typed_text(parts).strip():
            return f"{safe_name(tr('{name}, summary', name=name), tr('Document'))}.md"
        return f"{safe_name(name, tr('Document'))} 2.md"

    def save(self, message_id: int, path: Path) -> None:
        """Write a document in place of a file, for Word if that ends in .docx, else as Markdown.

        A notice says so, or why it cannot be.
        """
        message = self._state.message(message_id)
        text = saved_text(message.parts) if message else ""
        made = sections(message.parts) if message else ()
        lacking = sum(part.cut or not part.text for part in made)
        if not text:
            return

        def write() -> str:
            from app.markdown.word import word_document  # with zipfile, which no start needs

            try:
                is_word = path.suffix.casefold() == ".docx"
                plain = (text + "\n").encode("utf-8", "replace")
                replace_file(path, word_document(text) if is_word else plain)
            except (OSError, ValueError) as error:  # also a path that no system has
                return getattr(error, "strerror", None) or str(error)
            return ""

        def written(fault: str) -> None:
            lacks = trn("{count} part is not complete.", "{count} parts are not complete.", lacking)
            sentence = tr("{name} could not be saved: {reason}", name=path.name, reason=fault)
            failed = Notice(sentence, tr("Choose another place.")) if fault else None
            self._state.set_notice(NOTICE, failed)
            if not fault:
                self.saved, sentence = path, tr("Saved as {path}.", path=str(path))
                notice = Notice(sentence, lacks if lacking else "", tr("Show in folder"))
                self._state.set_notice(SAVED_NOTICE, notice)

        self._user_files.run(write, written)
