"""Scenes of choosing and loading a model, for tests/pictures/shots.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.domain.model_ref import Local
from app.downloads.queue import Download, Phase
from app.net.hub import Source
from app.state.chat import ModelFile
from app.state.library import BetterModel, Offer
from engine import DeviceFault, DevicePart, DeviceRefusal, ModelMoved
from scenes_chat import ANSWER, Scene, answer, ready, streaming
from stage import Stage, flush


def picker(stage: Stage) -> None:
    ready(stage)
    stage.window.open_picker()
    flush()


def picker_loading(stage: Stage) -> None:
    ready(stage)
    stage.controller.load_model(Path("/models/a.gguf"))
    stage.engine.progress(0.63)
    stage.drain()
    stage.window.open_picker()
    flush()


def model_waiting(stage: Stage) -> None:
    streaming(stage)
    stage.controller.load_model(Path("/models/Bonsai-1.7B-Q1_0.gguf"))
    flush()


def other_model(stage: Stage, name: str = "Qwen3.5 4B") -> None:
    """A chat whose model is not loaded: another one is."""
    own = stage.folder / "Qwen3.5-4B-Q4_K_M.gguf"
    own.write_bytes(b"GGUF")
    ready(stage)
    stage.state.set_installed(
        [*stage.state.installed, ModelFile(own, name, 2_700_000_000, "Q4_K_M")]
    )
    stage.window.composer.submitted.emit("Why is the sky blue?")
    answer(stage, ANSWER)
    chat = stage.state.current
    stage.controller.chat_models.choose(chat, Local(own))
    stage.wait_until_idle()


def other_model_narrow(stage: Stage) -> None:
    stage.window.resize(440, 520)
    other_model(stage, "Qwen3.5 4B Instruct with a very long name indeed")


def missing_model(stage: Stage) -> None:
    other_model(stage)
    (stage.folder / "Qwen3.5-4B-Q4_K_M.gguf").unlink()
    stage.state.set_installed(stage.state.installed[:-1])
    stage.wait_until_idle()
    stage.window.composer.submitted.emit("And at night?")
    stage.wait_until_idle()


def other_model_waits(stage: Stage) -> None:
    """It waits until the answer of another chat is complete."""
    other_model(stage)
    chat = stage.state.current
    stage.controller.new_conversation()
    stage.window.composer.submitted.emit("Tell me a story.")
    stage.wait_until_idle()
    stage.controller.open_conversation(chat or 0)
    stage.window.composer.submitted.emit("And at night?")
    stage.wait_until_idle()


def picker_failed(stage: Stage) -> None:
    ready(stage)
    stage.controller.load_model(Path("/models/a.gguf"))
    stage.engine.fail_load(
        "The file a.gguf is not a model: it does not begin with GGUF.",
        "Choose a GGUF file.",
        model_gone=False,
    )
    stage.drain()
    stage.window.open_picker()
    flush()


GPU = "NVIDIA GeForce RTX 4070"


def split_model(stage: Stage) -> None:
    """A model that is too large for the GPU."""
    stage.start(Path("/models/a.gguf"))
    parts = (
        DevicePart("cpu", "", 12, 1_900_000_000),
        DevicePart("cuda", GPU, 24, 3_700_000_000),
    )
    moved = DeviceRefusal(DeviceFault.TOO_LARGE, "24 of 36 layers fit.")
    stage.engine.finish_load("Qwen3 8B", runs_on=parts, moved=moved)
    stage.drain()
    flush()


def moved_model(stage: Stage) -> None:
    """The GPU has failed while an answer was written."""
    streaming(stage)
    loaded = stage.state.model.loaded
    assert loaded is not None
    moved = DeviceRefusal(
        DeviceFault.DRIVER_FAILS, "The GPU failed: CUDA error: unspecified launch failure."
    )
    parts = (DevicePart("cpu", "", 36, 5_600_000_000),)
    stage.engine.deliver(ModelMoved(0, replace(loaded, runs_on=parts, moved=moved)))
    stage.drain()
    flush()


def better_offer(stage: Stage) -> None:
    ready(stage)
    offer = Offer(Source("owner/name", "main", "b.gguf", 572_270_624, ""), "Bonsai 4B")
    stage.states.library.set_better(BetterModel(offer))
    flush()


def better_coming(stage: Stage) -> None:
    better_offer(stage)
    better = stage.states.library.better
    assert better is not None
    progress = fetching(34, Phase.RUNNING)
    stage.states.library.set_better(BetterModel(better.offer, progress))
    flush()


def no_model_offer(stage: Stage) -> None:
    stage.start()
    offer = Offer(Source("owner/name", "main", "b.gguf", 572_270_624, ""), "Bonsai 4B")
    stage.states.library.set_better(BetterModel(offer))
    flush()


def fetching(percent: int, phase: Phase) -> Download:
    """A download of the offered model, so far done."""
    size = 572_270_624
    return Download(
        id=1,
        url="",
        file="b.gguf",
        path=Path("/models/b.gguf"),
        repository="owner/name",
        size_bytes=size,
        done_bytes=size * percent // 100,
        bytes_per_second=5e6,
        seconds_left=75.0,
        phase=phase,
        note="",
        error="",
        remedy="",
        sha256="",
    )


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        picker,
        picker_loading,
        picker_failed,
        split_model,
        moved_model,
        model_waiting,
        other_model,
        other_model_narrow,
        other_model_waits,
        missing_model,
        better_offer,
        better_coming,
        no_model_offer,
    )
}
