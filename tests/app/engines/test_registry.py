"""Which engine serves a model, and what the window offers for the shown chat's."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.domain.model_ref import Local, Remote
from app.engines.client import Capabilities
from app.engines.local import local
from app.engines.registry import EngineRegistry
from fakes import FakeEngine


def test_files_are_served_by_the_engine_in_this_process(qtbot: QtBot) -> None:
    owner = QObject()
    engine = local(FakeEngine)(lambda _: None, owner)
    engines = EngineRegistry(engine)
    file, server = Local(Path("/m/a.gguf")), Remote("office", "big")
    assert engines.for_model(file) is engine
    assert engines.for_model(None) is engine
    assert engines.for_model(server) is None
    assert engines.capabilities(file) == engine.capabilities
    assert engines.capabilities(file).adapters
    assert engines.capabilities(server) == Capabilities()
