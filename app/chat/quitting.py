"""Quitting with unsaved changes: flushes the store, asks the user, reports rejected changes."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.state.chat import Notice, State
from app.store.store import StoreError
from app.store.writer import RejectedChange, StoreQueue
from app.system.translation import tr

FLUSH_MILLISECONDS = 5000  # time limit of the flush; after it the user is asked


class Quitting(QObject):
    """Flushes the store before quitting; shows a notice when changes would be lost."""

    may_quit = Signal()  # all is saved, or the user quits without saving

    def __init__(
        self, state: State, store_queue: StoreQueue, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._state = state
        self._store_queue = store_queue
        self._requested = False  # the user has asked to quit and has not cancelled
        self.forced = False  # the user quits without saving
        self._limit = QTimer(self, singleShot=True, interval=FLUSH_MILLISECONDS)
        self._limit.timeout.connect(self._on_slow)

    def ask(self) -> None:
        """Emit `may_quit` when all is saved; ask the user when saving fails or takes too long."""

        def flushed(left: int) -> None:
            if not self._requested:
                return
            self._limit.stop()
            if left:
                self._ask_user(
                    tr("Your last changes could not be saved. If you quit now, they are lost.")
                )
            else:
                self.may_quit.emit()

        self._requested = True
        self._limit.start()
        self._store_queue.flush(flushed)

    def quit_anyway(self) -> None:
        """Quit without waiting for unsaved changes."""
        self.forced = True
        self.may_quit.emit()

    def stay(self) -> None:
        """Cancel quitting: the user closed the question."""
        self._requested = False
        self._limit.stop()

    def _on_slow(self) -> None:
        self._ask_user(
            tr(
                "Your last changes are still being saved. Tokonoma closes when that is done; if you "
                "quit now, they are lost."
            )
        )

    def _ask_user(self, sentence: str) -> None:
        self._state.set_notice("quit", Notice(sentence, "", tr("Quit anyway")))


class RejectedNotices:
    """Shows a notice for each kind of change the store rejects, and says where its text is kept."""

    def __init__(self, state: State, store_queue: StoreQueue) -> None:
        self._state = state
        self._shown: set[Notice] = set()
        store_queue.change_rejected.connect(self._on_rejected)

    def _on_rejected(self, rejected: RejectedChange) -> None:
        error = rejected.error
        why = str(error) if isinstance(error, StoreError) else f"({type(error).__name__})"
        if rejected.kept_in is not None:
            remedy = tr("Its text is kept in {file}.", file=rejected.kept_in)
        elif rejected.text:
            remedy = tr("Its text is only in this window. Copy it before you quit.")
        else:
            remedy = tr("The log has the details.")
        notice = Notice(tr("A change could not be saved: {reason}", reason=why), remedy)
        if notice not in self._shown:
            self._shown.add(notice)
            self._state.set_notice("unsaved", notice)
