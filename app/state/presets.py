"""Observable presets: those of the app and of the user, and what new chats begin with.

Only `app.chat.settings.presets` changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Signal

from app.domain.chat import Preset
from app.state.observable import Observable, ReadOnly


@dataclass(frozen=True, slots=True)
class PresetUse:
    """The presets that new chats begin with, and the one of the shown chat."""

    shown: int | None = None  # whose settings the shown chat has
    new_chat: int | None = None  # by the settings
    model: int | None = None  # by those of the model in use
    model_path: Path | None = None  # of the model in use, if it is a file
    model_name: str = ""


class PresetState(Observable):
    """Observable; every signal is sent after the values have changed."""

    changed = Signal()  # `presets`, `deleted` or `restorable`
    use_changed = Signal()

    presets = ReadOnly[tuple[Preset, ...]](())  # those of the app first, without deleted ones
    deleted = ReadOnly[Preset | None](None)  # that Undo restores
    restorable = ReadOnly(False)  # some of the app were changed or deleted
    use = ReadOnly(PresetUse())

    def preset(self, id: int | None) -> Preset | None:
        """A preset that is not deleted."""
        return next((preset for preset in self.presets if preset.id == id), None)

    # --- changing: the controller only ----------------------------------------------------------

    def set(self, presets: Sequence[Preset], deleted: Preset | None, *, restorable: bool) -> None:
        """Replace the presets, and what can be restored."""
        before = self.presets, self.deleted, self.restorable
        self._presets, self._deleted = tuple(presets), deleted
        self._restorable = restorable
        if (self.presets, deleted, restorable) != before:
            self.changed.emit()

    def set_use(self, use: PresetUse) -> None:
        """Say which presets are in use."""
        self._set(self.use_changed, use=use)
