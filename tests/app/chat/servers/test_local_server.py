"""The page's switch over a real server: its address answers, its log is shown, a used port is said."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.chat.servers.local_server import shared_engine
from app.chat.servers.network import Outside
from app.domain.message import MessageState
from app.settings.table import Settings
from app.state.chat import ModelPhase
from app.state.server import LogRow, ServerPhase
from engine import Event
from engine_bench import with_printable_output
from fakes import FakeEngine
from stage import Stage, until

KEY = "a-key-of-the-test"


class RealStage(Stage):
    """The window with the real engine, which its server shares."""

    def __init__(self, folder: Path, port: int) -> None:
        self.make_engine, serve = shared_engine(lambda: [folder])
        settings = Settings(serve_port=port, serve_key=KEY, temperature=0.0, max_tokens=8)
        super().__init__(folder, settings=settings, outside=Outside(serve))

    def _engine(self, deliver: Callable[[Event], None], answers: object) -> FakeEngine:
        return self.make_engine(deliver)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny-shared.gguf"
    return with_printable_output(tiny.write(path, context=2048))


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, port: int) -> Iterator[Stage]:
    made = RealStage(tmp_path, port)
    made.start()
    yield made
    made.close()


def test_the_window_and_a_program_answer_by_one_model(stage: Stage, model: Path, port: int) -> None:
    stage.controller.load_model(model)
    until(lambda: stage.state.model.phase is ModelPhase.READY)
    stage.controller.change_settings(serve=True)
    stage.wait_until_idle()
    answers: list[httpx.Response] = []

    def ask() -> None:
        body = {"model": "", "messages": [{"role": "user", "content": "the cat"}], "max_tokens": 4}
        headers = {"Authorization": f"Bearer {KEY}", "User-Agent": "aider/1.0"}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        answers.append(httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False))

    program = threading.Thread(target=ask)
    program.start()
    stage.window.composer.submitted.emit("the dog")
    until(lambda: bool(answers) and not stage.state.busy and bool(stage.state.messages))
    program.join()
    stage.wait_until_idle()
    assert answers[0].status_code == 200, answers[0].text
    assert answers[0].json()["usage"]["completion_tokens"] == 4
    assert stage.state.messages[-1].state is MessageState.STOPPED  # at its longest length
    stage.controller.network.serving.watch(True)
    (row,) = stage.states.server.status.log
    assert (row.client, row.generated_tokens, row.prompt, row.answer) == ("aider/1.0", 4, "", "")


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


def test_switched_off_it_ends_the_answers_that_run(stage: Stage, model: Path, port: int) -> None:
    """At once, and with an error that programs show: a cut line would look like a full answer."""
    stage.controller.load_model(model)
    until(lambda: stage.state.model.phase is ModelPhase.READY)
    stage.controller.change_settings(serve=True)
    stage.wait_until_idle()
    answers: list[str] = []
    body = {
        "model": "", "messages": [{"role": "user", "content": "the cat"}],
        "max_tokens": 1900, "n": 16, "ignore_eos": True, "stream": True,
    }  # fmt: skip

    def ask() -> None:
        url, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
            answers.append(client.post("/v1/chat/completions", json=body).text)

    program = threading.Thread(target=ask)
    program.start()
    stage.controller.network.serving.watch(True)
    until(lambda: any(row.is_running and row.prompt_tokens for row in shown(stage)))
    stage.controller.change_settings(serve=False)
    program.join(30)
    assert '"code":"answer_ended"' in answers[0]
    assert not answers[0].endswith("[DONE]\n\n")
    stage.wait_until_idle()
    assert stage.states.server.status.phase is ServerPhase.OFF


def shown(stage: Stage) -> tuple[LogRow, ...]:
    stage.controller.network.serving.watch(True)
    return stage.states.server.status.log
