"""A server with a tiny model, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from engine_bench import with_printable_output
from serving import Served


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "tiny-served.gguf"
    return with_printable_output(tiny.write(path, context=2048))


@pytest.fixture(scope="module")
def served(tiny_model: Path) -> Iterator[Served]:
    made = Served(tiny_model)
    yield made
    made.close()
