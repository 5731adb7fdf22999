"""Marks and a fixture of tests of the Triton kernels, which run in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """numpy, which interprets, warns of what is no error on a GPU: 1 / (1 + exp(1000)) is 0."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs the programs of a launch one after the other: fewer, larger ones."""
    monkeypatch.setattr("kernels.cuda.attention.MOST_SPLITS", 2)
    monkeypatch.setattr("kernels.cuda.launch._ROWS", 128)
    monkeypatch.setattr("kernels.cuda.experts._ROWS", 128)
