"""The library page in a window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from library_shown import Shown


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Shown]:
    made = Shown()
    yield made
    made.close()
