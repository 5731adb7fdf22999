"""Answers of other programs: a change of the model waits for them, says so, and can end them."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from app.state.chat import ModelPhase, Notice, State
from app.system.translation import tr, trn

NOTICE = "served"  # kind of the notice that a change of the model waits
_LOOK_MILLISECONDS = 300


class ServedAnswers(QObject):
    """Shows a notice while the engine holds a change of the main model for other programs.

    The engine lets their answers end before it replaces the model, and keeps back later ones.
    """

    def __init__(
        self,
        state: State,
        count: Callable[[], int],
        end: Callable[[], None],
        parent: QObject | None = None,
    ) -> None:
        """`count` returns the answers for other programs that a change of the main model waits for;
        `end` ends them.
        """
        super().__init__(parent)
        self._state, self._count, self._end = state, count, end
        self._unloads: object = None  # the load that is to go
        self._was_shown = False  # for this change: who closes the notice is not told again
        self._looks = QTimer(self, interval=_LOOK_MILLISECONDS)
        self._looks.timeout.connect(self.look)
        state.model_changed.connect(self._on_model)

    def on_unload(self) -> None:
        """The model is to be unloaded."""
        self._unloads = self._state.model.loaded
        self._on_model()

    def do_now(self) -> None:
        """End the answers that the change waits for."""
        self._state.set_notice(NOTICE, None)
        self._end()

    def look(self) -> None:
        """Show how many answers the change waits for now."""
        count = self._count()
        if not count:
            self._state.set_notice(NOTICE, None)
        elif not self._was_shown or NOTICE in self._state.notices:
            self._was_shown = True
            self._state.set_notice(NOTICE, self._notice(count))

    def _on_model(self) -> None:
        if self._is_loading() or self._is_unloading():
            if not self._looks.isActive():
                self._was_shown = False
                self._looks.start()
            return
        self._looks.stop()
        self._unloads = None
        if NOTICE in self._state.notices:
            self._state.set_notice(NOTICE, None)

    def _is_loading(self) -> bool:
        """Whether a model is to be loaded, and nothing of it was read yet."""
        model = self._state.model
        return model.phase is ModelPhase.LOADING and not model.done_bytes

    def _is_unloading(self) -> bool:
        return self._unloads is not None and self._state.model.loaded is self._unloads

    def _notice(self, count: int) -> Notice:
        if not self._is_loading():
            words = trn(
                "The model is unloaded after an answer for another program.",
                "The model is unloaded after {count} answers for other programs.",
                count,
            )
            return Notice(words, "", tr("Unload now"))
        words = trn(
            "{name} loads after an answer for another program.",
            "{name} loads after {count} answers for other programs.",
            count,
            name=self._state.model.name,
            count=count,
        )
        return Notice(words, "", tr("Load now"))
