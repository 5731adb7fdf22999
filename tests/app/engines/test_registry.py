"""Which engine serves a model, and what the window offers for the shown chat's."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.domain.model_ref import Local, Remote
from app.engines.client import Capabilities
from app.engines.local import local
from app.engines.registry import EngineRegistry
from app.engines.requests import RequestRouter
from fakes import FakeEngine


def test_files_are_served_by_the_engine_in_this_process(qtbot: QtBot) -> None:
    owner = QObject()
    router = RequestRouter(local(FakeEngine), lambda _: None, lambda *_: None, owner)
    engines = EngineRegistry(router)
    file, server = Local(Path("/m/a.gguf")), Remote("office", "big")
    assert engines.router(file) is router
    assert engines.router(None) is router
    assert engines.router(server) is None
    assert engines.capabilities(file) == router.capabilities
    assert engines.capabilities(file).adapters
    assert engines.capabilities(server) == Capabilities()
