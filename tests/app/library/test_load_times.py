"""Load times: measured, estimated by size, kept between runs, and read with care."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.model_ref import Local
from app.library.load_times import LoadTimes
from app.state.chat import ModelFile, ModelPhase, ModelStatus, State
from app.system.worker import BackgroundWorker
from engine import ModelLoaded
from stage import until

ONE, TWO = Path("/m/one.gguf"), Path("/m/two.gguf")
LOADED = ModelLoaded(
    1, ONE, "One", "llama", "4-bit", 1, 512, 2_000_000_000, 1, "reference", (), seconds=4.0
)


@pytest.fixture
def worker(qtbot: QtBot) -> Iterator[BackgroundWorker]:
    made = BackgroundWorker("files")
    yield made
    made.close()
    made.deleteLater()


def load(state: State, loaded: ModelLoaded) -> None:
    state.set_model(ModelStatus(ModelPhase.READY, Local(loaded.path), loaded.name, loaded=loaded))


def idle(worker: BackgroundWorker) -> None:
    done: list[bool] = []
    worker.run(lambda: True, done.append)
    until(lambda: bool(done))


def test_times_are_measured_and_estimated_by_size(worker: BackgroundWorker, tmp_path: Path) -> None:
    state = State()
    state.set_installed([ModelFile(TWO, "Two", 3_000_000_000)])
    times = LoadTimes(state, worker, tmp_path / "load-times.json")
    times.start()
    idle(worker)
    assert (times.seconds(ONE), times.seconds(TWO)) == (0.0, 0.0)
    load(state, LOADED)
    assert (times.seconds(ONE), times.seconds(TWO)) == (4.0, 6.0)
    assert times.seconds(Path("/m/unknown.gguf")) == 0.0
    load(state, replace(LOADED, request=2, seconds=5.0))
    assert times.seconds(ONE) == 5.0
    idle(worker)
    again = LoadTimes(State(), worker, tmp_path / "load-times.json")
    again.start()
    idle(worker)
    assert again.seconds(ONE) == 5.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e9])
def test_impossible_times_are_not_kept(
    worker: BackgroundWorker, tmp_path: Path, seconds: float
) -> None:
    state = State()
    times = LoadTimes(state, worker, tmp_path / "load-times.json")
    load(state, replace(LOADED, seconds=seconds))
    assert times.seconds(ONE) == 0.0


@pytest.mark.parametrize(
    "stored", ['{"loads": 3}', json.dumps({"loads": [["/m/one.gguf", 5], [1, 2, 3], 7, None]})]
)
def test_unusable_file_is_as_none(worker: BackgroundWorker, tmp_path: Path, stored: str) -> None:
    file = tmp_path / "load-times.json"
    file.write_text(stored, "utf-8")
    times = LoadTimes(State(), worker, file)
    times.start()
    idle(worker)
    assert times.seconds(ONE) == 0.0
