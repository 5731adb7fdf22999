"""Pytest plugin for random test data: a new seed per run, printed, and repeatable by `--seed`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--seed`."""
    parser.addoption("--seed", type=int, help="seed of random data, as a failed test printed it")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A new seed, or the one given with `--seed`; printed, and shown when the test fails."""
    given = request.config.getoption("--seed")
    seed = secrets.randbits(32) if given is None else given
    print(f"random data: repeat with --seed {seed}")
    return seed


@pytest.fixture
def random(seed: int) -> torch.Generator:
    """A random number generator seeded for this test."""
    import torch  # only here, so that tests of the window run without torch

    return torch.Generator().manual_seed(seed)
