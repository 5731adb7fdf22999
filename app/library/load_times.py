"""Load times: how long models take to load on this computer, kept between runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from app.library.index import tried
from app.state.chat import ModelPhase, State
from app.system import json_file
from app.system.worker import BackgroundWorker
from engine import ModelLoaded

_MOST = 64  # files that are remembered
_LONGEST = 1e5  # seconds; more is not a load time


class LoadTimes:
    """Measures every load; of a file that was never loaded, the time follows from its size."""

    def __init__(self, state: State, worker: BackgroundWorker, file: Path) -> None:
        """`file` keeps what was measured."""
        self._state, self._worker, self._file = state, worker, file
        self._measured: dict[str, tuple[int, float]] = {}  # bytes and seconds, the last one last
        self._noted: ModelLoaded | None = None
        state.model_changed.connect(self._on_model)

    def start(self) -> None:
        """Read what was measured in earlier runs."""
        self._worker.run(lambda: _read(self._file), self._on_read)

    def seconds(self, path: Path) -> float:
        """About how long a file takes to load; 0: not known."""
        if found := self._measured.get(str(path)):
            return found[1]
        size = next((file.size_bytes for file in self._state.installed if file.path == path), 0)
        amount = sum(bytes_ for bytes_, _ in self._measured.values())
        return size * sum(each for _, each in self._measured.values()) / amount if amount else 0.0

    def _on_read(self, stored: Mapping[str, tuple[int, float]]) -> None:
        self._measured = {**stored, **self._measured}

    def _on_model(self) -> None:
        loaded, phase = self._state.model.loaded, self._state.model.phase
        if loaded is None or phase is not ModelPhase.READY or loaded is self._noted:
            return
        before, self._noted = self._noted, loaded
        again = before is not None and (before.path, before.seconds) == (
            loaded.path,
            loaded.seconds,
        )
        if again or not 0 < loaded.seconds < _LONGEST or loaded.file_bytes <= 0:
            return  # the load before is reported again when a newer one is cancelled
        name = str(loaded.path)
        self._measured.pop(name, None)
        self._measured[name] = loaded.file_bytes, round(loaded.seconds, 3)
        kept = dict(list(self._measured.items())[-_MOST:])
        self._measured, file = kept, self._file
        rows = [[path, *measured] for path, measured in kept.items()]
        # Lost if it cannot be written: no time is named in the next run.
        self._worker.run(lambda: tried(lambda: json_file.write(file, {"loads": rows})))


def _read(file: Path) -> dict[str, tuple[int, float]]:
    stored = json_file.read(file).get("loads")
    found: dict[str, tuple[int, float]] = {}
    for row in cast("list[object]", stored) if isinstance(stored, list) else []:
        match row:
            case [str(path), int(size), int() | float() as seconds] if (
                size > 0 and 0 < seconds < _LONGEST
            ):
                found[path] = size, float(seconds)
            case _:
                pass
    return dict(list(found.items())[-_MOST:])
