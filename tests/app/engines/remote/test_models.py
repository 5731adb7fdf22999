"""Lists of models and their contexts, which program a server is, and what is found by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.domain.connection import Connection, RemoteModel, ServerKind
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.discovery import Discovered, discover
from app.engines.remote.errors import RemoteError
from app.engines.remote.exchange import Times
from app.engines.remote.models import Found
from app.net.ledger import Purpose
from hostile_server import Reply, Server, Step, error, json_reply, page, serving
from remote_answers import Gate, engine_for

TIMES = Times(connect=5.0, short=5.0)


def looked(server: Server, address: str = "", **options: Any) -> Found:
    engine = engine_for(address or server.address, **options)
    return asyncio.run(engine.look())


def listed(*rows: dict[str, Any], owner: str = "") -> Reply:
    return json_reply({"object": "list", "data": [{"owned_by": owner, **row} for row in rows]})


def test_vllm(server: Server) -> None:
    server.on("/v1/models", listed({"id": "big", "max_model_len": 32768}, owner="vllm"))
    found = looked(server)
    assert found == Found(server.address, ServerKind.VLLM, (RemoteModel("big", context=32768),))
    assert [each.path for each in server.received] == ["/v1/models"]


def test_vllm_behind_ray_serve(server: Server) -> None:
    told = {"model_id": "big", "input_modality": "text", "max_request_context_length": 1024}
    server.on("/v1/models", listed({"id": "big", "metadata": told}, owner="organization-owner"))
    found = looked(server)
    assert found.kind is ServerKind.VLLM  # so that answers are continued, not asked for again
    (model,) = found.models
    assert (model.context, model.images) == (1024, False)


def test_our_own_server(server: Server) -> None:
    server.on(
        "/v1/models",
        listed(
            {"id": "a", "name": "A one", "context_length": None, "max_model_len": None,
             "meta": {"size": 5}},
            {"id": "b", "max_model_len": 4096},
            owner="tokonoma",
        ),
    )  # fmt: skip
    found = looked(server)
    assert found.kind is ServerKind.TOKONOMA
    assert found.models == (RemoteModel("a", "A one"), RemoteModel("b", context=4096))


def test_llama_server(server: Server) -> None:
    meta = {"n_ctx_train": 131072}
    server.on("/v1/models", listed({"id": "m.gguf", "meta": meta}, owner="llamacpp"))
    props = {"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": False}}
    server.on("/props", json_reply(props))
    found = looked(server)
    assert found.kind is ServerKind.LLAMA_SERVER
    assert found.models == (RemoteModel("m.gguf", context=8192, images=False),)
    server.on("/props", error("not found", 404))
    assert looked(server).models[0].context == 131072


def test_lm_studio(server: Server) -> None:
    ids = ("chat", "embed", "eyes")
    server.on("/v1/models", listed(*({"id": id} for id in ids), owner="organization_owner"))
    rows = [
        {"id": "chat", "type": "llm", "state": "loaded", "loaded_context_length": 4096,
         "max_context_length": 131072, "capabilities": ["tool_use"]},
        {"id": "embed", "type": "embeddings", "state": "not-loaded", "max_context_length": 512},
        {"id": "eyes", "type": "vlm", "state": "not-loaded", "max_context_length": 8192},
    ]  # fmt: skip
    server.on("/api/v0/models", json_reply({"data": rows}))
    found = looked(server)
    assert found.kind is ServerKind.LM_STUDIO
    assert found.models == (
        RemoteModel("chat", "", 4096, images=False, tools=True, loaded=True),
        RemoteModel("embed", "", 512, images=False, chats=False, loaded=False),
        RemoteModel("eyes", "", 8192, images=True, loaded=False),
    )


def test_ollama(server: Server) -> None:
    server.on("/v1/models", listed({"id": "llama3.2:1b"}, {"id": "nomic"}, owner="library"))
    server.on("/api/version", json_reply({"version": "0.40.12"}))
    shown = {
        "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
        "parameters": "stop    <x>\nnum_ctx 8192\n",
        "capabilities": ["completion", "tools"],
    }
    embeds = {"model_info": {"bert.context_length": 2048}, "capabilities": ["embedding"]}
    server.on("/api/show", json_reply(shown), json_reply(embeds))
    found = looked(server)
    assert found.kind is ServerKind.OLLAMA
    contexts = sorted(each.context for each in found.models)
    assert contexts == [2048, 8192]
    assert sorted(each.chats for each in found.models) == [False, True]


def test_service_with_many_models(server: Server) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a/b:free", "name": "A: B (free)", "context_length": 32768,
         "architecture": {"input_modalities": ["text", "image"]},
         "supported_parameters": ["temperature", "tools"]},
        {"id": "c", "supported_parameters": ["temperature"]},
    ]  # fmt: skip
    server.on("/v1/models", json_reply({"data": rows}))
    assert looked(server).models == (
        RemoteModel("a/b:free", "A: B (free)", 32768, images=True, tools=True),
        RemoteModel("c", tools=False),
    )


@pytest.mark.parametrize(
    "value",
    [
        [{"id": "m"}],  # Together sends a plain list
        {"models": [{"name": "m"}]},
        {"data": [None, 3, {}, {"id": 5}, {"id": ""}, {"id": "m", "max_model_len": "x"}]},
    ],
)
def test_other_shapes_of_lists(server: Server, value: Any) -> None:
    server.on("/v1/models", json_reply(value))
    assert [each.id for each in looked(server).models] == ["m"]


@pytest.mark.parametrize("path", ["", "/v1", "/openai", "/paas/v4"])
def test_the_address_of_the_api_is_found(server: Server, path: str) -> None:
    """With and without /v1, and where a service has its API at another path."""
    place = {"": "/v1", "/openai": "/openai"}.get(path, path)
    server.on(f"{place}/models", listed({"id": "m"}))
    root = server.address.removesuffix("/v1")
    assert looked(server, root + path).address == root + place


def test_wrong_path_with_the_status_of_success(server: Server) -> None:
    """LM Studio answers an unknown route with 200 and an error."""
    wrong = {"error": "Unexpected endpoint or method. (GET /v1/v1/models)"}
    server.on("/v1/models", json_reply(wrong))
    with pytest.raises(RemoteError) as failed:
        looked(server)
    assert failed.value.fault.kind is RemoteFaultKind.NO_API


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (page("Sign in"), RemoteFaultKind.WEB_PAGE),
        (json_reply({"detail": "Not Found"}, 404), RemoteFaultKind.NO_API),
        (json_reply({"error": "no"}, 401), RemoteFaultKind.NEEDS_KEY),
        (json_reply({"hello": 1}), RemoteFaultKind.INVALID),
        (Reply([b"text"]), RemoteFaultKind.INVALID),
        (Reply([Step.RESET]), RemoteFaultKind.CLOSED),
        (Reply([b"x" * (9 << 20)]), RemoteFaultKind.INVALID),
    ],
)
def test_addresses_without_models(server: Server, reply: Reply, kind: RemoteFaultKind) -> None:
    for path in ("/v1/models", "/models"):
        server.on(path, reply)
    with pytest.raises(RemoteError) as failed:
        looked(server, server.address.removesuffix("/v1"))
    assert failed.value.fault.kind is kind


def test_silent_server_is_given_up(server: Server) -> None:
    server.on("/v1/models", Reply([Step.HOLD]))
    with pytest.raises(RemoteError) as failed:
        looked(server, times=Times(connect=5.0, short=0.2))
    assert failed.value.fault.kind is RemoteFaultKind.SILENT


# --- discovery -----------------------------------------------------------------------------------


def found_on(gate: Gate, *servers: Server, kind: ServerKind = ServerKind.OLLAMA) -> Any:
    ports = {each.port: kind for each in servers}
    return asyncio.run(discover(gate.allow, ports, TIMES))


def test_servers_on_this_machine_are_found(server: Server) -> None:
    server.on("/v1/models", listed({"id": "m"}, {"id": "e", "type": "embedding"}, owner="vllm"))
    with serving() as other, serving() as locked, serving() as web:
        other.on("/v1/models", listed({"id": "x"}))
        locked.on("/v1/models", json_reply({"error": "no"}, 401))
        web.on("/", page("A printer"))
        gate = Gate()
        found = found_on(gate, server, other, locked, web)
        assert found == (
            Discovered("vLLM", Found(server.address, ServerKind.VLLM, (RemoteModel("m"),))),
            Discovered(
                f"127.0.0.1:{other.port}",
                Found(other.address, ServerKind.OPENAI, (RemoteModel("x"),)),
            ),
            Discovered("Ollama", Found(locked.address, ServerKind.OPENAI, ()), needs_key=True),
        )
    assert {purpose for _, purpose in gate.asked} == {Purpose.DISCOVERY}
    assert all("authorization" not in each.headers for each in server.received)
    assert all(each.body is None for each in server.received)


def test_nothing_is_found_offline_and_nothing_is_sent(server: Server) -> None:
    assert found_on(Gate(offline=True), server) == ()
    assert not server.received


def test_connection_knows_its_models() -> None:
    known = RemoteModel("m", context=5)
    connection = Connection("a", "A", "http://a/v1", models=(known,))
    assert connection.model("m") is known
    assert connection.model("other") == RemoteModel("other")
