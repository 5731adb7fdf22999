"""What tests of inference share: a tiny model, and a scheduler with nothing cached."""

from __future__ import annotations

import math

import pytest

import tiny
from engine.core import scheduler as scheduling
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel, load


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tiny model, loaded once for the tests of a module."""
    return load(tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=1_500))


@pytest.fixture
def scheduler(model: LoadedModel) -> Scheduler:
    """A scheduler of its own over that model."""
    return model.new_scheduler()


@pytest.fixture
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process a prompt in every pass, however long passes take on this machine."""
    monkeypatch.setattr(scheduling, "_BURST_SECONDS", math.inf)
