"""Quitting: asks before it would lose anything, also when saving does not come to an end."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.archive import Archive
from app.state import Notice, State

FLUSH_MILLISECONDS = 5000  # that saving may take before the user is asked


class Quitting(QObject):
    """Flushes the store when the user wants to quit, and shows the question as a notice."""

    may_quit = Signal()  # all is saved, or the user does not mind

    def __init__(self, state: State, archive: Archive, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._archive = archive
        self._wanted = False  # asked for, and not taken back
        self.forced = False  # the user gave up what is not saved
        self._limit = QTimer(self, singleShot=True, interval=FLUSH_MILLISECONDS)
        self._limit.timeout.connect(self._on_slow)

    def ask(self) -> None:
        """Say `may_quit` when all is saved, or ask the user when it is not, or takes too long."""

        def flushed(left: int) -> None:
            if not self._wanted:
                return
            self._limit.stop()
            if left:
                self._question(
                    "Quitting now would lose the last changes, which could not be saved."
                )
            else:
                self.may_quit.emit()

        self._wanted = True
        self._limit.start()
        self._archive.flush(flushed)

    def quit_anyway(self) -> None:
        """The user does not want to wait for what is not saved."""
        self.forced = True
        self.may_quit.emit()

    def stay(self) -> None:
        """The user closed the question: the app stays open."""
        self._wanted = False
        self._limit.stop()

    def _on_slow(self) -> None:
        self._question(
            "Saving takes unusually long. The app closes when it is done; "
            "quitting now would lose the last changes."
        )

    def _question(self, sentence: str) -> None:
        self._state.set_notice("quit", Notice(sentence, "", "Quit anyway"))
