"""A store in a file of the test's own, and the queue of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.store.store import Store
from app.store.writer import StoreQueue
from stage import flush


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store.open(path)) as opened:
        yield opened


@pytest.fixture
def store_queue(qtbot: object, tmp_path: Path) -> Iterator[StoreQueue]:
    made = StoreQueue(tmp_path / "a.sqlite")
    yield made
    made.close()
    made.deleteLater()
    flush()
