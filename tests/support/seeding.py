"""Random data of tests: fresh on every run, and the same again with the seed a failure shows."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed`, as failed tests show it."""
    parser.addoption("--seed", type=int, help="seed of random data, as a failed test printed it")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A fresh seed or the one given with `--seed`; pytest shows what was printed of a failed test."""
    given = request.config.getoption("--seed")
    seed = secrets.randbits(32) if given is None else given
    print(f"random data: repeat with --seed {seed}")
    return seed


@pytest.fixture
def random(seed: int) -> torch.Generator:
    """A generator of random numbers, seeded for this test alone."""
    import torch  # not where a test of the window is all that runs

    return torch.Generator().manual_seed(seed)
