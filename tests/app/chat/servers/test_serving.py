"""The server for other programs: follows the settings, says why it fails, survives closing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.answering.served_answers import NOTICE
from app.chat.servers.network import Outside
from app.chat.servers.serving import ServerUse, addresses
from app.settings.table import Settings
from app.state.chat import Notice
from app.state.server import ClientRow, ServerPhase, ServerStatus
from app.ui.widgets.tray import ServerTray
from engine import LocalServerOptions
from outside import Servers
from stage import Stage


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def served(qtbot: QtBot, tmp_path: Path, servers: Servers) -> Iterator[Stage]:
    """The window with a server, not started."""
    made = Stage(tmp_path, outside=Outside(servers))
    yield made
    made.close()


def status(stage: Stage) -> ServerStatus:
    stage.wait_until_idle()
    return stage.states.server.status


def test_off_nothing_is_started(served: Stage, servers: Servers) -> None:
    served.start()
    assert status(served).phase is ServerPhase.OFF
    assert status(served).offered
    assert servers.made == []


def test_the_switch_starts_and_stops_it(served: Stage, servers: Servers) -> None:
    served.start()
    served.controller.change_settings(serve=True)
    assert served.states.server.status.phase is ServerPhase.STARTING
    assert status(served).phase is ServerPhase.ON
    assert status(served).addresses == ("http://127.0.0.1:8080",)
    assert servers.running == [LocalServerOptions()]
    served.controller.change_settings(serve=False)
    assert status(served).phase is ServerPhase.OFF
    assert status(served).addresses == ()
    assert servers.running == []


def test_it_starts_with_the_app_when_it_was_on(
    qtbot: QtBot, tmp_path: Path, servers: Servers
) -> None:
    settings = Settings(serve=True, serve_key="k", serve_port=5000, serve_minutes=0)
    stage = Stage(tmp_path, settings=settings, outside=Outside(servers))
    try:
        assert servers.made == []  # not before the first paint
        stage.start()
        assert servers.running == [LocalServerOptions("127.0.0.1", 5000, "k", -1.0)]
    finally:
        stage.close()
    assert servers.running == []


def test_only_a_change_of_the_address_needs_a_restart(served: Stage, servers: Servers) -> None:
    served.start()
    served.controller.change_settings(serve=True)
    served.wait_until_idle()
    served.controller.change_settings(serve_minutes=5, serve_texts=True)
    served.wait_until_idle()
    assert len(servers.made) == 1
    assert servers.running == [LocalServerOptions(keep_seconds=300.0, keeps_texts=True)]
    served.controller.network.serving.make_key()  # the answers in progress go on
    served.wait_until_idle()
    assert len(servers.made) == 1
    assert servers.running[0].key == served.controller.settings.serve_key
    served.controller.change_settings(serve_port=5000)
    assert status(served).addresses == ("http://127.0.0.1:5000",)
    assert [each.port for each in servers.running] == [5000]
    served.controller.change_settings(zoom=125)
    served.wait_until_idle()
    assert len(servers.made) == 2


def test_offline_takes_it_back_to_this_computer(served: Stage, servers: Servers) -> None:
    served.start()
    served.controller.change_settings(serve=True, serve_network="network")
    served.wait_until_idle()
    assert [each.host for each in servers.running] == ["0.0.0.0"]
    served.controller.change_settings(offline=True)
    assert status(served).addresses == ("http://127.0.0.1:8080",)
    assert [each.host for each in servers.running] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "Another program uses port 8080."),
        (PermissionError(errno.EACCES, "not allowed"), "The server could not start: not allowed."),
        (RuntimeError("No module."), "The server could not start: No module."),
    ],
)
def test_a_failed_start_says_why_and_is_tried_again(
    served: Stage,
    servers: Servers,
    error: Exception,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    served.start()
    servers.error = error
    served.controller.change_settings(serve=True)
    assert status(served).phase is ServerPhase.FAILED
    assert status(served).problem == said
    servers.error = None
    served.controller.change_settings(serve_port=5001)
    assert status(served).phase is ServerPhase.ON
    assert status(served).problem == ""


def test_quick_switching_ends_as_the_last_choice(served: Stage, servers: Servers) -> None:
    served.start()
    for _ in range(3):
        served.controller.change_settings(serve=True)
        served.controller.change_settings(serve=False)
    assert status(served).phase is ServerPhase.OFF
    assert servers.running == []
    served.controller.change_settings(serve=True, serve_port=5000)
    served.controller.change_settings(serve_port=5001)
    assert status(served).addresses == ("http://127.0.0.1:5001",)
    assert [each.port for each in servers.running] == [5001]


def test_keys_are_long_and_differ(served: Stage, servers: Servers) -> None:
    served.start()
    found: set[str] = set()
    for _ in range(5):
        served.controller.network.serving.make_key()
        found.add(served.controller.settings.serve_key)
    assert len(found) == 5
    assert min(map(len, found)) >= 32
    served.controller.change_settings(serve=True)
    served.wait_until_idle()
    assert servers.running[0].key == served.controller.settings.serve_key


def test_its_use_is_shown_while_it_is_watched(served: Stage, servers: Servers) -> None:
    served.start()
    served.controller.change_settings(serve=True)
    served.wait_until_idle()
    client = ClientRow("aider", "127.0.0.1", 1, 2, 1.0)
    servers.made[0].shown = ServerUse(1, 2, 0, (client,))
    assert status(served).clients == ()
    served.controller.network.serving.watch(True)
    assert (status(served).requests, status(served).clients) == (2, (client,))
    served.controller.network.serving.watch(False)


@pytest.fixture
def tray(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the desktop has a tray; the last value counts."""
    there = [True]
    monkeypatch.setattr(ServerTray, "is_available", property(lambda _: there[-1]))
    return there


@pytest.mark.qt_log_ignore("does not support raise", "systemTrayWindowChanged")
def test_closing_the_window_keeps_it_only_if_the_user_wants_that(
    served: Stage, servers: Servers, tray: list[bool]
) -> None:
    served.start()
    closed: list[bool] = []
    served.window.closing.connect(lambda: closed.append(True))
    served.controller.change_settings(serve=True)
    served.wait_until_idle()
    served.window.close()
    assert (closed, served.window.isHidden()) == ([True], False)
    served.controller.change_settings(serve_closed=True)
    served.window.close()
    assert (closed, served.window.isHidden()) == ([True], True)
    assert len(servers.running) == 1
    served.window.come_forward()
    served.window.actions_by_id["quit"].trigger()
    assert len(closed) == 2


@pytest.mark.qt_log_ignore("does not support raise", "systemTrayWindowChanged")
def test_without_a_tray_closing_the_window_quits(
    served: Stage, servers: Servers, tray: list[bool]
) -> None:
    """An app that nothing shows could only be ended by its process id."""
    served.start()
    closed: list[bool] = []
    served.window.closing.connect(lambda: closed.append(True))
    tray.append(False)
    served.controller.change_settings(serve=True, serve_closed=True)
    served.wait_until_idle()
    served.window.close()
    assert (closed, served.window.isHidden()) == ([True], False)
    tray.append(True)  # a panel was started meanwhile
    served.window.close()
    assert (closed, served.window.isHidden()) == ([True], True)


@pytest.mark.qt_log_ignore("does not support raise", "systemTrayWindowChanged")
def test_the_question_about_quitting_brings_the_closed_window_back(
    served: Stage, tray: list[bool]
) -> None:
    served.start()
    served.controller.change_settings(serve=True, serve_closed=True)
    served.wait_until_idle()
    served.window.close()
    served.controller.state.set_notice("other", Notice("Something else."))
    assert served.window.isHidden()
    served.controller.state.set_notice("quit", Notice("Not saved."))
    assert not served.window.isHidden()


@pytest.mark.qt_log_ignore("does not support raise", "systemTrayWindowChanged")
def test_a_server_that_fails_brings_the_closed_window_back(
    served: Stage, servers: Servers, tray: list[bool]
) -> None:
    served.start()
    served.controller.change_settings(serve=True, serve_closed=True)
    served.wait_until_idle()
    served.window.close()
    servers.error = OSError(errno.EADDRINUSE, "in use")
    served.controller.change_settings(serve_port=5000)
    served.wait_until_idle()
    assert not served.window.isHidden()


def test_addresses_of_a_server() -> None:
    assert addresses(LocalServerOptions("0.0.0.0", 9), lambda: ["192.168.1.2", "10.0.0.3"]) == (
        "http://127.0.0.1:9",
        "http://192.168.1.2:9",
        "http://10.0.0.3:9",
    )
    assert addresses(LocalServerOptions(port=9), lambda: ["192.168.1.2"]) == ("http://127.0.0.1:9",)


# --- a change of the model that waits for other programs ------------------------------------------


MODEL = Path("/models/Small.gguf")


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
