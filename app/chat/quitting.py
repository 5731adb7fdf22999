"""What cannot be saved: the question before quitting loses it, and the notice of what was left out."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.state.chat import Notice, State
from app.store.store import StoreError
from app.store.writer import Archive, LeftOut

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


class LeftOutNotices:
    """Tells the user which changes can never be saved, and where their text is; each kind once."""

    def __init__(self, state: State, archive: Archive) -> None:
        self._state = state
        self._shown: set[Notice] = set()
        archive.change_left_out.connect(self._on_left_out)

    def _on_left_out(self, left_out: LeftOut) -> None:
        error = left_out.error
        why = str(error) if isinstance(error, StoreError) else f"({type(error).__name__})"
        if left_out.kept_in is not None:
            remedy = f"Its text is kept in {left_out.kept_in}."
        elif left_out.text:
            remedy = "Its text is only in this window: copy it before you quit."
        else:
            remedy = "The log says where it happened."
        notice = Notice(f"A change could not be saved and was left out: {why}", remedy)
        if notice not in self._shown:
            self._shown.add(notice)
            self._state.set_notice("unsaved", notice)
