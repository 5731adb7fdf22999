"""Test fixture of app.library: a Library over temporary folders, with its states."""

from __future__ import annotations

import json
from pathlib import Path

from app.domain.model_ref import Local
from app.downloads.queue import Source
from app.downloads.transfer import Limits
from app.library.service import Library
from app.net.hub import HUB
from app.settings.table import Settings
from app.state.chat import ModelPhase, ModelStatus, State
from app.state.library import LibraryState, Offer
from app.system.worker import BackgroundWorker
from engine import ModelLoaded
from hostile_hub import Fault, Hub
from stage import flush, until

LIMITS = Limits(stall_seconds=2.0, retry_seconds=0.01, attempts=2, margin_bytes=0)
FREE = 10**12


class LibraryFixture:
    """A library with its states, over temporary folders."""

    def __init__(self, folder: Path, endpoint: str = HUB, free: int = FREE) -> None:
        self.folder, self.free = folder, free
        self.state, self.library_state = State(), LibraryState()
        self.files = BackgroundWorker("files", self.state)
        self.library = Library(
            self.state,
            self.library_state,
            Settings(),
            self.files,
            places_file=folder / "library.json",
            defaults_file=folder / "models.json",
            limits=LIMITS,
            free=lambda path: self.free,
        )
        self.library.hub.endpoint = endpoint
        self.library.downloads.set_endpoint(endpoint)

    def start(self) -> None:
        self.library.start()
        until(lambda: self.library_state.searched)

    def settle(self) -> None:
        """Wait until the file worker is idle and its results were delivered."""
        self._wait()
        self._wait()  # the results may have started more work

    def _wait(self) -> None:
        done: list[bool] = []
        self.files.run(lambda: True, done.append)
        until(lambda: bool(done))
        flush()

    def row(self, name: str) -> object:
        return next(row for row in self.library_state.installed if row.path.name == name)

    def names(self) -> list[str]:
        return [row.path.name for row in self.library_state.installed]

    def close(self) -> None:
        self.library.close()
        for each in (self.library, self.library_state, self.state):
            each.deleteLater()
        flush()


def loaded(path: Path) -> ModelStatus:
    told = ModelLoaded(
        1, path, path.stem, "llama", "", 1, 256, 1, 50_000, "reference", (), 0.1, held_bytes=20_000
    )
    return ModelStatus(ModelPhase.READY, Local(path), path.stem, loaded=told)


def offer(name: str, size: int = 0, sha256: str = "") -> Offer:
    return Offer(Source("owner/name", "main", name, size, sha256), Path(name).stem)


def found(hub: Hub, *repositories: str) -> None:
    """Set the results of later searches on the hub."""
    rows = [{"id": name, "tags": ["gguf"], "downloads": 7} for name in repositories]
    hub.api["/api/models"] = Fault(body=json.dumps(rows).encode())
