"""The last used model is loaded with its own context and cache type."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.settings import model_settings as model_defaults
from app.settings.model_settings import ModelDefaults
from app.settings.table import Settings
from engine import CacheType
from stage import Stage

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
