"""The page's switch over a real server: its address answers, its log is shown, a used port is said."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from pytestqt.qtbot import QtBot

from app.chat.local_server import server_starter
from app.chat.network import Outside
from app.settings.table import Settings
from app.state.server import ServerPhase
from engine import start_server
from engine.server.bridge import Door
from stage import Stage

KEY = "a-key-of-the-test"


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, door: Door, port: int) -> Iterator[Stage]:
    made = Stage(
        tmp_path,
        settings=Settings(serve_port=port, serve_key=KEY),
        outside=Outside(server_starter(partial(start_server, door))),
    )
    made.start()
    yield made
    made.close()


def test_the_switch_opens_and_closes_the_address(stage: Stage, port: int) -> None:
    state, url = stage.states.server, f"http://127.0.0.1:{port}"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", trust_env=False)
    stage.controller.change_settings(serve=True)
    stage.wait_until_idle()
    assert (state.status.phase, state.status.addresses) == (ServerPhase.ON, (url,))
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/v1/models").status_code == 401
        client.headers["Authorization"] = f"Bearer {KEY}"
        assert client.get("/v1/models").status_code == 200
    stage.controller.network.serving.watch(True)
    assert (state.status.requests, state.status.failed) == (2, 1)
    assert [(row.path, row.status) for row in state.status.log] == [
        ("/v1/models", 200),
        ("/v1/models", 401),
    ]
    assert [row.address for row in state.status.clients] == ["127.0.0.1"]
    stage.controller.change_settings(serve_texts=True, serve_minutes=1)
    stage.wait_until_idle()
    assert state.status.phase is ServerPhase.ON
    stage.controller.change_settings(serve=False)
    stage.wait_until_idle()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", trust_env=False)


def test_a_used_port_is_said_and_another_taken(stage: Stage, port: int) -> None:
    state = stage.states.server
    with socket.create_server(("127.0.0.1", port)):
        stage.controller.change_settings(serve=True)
        stage.wait_until_idle()
        assert state.status.phase is ServerPhase.FAILED
        assert state.status.problem == f"Another program uses port {port}."
    stage.controller.change_settings(serve_minutes=7)
    stage.wait_until_idle()
    assert state.status.phase is ServerPhase.ON


def test_it_serves_this_computer_while_the_app_is_offline(stage: Stage, port: int) -> None:
    stage.controller.change_settings(offline=True, serve=True, serve_network="network")
    stage.wait_until_idle()
    assert stage.states.server.status.phase is ServerPhase.ON
    with pytest.raises(httpx.ConnectError, match="offline"):
        httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
    stage.controller.change_settings(offline=False)
    stage.wait_until_idle()
    assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
