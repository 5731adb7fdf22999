"""What tests of the app share: the window on a stage, and downloads from a hub of this machine.

The stage has real widgets, a fake engine, and a real store in the test's own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from adapter_bench import Bench
from app.ui.theme.palette import LIGHT, show_palette
from downloading import MODEL, SIZE
from hostile_hub import Hub, model_bytes, running
from queue_recorder import QueueRecorder, content, source
from stage import Stage


@pytest.fixture(autouse=True)
def light() -> Iterator[None]:
    """What one test shows in another palette is light in the next."""
    yield
    show_palette(LIGHT)


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    """The wired window, not started."""
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A local hub with four models, and one for tests of a single file."""
    with running() as made:
        for number in (1, 2, 3, 4):
            made.put(source(number).repository + f"/model{number}-Q4_0.gguf", content(number))
        made.put(MODEL, model_bytes(SIZE))
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The download folder."""
    return tmp_path / "models"


@pytest.fixture
def place(folder: Path) -> Path:
    """Where a single file is downloaded to."""
    return folder / "model-Q4_0.gguf"


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Iterator[Bench]:
    """The panel of adapters over a fake engine."""
    made = Bench(tmp_path)
    yield made
    made.finish()


@pytest.fixture
def watch(hub: Hub, folder: Path) -> Iterator[Callable[..., QueueRecorder]]:
    """Factory of started download queues whose reports are recorded."""
    made: list[QueueRecorder] = []

    def make(*, resume: bool = False, **settings: object) -> QueueRecorder:
        watched = QueueRecorder(hub, folder, **settings)
        made.append(watched)
        watched.queue.start(resume=resume)
        return watched

    yield make
    for one in made:
        one.queue.close()
