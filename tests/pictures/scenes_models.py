"""Scenes of choosing and loading a model, for tests/pictures/shots.py."""

from __future__ import annotations

from pathlib import Path

from scenes_chat import Scene, ready, streaming
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


SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (picker, picker_loading, picker_failed, model_waiting)
}
