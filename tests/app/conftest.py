"""The window on a stage: real widgets, a fake engine, a real store in the test's own folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from stage import Stage


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    """The wired window, not started."""
    made = Stage(tmp_path)
    yield made
    made.close()
