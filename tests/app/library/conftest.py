"""The library over folders of the test, and over a hub of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine import models_folder
from hostile_hub import Hub, running
from library_fixture import LibraryFixture


@pytest.fixture
def own() -> Path:
    """The folder of the app's models."""
    models_folder().mkdir(parents=True)
    return models_folder()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        yield made


@pytest.fixture
def fixture(qtbot: QtBot, tmp_path: Path) -> Iterator[LibraryFixture]:
    made = LibraryFixture(tmp_path)
    yield made
    made.close()


@pytest.fixture
def online(qtbot: QtBot, tmp_path: Path, hub: Hub) -> Iterator[LibraryFixture]:
    made = LibraryFixture(tmp_path, hub.endpoint)
    yield made
    made.close()
