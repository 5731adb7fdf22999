"""Scenes of chats whose model runs elsewhere, for tests/pictures/shots.py."""

from __future__ import annotations

from dataclasses import replace

from app.domain.answer_details import AnswerDetails
from app.domain.connection import ServerKind
from app.domain.model_ref import Remote
from app.engines.capabilities import Capabilities
from app.engines.remote.wire import formats_of, samplers_of
from app.state.chat import ChatModel, ServedModel
from app.state.connections import EngineRow, EngineState
from scenes_chat import Scene, long_answer, ready
from stage import Stage, flush

_HOST = "192.168.1.20:1234"
_BIG, _SMALL = Remote("gpu", "Qwen3-32B"), Remote("old", "gemma-3-4b")
_OFF = "192.168.1.7:8080 cannot be reached: Connection refused."


def picker(stage: Stage) -> None:
    """The models of two servers, one of which is off."""
    ready(stage)
    _serve(stage)
    stage.window.open_picker()
    flush()


def panel(stage: Stage) -> None:
    """What the server does not do is greyed."""
    ready(stage)
    _serve(stage)
    stage.window.open_panel("sampling")
    flush()


def panel_end(stage: Stage) -> None:
    ready(stage)
    _serve(stage)
    stage.window.open_panel("format")
    flush()


def details(stage: Stage) -> None:
    """The card about an answer of a server."""
    long_answer(stage)
    _serve(stage)
    message = stage.state.messages[-1]
    made = AnswerDetails(
        model="Qwen3-32B",
        ended=1_790_000_000.0,
        reused_tokens=410,
        first_token_seconds=0.42,
        decode_seconds=7.1,
        server=_HOST,
        connection="The big machine",
        server_model="qwen3-32b-q4",
        sent_sampling='{"temperature": 0.6}',
    )
    stage.state.change(
        replace(message, details=made, model=made.model, prompt_tokens=480, generated_tokens=212)
    )
    stage.window.cards.open_details(message.id)
    flush()


def off(stage: Stage) -> None:
    """A chat whose server does not answer."""
    long_answer(stage)
    _serve(stage)
    missing = ChatModel(_SMALL, _SMALL.id, "SmolLM2 135M", _OFF, 0.0, "192.168.1.7:8080")
    stage.state.set_chat_model(missing)
    stage.states.connections.set_destination(missing.server)
    flush()


def deleted(stage: Stage) -> None:
    """The page of connections after one was deleted."""
    ready(stage)
    stage.window.open_engines()
    _serve(stage)
    state = stage.states.connections
    state.set_engines(state.engines[1:])
    state.set_deleted(EngineRow("gpu", "The big machine", "https://gpu.example/v1", "gpu.example"))
    flush()


def _serve(stage: Stage) -> None:
    """Two connections; the shown chat uses a model of the first one."""
    gpu = EngineRow("gpu", "The big machine", f"http://{_HOST}/v1", _HOST, (), True,
                    EngineState.READY, ("Qwen3-32B",))  # fmt: skip
    old = EngineRow("old", "Old laptop", "http://192.168.1.7:8080/v1", "192.168.1.7:8080", (),
                    False, EngineState.FAILED, ("gemma-3-4b",), (), _OFF)  # fmt: skip
    stage.states.connections.set_engines((gpu, old))
    stage.state.set_served(
        (
            ServedModel(_BIG, "Qwen3-32B", gpu.name, _HOST, 32_768),
            ServedModel(_SMALL, "gemma-3-4b", old.name, old.host, 8192, _OFF),
        )
    )
    stage.state.set_capabilities(
        Capabilities(
            server=_HOST,
            formats=formats_of(ServerKind.LM_STUDIO),
            samplers=samplers_of(ServerKind.OLLAMA),
            thinking=False,
        )
    )
    stage.state.set_chat_model(ChatModel(_BIG, "Qwen3-32B", server=_HOST, context=32_768))
    stage.states.connections.set_destination(_HOST)
    flush()


SCENES: dict[str, Scene] = {
    "elsewhere_picker": picker,
    "elsewhere_panel": panel,
    "elsewhere_panel_end": panel_end,
    "elsewhere_details": details,
    "elsewhere_off": off,
    "elsewhere_deleted": deleted,
}
