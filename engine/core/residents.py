"""Residents: the loaded models: the main one and those beside it, their memory and share of time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import Fault, FaultKind, RequestError
from engine.messages import Load, ModelLoaded

if TYPE_CHECKING:
    from engine.model_session import ModelSession


@dataclass(slots=True, eq=False)
class Resident:
    """A loaded model."""

    session: ModelSession
    request: Load  # that loaded it
    seconds: float = 0.0  # of passes; of one that was idle raised to that of the others
    used: float = field(default_factory=time.monotonic)  # when it last worked
    was_busy: bool = False
    is_beside: bool = False  # another one takes turns with it
    path: Path = field(init=False)  # of its file

    def __post_init__(self) -> None:
        self.path = self.request.path


class Residents:
    """Used by the engine's thread; `facts` may be read by any."""

    def __init__(self) -> None:
        self._beside: dict[Path, Resident] = {}
        self.main: Resident | None = None
        self._seconds = 0.0  # of the resident that ran the last pass
        self.every: tuple[Resident, ...] = ()  # the main one first
        self.facts: tuple[ModelLoaded, ...] = ()  # likewise

    def __iter__(self) -> Iterator[Resident]:
        return iter(self.every)

    def __bool__(self) -> bool:
        return bool(self.every)

    @property
    def is_busy(self) -> bool:
        """Whether a model has passes to run."""
        return any(one.session.is_busy for one in self.every)

    def find(self, path: Path | None) -> Resident | None:
        """The resident of a file; of None the main one."""
        if path is None or (self.main is not None and self.main.path == path):
            return self.main
        return self._beside.get(path)

    def get(self, path: Path | None) -> Resident:
        """The resident of a file; of None the main one. Raises RequestError."""
        if (found := self.find(path)) is None:
            fault = Fault(FaultKind.NOT_LOADED)
            if path is None:
                raise RequestError("No model is loaded.", "Choose a model first.", fault)
            raise RequestError(f"The model {path.name} is not loaded.", "Load it first.", fault)
        return found

    def add(self, one: Resident) -> None:
        """Keep a model, the main one unless its request says otherwise."""
        one.seconds, one.is_beside = self._seconds, False
        if one.request.beside:
            self._beside[one.path] = one
        else:
            self._beside.pop(one.path, None)
            self.main = one
        self._note()

    def remove(self, one: Resident) -> None:
        """Forget a model."""
        if one is self.main:
            self.main = None
        else:
            self._beside.pop(one.path, None)
        self._note()

    def _note(self) -> None:
        self.every = (*([] if self.main is None else [self.main]), *self._beside.values())
        self.facts = tuple(one.session.loaded(0, beside=one is not self.main) for one in self)

    # --- memory ---------------------------------------------------------------------------------

    def beside(self) -> list[Resident]:
        """The models beside the main one, the least recently used first."""
        return sorted(self._beside.values(), key=lambda one: one.used)

    def reclaimable(self, replaced: Collection[Resident]) -> int:
        """Bytes that a new model finds beside what is free now; below 0 if others may take more.

        The memory of those `replaced` becomes free; each other one may yet take what its full
        context needs, and gives up what it has beyond that.
        """
        return sum(
            one.session.memory_bytes - (0 if one in replaced else one.session.planned_bytes)
            for one in self
        )

    def kept(self, replaced: Collection[Resident]) -> dict[str, int]:
        """Planned bytes of the models that stay, on each device apart from the processor."""
        kept = defaultdict[str, int](int)
        for one in self:
            if one not in replaced:
                for device, size in one.session.planned_on_devices.items():
                    kept[device] += size
        return dict(kept)

    def share_spare(self, left_bytes: int) -> None:
        """Give each model its share of the memory that the plans leave, for cached contexts."""
        every = list(self)
        for one in every:
            one.session.set_spare(left_bytes // len(every))

    def share_all(self) -> None:
        """Give a model that is alone again what its own plan left."""
        if len(every := list(self)) == 1:
            every[0].session.set_spare(every[0].session.model.plan.left_bytes)

    # --- time -----------------------------------------------------------------------------------

    def next(self, urgent: frozenset[Path], background: frozenset[Path]) -> Resident | None:
        """The model that runs the next pass: of the busy ones, that which had the least time.

        `urgent` are the files of those that a person waits for: they come first; those with nothing
        but work in the background come last.
        """
        busy: list[Resident] = []
        for one in self.every:
            is_busy = one.session.is_busy and one.session.device_fault is None
            if is_busy:
                if not one.was_busy:
                    one.seconds = max(one.seconds, self._seconds)
                busy.append(one)
            one.was_busy = is_busy
        if len(busy) < 2:
            return busy[0] if busy else None
        return min(
            busy, key=lambda one: (one.path not in urgent, one.path in background, one.seconds)
        )

    def charge(self, one: Resident, seconds: float) -> None:
        """A pass of a model took so long."""
        one.seconds += seconds
        self._seconds = one.seconds
        one.used = time.monotonic()
