"""Stages whose models call tools of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stage import Stage
from tool_stage import FakeTools, stages


@pytest.fixture
def source() -> FakeTools:
    """The tools."""
    return FakeTools()


@pytest.fixture
def start(tmp_path: Path, source: FakeTools) -> Iterator[Callable[[], Stage]]:
    """Starts the app over one store."""
    yield from stages(tmp_path / "data", source)
