"""What the panel of adapters shows: the stack of the shown conversation, and what there is to add.

`app.chat.adapters` is the only one that changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from PySide6.QtCore import QObject, Signal

from app.state.read_only import ReadOnly
from engine import AdapterInfo, AdapterUse

STRONGEST = 2.0  # either way; below 0 an adapter is subtracted


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    """One adapter of a stack or a mix."""

    path: Path
    on: bool = True
    strength: float = 1.0
    error: str = ""  # why it is off though it was switched on
    remedy: str = ""

    @property
    def name(self) -> str:
        """What to call it."""
        return adapter_name(self.path)

    @property
    def acts(self) -> bool:
        """Whether answers differ because of it."""
        return self.on and self.strength != 0


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """A file or folder that was added once."""

    path: Path
    name: str
    missing: bool = False  # when last looked


class AdapterState(QObject):
    """Observable; every signal is sent after the values have changed."""

    stack_changed = Signal()  # of the shown conversation
    known_changed = Signal()
    mixes_changed = Signal()
    applied_changed = Signal()  # what the engine has, is reading, or refused
    settled = Signal()  # the engine has answered all that was asked of it

    stack = ReadOnly[tuple[AdapterEntry, ...]]()  # the first is applied first
    known = ReadOnly[tuple[KnownAdapter, ...]]()  # the first added first
    mixes = ReadOnly[Mapping[str, tuple[AdapterEntry, ...]]]()  # in the order of their names
    applied = ReadOnly[tuple[AdapterUse, ...]]()  # in the engine
    infos = ReadOnly[Mapping[Path, AdapterInfo]]()  # of all that were loaded with this model
    reading = ReadOnly[frozenset[Path]]()  # files the engine is asked to load
    pending = ReadOnly[bool]()  # the answer being written here does not have the latest change
    fault = ReadOnly[tuple[str, str]]()  # of no single adapter: sentence and remedy

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stack = tuple[AdapterEntry, ...]()
        self._known = tuple[KnownAdapter, ...]()
        self._mixes: Mapping[str, tuple[AdapterEntry, ...]] = MappingProxyType({})
        self._applied = tuple[AdapterUse, ...]()
        self._infos: Mapping[Path, AdapterInfo] = MappingProxyType({})
        self._reading = frozenset[Path]()
        self._pending = False
        self._fault = ("", "")

    @property
    def mix(self) -> str:
        """The name of the mix that is the stack now, or nothing."""
        plain = uses_of(self.stack)
        return next((name for name, mix in self.mixes.items() if uses_of(mix) == plain), "")

    # --- changing: the controller only ----------------------------------------------------------

    def set_stack(self, stack: Sequence[AdapterEntry]) -> None:
        """Show this stack."""
        if tuple(stack) != self.stack:
            self._stack = tuple(stack)
            self.stack_changed.emit()

    def set_known(self, known: Sequence[KnownAdapter]) -> None:
        """Replace the files there are to choose from."""
        if tuple(known) != self.known:
            self._known = tuple(known)
            self.known_changed.emit()

    def set_mixes(self, mixes: Mapping[str, tuple[AdapterEntry, ...]]) -> None:
        """Replace the saved mixes."""
        ordered = {name: mixes[name] for name in sorted(mixes, key=str.casefold)}
        self._mixes = MappingProxyType(ordered)
        self.mixes_changed.emit()

    def set_applied(
        self,
        applied: tuple[AdapterUse, ...],
        infos: Mapping[Path, AdapterInfo],
        reading: frozenset[Path],
        fault: tuple[str, str],
    ) -> None:
        """The engine has, knows and reads these now."""
        if (applied, infos, reading, fault) != (
            self.applied,
            self.infos,
            self.reading,
            self.fault,
        ):
            self._applied, self._infos = applied, MappingProxyType(dict(infos))
            self._reading, self._fault = reading, fault
            self.applied_changed.emit()

    def set_pending(self, pending: bool) -> None:
        """Whether the answer being written here lacks the latest change."""
        if pending != self.pending:
            self._pending = pending
            self.applied_changed.emit()


def uses_of(entries: Sequence[AdapterEntry]) -> tuple[tuple[Path, bool, float], ...]:
    """What two stacks are compared by: errors make no difference."""
    return tuple((entry.path, entry.on or bool(entry.error), entry.strength) for entry in entries)


def adapter_name(path: Path) -> str:
    """What to call an adapter: its file's name without the ending, or its folder's name."""
    name = path.stem if path.suffix.lower() == ".gguf" else path.name
    return name.replace("_", " ").strip() or str(path)


def adapter_path(path: Path) -> Path:
    """Where an adapter is when a person points at it: a file inside a PEFT folder means the folder."""
    path = path.absolute()
    return path.parent if path.name in ("adapter_config.json", *_WEIGHTS) else path


def is_adapter_name(path: Path) -> bool:
    """Whether a name may be that of an adapter: any folder, a GGUF file, or part of a PEFT folder."""
    inside = path.name in ("adapter_config.json", *_WEIGHTS)
    return inside or path.suffix.lower() == ".gguf" or path.is_dir()


_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
