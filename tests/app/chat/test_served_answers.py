"""A change of the model that waits for other programs: said, counted, and made at once if wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.network import Outside
from app.chat.served_answers import NOTICE
from app.chat.serving import ServerUse
from outside import Servers
from stage import Stage

MODEL = Path("/models/Small.gguf")


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, servers: Servers) -> Iterator[Stage]:
    made = Stage(tmp_path, outside=Outside(servers))
    made.ready(MODEL)
    made.controller.change_settings(serve=True)
    made.wait_until_idle()
    yield made
    made.close()


def said(stage: Stage) -> str:
    stage.controller.network.served_answers.look()
    notice = stage.state.notices.get(NOTICE)
    return notice.sentence if notice else ""


def test_a_load_says_what_it_waits_for(stage: Stage, servers: Servers) -> None:
    servers.made[0].shown = ServerUse(running=2)
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    assert said(stage) == "Other loads after 2 answers for other programs."
    servers.made[0].shown = ServerUse(running=1)
    assert said(stage) == "Other loads after an answer for another program."
    stage.controller.close_notice(NOTICE)
    assert said(stage) == ""  # who closed it is not told again
    stage.engine.finish_load("Other")
    stage.drain()
    stage.controller.load_model(MODEL)
    assert said(stage) != ""
    stage.engine.finish_load("Small")
    stage.drain()
    assert NOTICE not in stage.state.notices


def test_a_load_that_waits_for_nobody_says_nothing(stage: Stage) -> None:
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    assert said(stage) == ""


def test_load_now_ends_the_answers(stage: Stage, servers: Servers) -> None:
    servers.made[0].shown = ServerUse(running=1)
    stage.controller.load_model(MODEL.with_name("Other.gguf"))
    assert said(stage)
    stage.window.banners.acted.emit(NOTICE)
    assert servers.made[0].shown.running == 0
    assert NOTICE not in stage.state.notices


def test_unloading_waits_too(stage: Stage, servers: Servers) -> None:
    servers.made[0].shown = ServerUse(running=1)
    stage.window.picker.unload_requested.emit()
    assert said(stage) == "The model is unloaded after an answer for another program."
    stage.engine.finish_unload()
    stage.drain()
    assert NOTICE not in stage.state.notices
