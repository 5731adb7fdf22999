"""Observable state of the adapter panel: the shown chat's stack, saved mixes and known files.

Only `app.chat.models.adapters` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from PySide6.QtCore import Signal

from app.domain.generation_settings import UsedAdapter
from app.state.observable import EMPTY, Observable, ReadOnly
from engine import AdapterInfo, AdapterUse, Fault

STRONGEST = 2.0  # largest absolute strength; a negative one subtracts the adapter


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    """One adapter of a stack or a mix."""

    path: Path
    on: bool = True
    strength: float = 1.0
    error: str = ""  # why the engine refused it, which switched it off
    remedy: str = ""
    fault: Fault | None = None  # `error` as a code

    @property
    def name(self) -> str:
        """The displayed name."""
        return adapter_name(self.path)

    @property
    def acts(self) -> bool:
        """Whether it changes answers: on, with a strength other than 0."""
        return self.on and self.strength != 0

    @property
    def used(self) -> UsedAdapter:
        """The same, as it is offered for one answer."""
        return UsedAdapter(self.name, self.strength, self.path, self.on)


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """A file or folder that was added once."""

    path: Path
    name: str
    missing: bool = False  # when last checked


class AdapterState(Observable):
    """Observable; every signal is sent after the values have changed."""

    stack_changed = Signal()  # of the shown conversation
    known_changed = Signal()
    mixes_changed = Signal()
    applied_changed = Signal()  # any of `applied`, `infos`, `reading`, `pending`, `fault`
    request_finished = Signal()  # the engine has answered a SetAdapters

    stack = ReadOnly[tuple[AdapterEntry, ...]](())  # the first is applied first
    known = ReadOnly[tuple[KnownAdapter, ...]](())  # the oldest first
    mixes = ReadOnly[Mapping[str, tuple[AdapterEntry, ...]]](EMPTY)  # sorted by name
    applied = ReadOnly[tuple[AdapterUse, ...]](())  # in the engine
    infos = ReadOnly[Mapping[Path, AdapterInfo]](EMPTY)  # of all loaded since the model was
    reading = ReadOnly[frozenset[Path]](frozenset[Path]())  # files the engine is loading
    pending = ReadOnly(False)  # the current answer was started with another stack
    fault = ReadOnly[tuple[str, str]](("", ""))  # error of the whole stack: sentence and remedy

    @property
    def mix(self) -> str:
        """The name of the mix that equals the stack, or nothing."""
        plain = uses_of(self.stack)
        return next((name for name, mix in self.mixes.items() if uses_of(mix) == plain), "")

    # --- changing: the controller only ----------------------------------------------------------

    def set_stack(self, stack: Sequence[AdapterEntry]) -> None:
        """Show this stack."""
        self._set(self.stack_changed, stack=tuple(stack))

    def set_known(self, known: Sequence[KnownAdapter]) -> None:
        """Replace the files to choose from."""
        self._set(self.known_changed, known=tuple(known))

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
        """Set the stack in use, facts of loaded adapters, files being loaded, and the error."""
        self._set(
            self.applied_changed,
            applied=applied,
            infos=MappingProxyType(dict(infos)),
            reading=reading,
            fault=fault,
        )

    def set_pending(self, pending: bool) -> None:
        """Set whether the current answer was started with another stack."""
        self._set(self.applied_changed, pending=pending)


def uses_of(entries: Sequence[AdapterEntry]) -> tuple[tuple[Path, bool, float], ...]:
    """Comparison key of a stack; errors are ignored."""
    return tuple((entry.path, entry.on or bool(entry.error), entry.strength) for entry in entries)


def adapter_name(path: Path) -> str:
    """Displayed name of an adapter: its file's stem, or its folder's name."""
    name = path.stem if path.suffix.lower() == ".gguf" else path.name
    return name.replace("_", " ").strip() or str(path)


def adapter_path(path: Path) -> Path:
    """Path of the adapter a chosen path belongs to: a file in a PEFT folder means the folder."""
    path = path.absolute()
    return path.parent if path.name in ("adapter_config.json", *_WEIGHTS) else path


def is_adapter_name(path: Path) -> bool:
    """Whether a path may be an adapter: a folder, a GGUF file, or a file of a PEFT folder."""
    inside = path.name in ("adapter_config.json", *_WEIGHTS)
    return inside or path.suffix.lower() == ".gguf" or path.is_dir()


_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
