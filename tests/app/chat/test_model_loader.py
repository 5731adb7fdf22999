"""Loading and unloading a model, as the state shows it."""

from __future__ import annotations

from app.state.chat import ModelPhase
from engine import UnloadModel
from fakes import MODEL
from stage import Stage


def test_unloading_leaves_no_model_and_reports_freed_memory(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.unload_model()
    stage.engine.finish_unload(612_000_000)
    stage.drain()
    assert stage.state.model.phase is ModelPhase.NONE
    assert stage.state.model.loaded is None
    assert stage.state.model.freed_bytes == 612_000_000


def test_unloading_during_a_load_cancels_it(stage: Stage) -> None:
    stage.start(MODEL)
    stage.controller.unload_model()
    stage.engine.cancel_load()
    stage.engine.finish_unload(0)
    stage.drain()
    assert stage.engine.count(UnloadModel) == 1
    assert stage.state.model.phase is ModelPhase.NONE


def test_load_after_unload_works(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.unload_model()
    stage.controller.load_model(MODEL)
    stage.engine.finish_unload()
    stage.engine.finish_load()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY
