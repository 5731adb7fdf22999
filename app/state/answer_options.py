"""Observable answer options: those of the shown conversation, and the check of their format."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from app.settings.answer_options import AS_USUAL, AnswerOptions
from engine import Sampling


@dataclass(frozen=True, slots=True)
class FormatFault:
    """Why the described format cannot be used."""

    sentence: str
    line: int = 0  # from 1; 0: not known
    column: int = 0


class OptionsState(QObject):
    """Only `app.chat.answer_options` changes it."""

    changed = Signal()  # any of the values below

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.options = AS_USUAL  # of the shown conversation
        self.usual = Sampling()  # what its answers are sampled with where nothing is changed
        self.fault: FormatFault | None = None
        self.checking = False  # the newest description is being checked
        self.can_think = False  # the model in use can think before it answers

    def set(
        self,
        options: AnswerOptions,
        usual: Sampling,
        fault: FormatFault | None,
        *,
        checking: bool,
        can_think: bool,
    ) -> None:
        """Replace the values; emits `changed` if one differs."""
        before = self.options, self.usual, self.fault, self.checking, self.can_think
        if before != (options, usual, fault, checking, can_think):
            self.options, self.usual = options, usual
            self.fault, self.checking = fault, checking
            self.can_think = can_think
            self.changed.emit()
