"""Loading and unloading a model, as the state shows it, and the last used one at the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.models.model_loader import NOTICE
from app.settings import model_settings as model_defaults
from app.settings.model_settings import ModelDefaults
from app.settings.table import Settings
from app.state.chat import ModelPhase, Notice
from engine import (
    CacheType,
    DeviceFault,
    DeviceInfo,
    DevicePart,
    DeviceRefusal,
    DevicesFound,
    FindDevices,
    ModelMoved,
    Unload,
)
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
    assert stage.engine.count(Unload) == 1
    assert stage.state.model.phase is ModelPhase.NONE


def test_load_after_unload_works(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.unload_model()
    stage.controller.load_model(MODEL)
    stage.engine.finish_unload()
    stage.engine.finish_load()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY


# --- devices ------------------------------------------------------------------------------------

CPU = DevicePart("cpu", "", 12, 1_900_000_000)
GPU = DevicePart("cuda", "NVIDIA H100", 24, 3_700_000_000)


def notice(stage: Stage) -> Notice | None:
    return stage.state.notices.get(NOTICE)


def test_a_model_is_loaded_on_what_is_chosen(stage: Stage) -> None:
    stage.ready(MODEL)
    assert stage.engine.load.device == ""
    for choice, device in (("cpu", "cpu"), ("gpu", "gpu"), ("split", "split"), ("auto", "")):
        stage.controller.change_settings(runs_on=choice)
        stage.controller.load_model(MODEL)
        stage.engine.finish_load()
        stage.drain()
        assert stage.engine.load.device == device
    stage.controller.library.defaults.change(MODEL, ModelDefaults(runs_on="cpu"))
    stage.controller.load_model(MODEL)
    assert stage.engine.load.device == "cpu"


@pytest.mark.parametrize("choice", ["auto", "gpu"])
@pytest.mark.parametrize("fault", DeviceFault)
def test_a_refused_gpu_is_one_sentence(choice: str, fault: DeviceFault, stage: Stage) -> None:
    stage.controller.change_settings(runs_on=choice)
    stage.start(MODEL)
    stage.engine.finish_load(runs_on=(CPU,), moved=DeviceRefusal(fault, "The exact reason."))
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY
    shown = notice(stage)
    if choice == "auto" and fault in (DeviceFault.TOO_LARGE, DeviceFault.NO_DEVICE):
        assert shown is None  # what Automatic is for
        return
    assert shown is not None
    assert shown.sentence.endswith("The processor runs the model.")
    assert shown.detail == "The exact reason."
    stage.controller.load_model(MODEL)
    stage.engine.finish_load(runs_on=(GPU,))
    stage.drain()
    assert notice(stage) is None


def test_a_gpu_that_fails_in_mid_answer_is_one_sentence_and_the_answer_goes_on(
    stage: Stage,
) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(runs_on=(GPU,))
    stage.drain()
    stage.controller.send("Hello")
    stage.engine.write("One two")
    stage.drain()
    loaded = stage.state.model.loaded
    assert loaded is not None
    moved = DeviceRefusal(DeviceFault.OUT_OF_MEMORY, "The memory of the GPU ran out.")
    stage.engine.deliver(ModelMoved(0, replace(loaded, runs_on=(CPU,), moved=moved)))
    stage.engine.write(" three")
    stage.engine.finish()
    stage.drain()
    assert stage.state.messages[-1].text.startswith("One two three")
    shown = notice(stage)
    assert shown is not None
    assert shown.sentence == "The memory of the GPU ran out. The processor runs the model."
    assert stage.state.model.loaded is not None
    assert stage.state.model.loaded.runs_on == (CPU,)


def test_the_devices_are_asked_for_at_the_start(stage: Stage) -> None:
    stage.start()
    request = stage.engine.last(FindDevices).request
    found = (DeviceInfo("cuda", "NVIDIA H100"),)
    stage.engine.deliver(DevicesFound(request, found))
    stage.drain()
    assert stage.state.devices == found
    assert stage.states.library.devices == found


def test_a_template_that_cannot_be_used_is_said_when_the_model_is_loaded(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.finish_load(template_problem="The exact reason.")
    stage.drain()
    assert stage.state.model.phase is ModelPhase.READY
    shown = notice(stage)
    assert shown is not None
    assert shown.sentence == "Small Model 135M cannot be used for a whole chat."
    assert shown.detail == "The exact reason."


# --- the last used model --------------------------------------------------------------------------


OWN = ModelDefaults(4096, CacheType.F32)


@pytest.mark.parametrize("how", ["last time", "named", "called before the start"])
def test_per_model_context_and_cache_type_apply_at_every_start(
    qtbot: QtBot, tmp_path: Path, how: str
) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    model_defaults.save(model_defaults.file(), {model: OWN})
    last = str(model) if how == "last time" else ""
    stage = Stage(tmp_path, settings=Settings(last_model=last, context=512))
    try:
        if how == "called before the start":  # by a second start, while the window is painted
            stage.controller.load_model(model)
        stage.window.show()
        stage.controller.start(model if how == "named" else None)
        load = stage.engine.load
        assert (load.path, load.context, load.cache) == (model, OWN.context, OWN.cache)
    finally:
        stage.close()


def test_setting_changed_right_after_start_keeps_earlier_ones(qtbot: QtBot, tmp_path: Path) -> None:
    earlier, later = Path("/models/earlier.gguf"), Path("/models/later.gguf")
    file = model_defaults.file()
    model_defaults.save(file, {earlier: OWN})
    stage = Stage(tmp_path)
    try:
        stage.controller.library.defaults.change(later, ModelDefaults(top_k=7))
    finally:
        stage.close()
    assert model_defaults.load(file) == {earlier: OWN, later: ModelDefaults(top_k=7)}
