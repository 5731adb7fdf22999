"""Scenes of the page of connections, for tests/pictures/shots.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.chat.servers.network import Outside
from app.domain.answer_details import AnswerDetails
from app.domain.chat_settings import NO_SETTINGS, settings_text
from app.domain.connection import Connection, RemoteModel, ServerKind
from app.domain.message import MessageState, Role
from app.domain.model_ref import Remote
from app.engines.remote.connections import ConnectionStore
from app.engines.remote.engines import RemoteEngines
from app.engines.remote.keys import KeyStore
from app.net.ledger import Ledger, Purpose
from app.net.offline import gate
from app.state.connections import EngineRow, EngineState, FoundRow
from app.state.server import ClientRow, LogRow, ServerPhase
from app.store.store import Store
from app.system.secret_store import Keyring, NoKeyring
from app.system.translation import tr
from scenes_chat import Scene, ready
from stage import Stage, flush

_NOON = 1_790_000_000.0  # Unix seconds
_HERE = "127.0.0.1"
_REMOTE = Remote("gpu", "Qwen3-32B")


def page(stage: Stage) -> None:
    """Everything off, as at the first start."""
    ready(stage)
    stage.states.server.set(offered=True)
    stage.states.connections.set_engines((), offered=True)
    _open(stage)


def busy(stage: Stage) -> None:
    """The server is used, there are engines elsewhere, and contacts."""
    ready(stage)
    _open(stage)
    stage.controller.change_settings(
        serve=True, serve_closed=True, serve_key="m2Xk9wq0PzT4", serve_network="network"
    )
    stage.states.server.set(
        offered=True,
        phase=ServerPhase.ON,
        addresses=("http://127.0.0.1:8080", "http://192.168.1.20:8080"),
        running=1,
        requests=14,
        failed=1,
        has_tray=True,
        clients=(
            ClientRow("OpenAI/Python 2.1", _HERE, 1, 9, _NOON),
            ClientRow("aider", "192.168.1.31", 0, 5, _NOON - 20),
        ),
        log=(
            LogRow(14, _NOON, "OpenAI/Python", "POST", "/v1/chat/completions", "SmolLM2 135M",
                   200, 0.0, 1203, 0, "", "", "", is_running=True),
            LogRow(13, _NOON - 20, "aider", "POST", "/v1/chat/completions", "SmolLM2 135M",
                   200, 3.2, 1840, 212, "", "", ""),
            LogRow(12, _NOON - 60, "curl", "GET", "/v1/models", "", 401, 0.0, 0, 0,
                   "The key is wrong.", "", ""),
        ),
    )  # fmt: skip
    _fill(stage)


def below(stage: Stage) -> None:
    busy(stage)
    _scroll_to(stage, "engines")


def contacts(stage: Stage) -> None:
    busy(stage)
    _scroll_to(stage, "contacts")


def editor(stage: Stage) -> None:
    busy(stage)
    shown = stage.window.connections.page
    assert shown is not None
    shown.engines.open_editor(None, "http://gpu.example.org:8000/v1")
    stage.states.connections.set_edit(tr("This is not the address of a server."))
    _scroll_to(stage, "engines")


def offline(stage: Stage) -> None:
    busy(stage)
    stage.controller.change_settings(offline=True)
    flush()


def narrow(stage: Stage) -> None:
    stage.window.resize(480, 700)
    busy(stage)


def outside(folder: Path) -> Outside:
    """What is beyond the window in a scene: no server, and engines as a scene connects them."""
    keys = KeyStore(folder / "keys.json", _no_keyring)
    store = ConnectionStore(folder / "connections.json", keys)
    return Outside(remote=RemoteEngines(store, gate.allow))


def remote_chat(stage: Stage) -> None:
    """A new chat whose model is elsewhere: where its words go is said."""
    ready(stage)
    _fill(stage)
    stage.controller.model_use.choose(_REMOTE)
    stage.wait_until_idle()


def remote_answer(stage: Stage) -> None:
    """A chat with an answer from elsewhere: its speed, and how full the context is."""
    ready(stage)
    _fill(stage)
    made: list[int] = []

    def write(store: Store) -> None:
        settings = settings_text(replace(NO_SETTINGS, model=_REMOTE))
        chat = store.create_conversation("Why bread rises", settings)
        asked = store.add_message(chat.id, None, Role.USER, "Why does bread rise?")
        answer = store.add_message(
            chat.id, asked.id, Role.ASSISTANT, "", MessageState.STREAMING, _REMOTE.id
        )
        store.append_text(answer.id, "Yeast eats sugar and gives off a gas, which the dough holds.")
        details = AnswerDetails(_REMOTE.id, first_token_seconds=0.21, decode_seconds=0.4)
        store.finish(
            answer.id,
            MessageState.COMPLETE,
            prompt_tokens=28_410,
            generated_tokens=19,
            seconds=0.6,
            details=details,
        )
        made.append(chat.id)

    stage.store_queue.write(write)
    stage.wait_until_idle()
    stage.controller.conversations.read()
    stage.controller.open_conversation(made[0])
    stage.wait_until_idle()


def _no_keyring() -> Keyring:
    raise NoKeyring("there is none in a scene")


def _open(stage: Stage) -> None:
    stage.window.connections.toggle()
    gate.ledger = Ledger(lambda: _NOON)
    flush()


def _fill(stage: Stage) -> None:
    gate.ledger = Ledger(lambda: _NOON)
    for host, port, purpose, count, received in (
        ("huggingface.co", 443, Purpose.SEARCH, 12, 340_000),
        ("cdn.example.org", 443, Purpose.DOWNLOAD, 2, 1_070_000_000),
        ("gpu.example.org", 8000, Purpose.ANSWERS, 31, 82_000),
        (_HERE, 11434, Purpose.DISCOVERY, 3, 0),
    ):
        gate.ledger.record((host, port, purpose), count=count, received=received)
    stage.states.connections.set_engines(
        (
            EngineRow("gpu", "The big machine", "https://gpu.example.org:8000/v1",
                      "gpu.example.org", (), True, EngineState.READY,
                      ("Qwen3-32B", "gpt-oss-120b")),
            EngineRow("old", "Old laptop", "http://192.168.1.7:8080/v1", "192.168.1.7", (), False,
                      EngineState.FAILED, problem="192.168.1.7 does not answer.",
                      remedy="Check that it is switched on."),
        )
    )  # fmt: skip
    assert stage.outside is not None
    assert stage.outside.remote is not None
    models = (
        RemoteModel("Qwen3-32B", context=32_768),
        RemoteModel("gpt-oss-120b", context=131_072),
    )
    connection = Connection(
        "gpu",
        "The big machine",
        "https://gpu.example.org:8000/v1",
        kind=ServerKind.VLLM,
        models=models,
    )
    stage.outside.remote.store.save(connection, None, ())
    stage.controller.chat_models.read_served()
    stage.states.connections.set_found(
        (FoundRow("Ollama", "http://127.0.0.1:11434", 3),), searching=False
    )
    stage.controller.network.connections.watch(True)
    flush()


def _scroll_to(stage: Stage, section: str) -> None:
    flush()
    shown = stage.window.connections.page
    assert shown is not None
    part = getattr(shown, section)
    place = part.mapTo(shown.view.widget(), part.rect().topLeft())
    shown.view.verticalScrollBar().setValue(place.y())
    flush()


SCENES: dict[str, Scene] = {
    "connections": page,
    "connections_busy": busy,
    "connections_engines": below,
    "connections_contacts": contacts,
    "connections_editor": editor,
    "connections_offline": offline,
    "connections_narrow": narrow,
    "remote_chat": remote_chat,
    "remote_answer": remote_answer,
}
