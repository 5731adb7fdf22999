"""The preview of a file of chats: what would be imported, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.domain.transfer import PROGRAM_NAMES, Dropped, ImportPreview, Program
from app.system.translation import listed, sentences, tr, trn
from app.ui.theme.theme import BODY, READING, SMALL, font
from app.ui.widgets.controls import TextButton, label

CARD_WIDTH = 460


class PreviewCard(QWidget):
    """Says what a file contains; Import and Cancel."""

    accepted = Signal()
    cancelled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.title = label("", "", READING)
        self.title.setFont(font(READING, QFont.Weight.DemiBold))
        self.count = label("", "", BODY)
        self.notes = [label("", "secondary", SMALL) for _ in range(4)]
        self.problem = label("", "danger", SMALL)
        for words in (self.title, self.count, *self.notes, self.problem):
            words.setWordWrap(True)
        self.cancel_button = TextButton(tr("Cancel"), "outlined")
        self.import_button = TextButton("", "primary")
        self.cancel_button.clicked.connect(self.cancelled)
        self.import_button.clicked.connect(self.accepted)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addStretch(1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.import_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 18, 20, 16)
        layout.setSpacing(8)
        for words in (self.title, self.count, *self.notes, self.problem):
            layout.addWidget(words)
        layout.addSpacing(8)
        layout.addLayout(buttons)

    def show_preview(self, preview: ImportPreview) -> None:
        """Show what a file contains; a screen reader says all of it when the card opens."""
        self.title.setText(tr("Import chats from {program}", program=_names(preview.programs)))
        self.count.setText(_count_words(preview))
        notes = (
            _known_words(preview),
            dropped_words(preview.dropped),
            _untested_words(preview.untested),
            tr("You can undo the import.") if preview.chats else "",
        )
        for words, note in zip(self.notes, notes, strict=True):
            words.setText(note)
            words.setVisible(bool(note))
        problem = ""
        if preview.problem:
            rest = tr("The chats before the damaged place can be imported.")
            problem = sentences(preview.problem, rest) if preview.chats else preview.problem
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        self.import_button.setText(
            trn("Import {count} chat", "Import {count} chats", preview.chats)
            if preview.chats
            else tr("Nothing to import")
        )
        self.import_button.setEnabled(bool(preview.chats))
        said = (self.count, *self.notes, self.problem)
        self.setAccessibleDescription("\n".join(filter(None, (each.text() for each in said))))
        first = self.import_button if preview.chats else self.cancel_button
        self.setFocusProxy(first)


def _names(programs: tuple[Program, ...]) -> str:
    return listed(PROGRAM_NAMES[each] for each in programs)


def _count_words(preview: ImportPreview) -> str:
    if not preview.chats:
        return tr("All chats in this file are here already.") if preview.known else ""
    return tr(
        "{chats} with {messages}",
        chats=trn("{count} chat", "{count} chats", preview.chats),
        messages=trn("{count} message", "{count} messages", preview.messages),
    )


def _known_words(preview: ImportPreview) -> str:
    known = changed = ""
    if preview.known and preview.chats:
        known = trn(
            "{count} more chat is here already.",
            "{count} more chats are here already.",
            preview.known,
        )
    if preview.changed:
        changed = trn(
            "{count} chat was continued since it was imported: it is imported as a new chat.",
            "{count} chats were continued since they were imported: they are imported as new chats.",
            preview.changed,
        )
    return sentences(known, changed)


def dropped_words(dropped: Mapping[Dropped, int]) -> str:
    """What is left out, in one sentence; "": nothing."""
    counted = [_kind_words(kind, dropped[kind]) for kind in Dropped if dropped.get(kind)]
    return tr("Not imported: {things}.", things=listed(counted)) if counted else ""


def _kind_words(kind: Dropped, count: int) -> str:
    match kind:
        case Dropped.IMAGES:
            return trn("{count} picture", "{count} pictures", count)
        case Dropped.AUDIO:
            return trn("{count} recording", "{count} recordings", count)
        case Dropped.FILES:
            return trn("{count} attached file", "{count} attached files", count)
        case Dropped.HIDDEN:
            return trn("{count} hidden message", "{count} hidden messages", count)
        case Dropped.DAMAGED:
            return trn("{count} unreadable message", "{count} unreadable messages", count)
        case Dropped.CHATS:
            return trn("{count} unreadable chat", "{count} unreadable chats", count)
        case Dropped.EMPTY:
            return trn("{count} empty chat", "{count} empty chats", count)


def _untested_words(programs: tuple[Program, ...]) -> str:
    if not programs:
        return ""
    return tr(
        "Importing from {program} was never tested with a real export of it. Compare some chats"
        " afterwards.",
        program=_names(programs),
    )
