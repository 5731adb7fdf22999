"""Connections as the page edits them: checked, stored, tested over real sockets, and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.chat.servers.connections import EngineDirectory, EngineFault
from app.chat.servers.engine_directory import RemoteDirectory
from app.domain.answer_request import PromptMessage
from app.domain.connection import ServerKind
from app.domain.deltas import TextDelta
from app.domain.model_ref import Local, Remote
from app.domain.parts import ImagePart
from app.domain.remote_fault import RemoteFaultKind
from app.engines.capabilities import Capabilities
from app.engines.local import LocalClient
from app.engines.registry import EngineRegistry
from app.engines.remote.connections import HIDDEN, ConnectionStore
from app.engines.remote.engines import RemoteEngines
from app.engines.remote.errors import RemoteError
from app.engines.remote.keys import KeyStore
from app.net.offline import Gate
from app.settings.table import Settings
from app.state.connections import EngineEdit, FoundRow
from app.system.secret_store import NoKeyring
from engine import ConstraintKind, Role
from fakes import FakeEngine
from hostile_server import Server, answer, json_reply, serving
from remote_answers import question

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        rows = [{"id": "big", "max_model_len": 4096, "owned_by": "vllm"}, {"id": "small"}]
        made.on("/v1/models", json_reply({"data": rows}))
        yield made


def no_ring() -> None:
    raise NoKeyring("no keyring was found")


@pytest.fixture
def store(tmp_path: Path) -> ConnectionStore:
    keys = KeyStore(tmp_path / "keys.json", no_ring)  # type: ignore[arg-type]
    return ConnectionStore(tmp_path / "connections.json", keys)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def directory(store: ConnectionStore, gate: Gate) -> EngineDirectory:
    return RemoteDirectory(store, gate.allow, Settings)


def test_new_connection_is_checked_stored_and_tested(
    directory: EngineDirectory, store: ConnectionStore, server: Server, gate: Gate
) -> None:
    pasted = f" localhost:{server.port}/ ".replace("localhost", "127.0.0.1")
    edit = directory.check(EngineEdit("", "", pasted, (("X-Team", "a"),), KEY))
    assert edit.address == server.address.removesuffix("/v1")
    id = directory.save(edit)
    (row,) = directory.rows()
    assert (row.id, row.name, row.has_key) == (id, f"127.0.0.1:{server.port}", True)
    assert row.models == ()
    assert directory.models(id) == ["big", "small"]
    (row,) = directory.rows()
    assert (row.name, row.address, row.models) == ("vLLM", server.address, ("big", "small"))
    assert store.get(id).kind is ServerKind.VLLM
    assert store.get(id).model("big").context == 4096
    request = server.received[0]
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "a"
    contact = gate.ledger.all()[0]
    assert (contact.host, contact.port) == ("127.0.0.1", server.port)


def test_edit_of_a_connection_keeps_what_is_not_edited(
    directory: EngineDirectory, store: ConnectionStore, server: Server
) -> None:
    edit = EngineEdit("", "Mine", server.address, (("X-Token", "one"),), KEY)
    id = directory.save(edit)
    directory.models(id)
    directory.save(replace(edit, id=id, name="Ours", key=None, headers=(("X-Token", HIDDEN),)))
    made = store.get(id)
    assert made.name == "Ours"
    assert store.credentials(made).key == KEY
    assert store.credentials(made).headers == (("X-Token", "one"),)
    assert made.models
    directory.delete(id)
    assert directory.rows() == []
    directory.restore(id)
    assert [row.name for row in directory.rows()] == ["Ours"]
    assert store.credentials(store.get(id)).key == KEY
    directory.delete(id)
    directory.purge()
    directory.restore(id)
    assert directory.rows() == []


def test_name_made_of_an_address_follows_its_correction(directory: EngineDirectory) -> None:
    id = directory.save(EngineEdit("", "", "http://127.0.0.1:1/v1"))
    (row,) = directory.rows()
    directory.save(EngineEdit(id, row.name, "http://127.0.0.1:2/v1"))
    assert [row.name for row in directory.rows()] == ["127.0.0.1:2"]
    directory.save(EngineEdit(id, "Mine", "http://127.0.0.1:3/v1"))
    assert [row.name for row in directory.rows()] == ["Mine"]


def test_models_are_named_by_hand_where_no_list_is(
    directory: EngineDirectory, store: ConnectionStore, server: Server
) -> None:
    server.on("/v1/models", json_reply({"detail": "Not Found"}, 404))
    edit = EngineEdit("", "Mine", server.address)
    id = directory.save(edit)
    with pytest.raises(EngineFault) as fault:
        directory.models(id)
    assert "enter a name" in fault.value.remedy
    directory.save(replace(edit, id=id, named=("mine", "other")))
    assert directory.models(id) == ["mine", "other"]
    (row,) = directory.rows()
    assert (row.named, row.models) == (("mine", "other"), ("mine", "other"))
    again = ConnectionStore(store._file, store._keys).get(id)
    assert [model.id for model in again.chat_models] == ["mine", "other"]
    engines = RemoteEngines(store, Gate().allow)
    assert [model.id for _, model in engines.models()] == ["mine", "other"]


def test_named_models_come_after_those_listed(directory: EngineDirectory, server: Server) -> None:
    id = directory.save(EngineEdit("", "", server.address, named=("small", "hidden")))
    assert directory.models(id) == ["big", "small", "hidden"]


@pytest.mark.parametrize("address", ["", "ftp://x", "http://user:pass@gpu"])
def test_wrong_addresses_are_one_sentence(directory: EngineDirectory, address: str) -> None:
    with pytest.raises(EngineFault) as fault:
        directory.check(EngineEdit("", "", address))
    assert str(fault.value).endswith(".")
    assert fault.value.remedy


def test_consent_is_kept_for_its_address(
    directory: EngineDirectory, store: ConnectionStore
) -> None:
    assert directory.needs_consent("http://example.com/v1")
    id = directory.save(EngineEdit("", "", "http://example.com/v1", allow_http=True))
    assert store.get(id).consent == "http://example.com/v1"


def test_server_that_is_not_there_is_one_sentence(
    directory: EngineDirectory, server: Server
) -> None:
    id = directory.save(EngineEdit("", "", server.address))
    server.on("/v1/models", json_reply({"error": "no"}, 401))
    with pytest.raises(EngineFault, match="asks for a key"):
        directory.models(id)
    with pytest.raises(EngineFault, match="not set up here"):
        directory.models("unknown")


def test_offline_switch_holds_for_tests_and_answers(
    directory: EngineDirectory, store: ConnectionStore, server: Server, gate: Gate
) -> None:
    id = directory.save(EngineEdit("", "", server.address))
    gate._offline = True  # the switch itself also watches the sockets of this process
    with pytest.raises(EngineFault, match="offline"):
        directory.models(id)
    assert directory.find() == []
    assert not server.received


def test_own_server_is_not_found(store: ConnectionStore, gate: Gate, server: Server) -> None:
    for serves, found in ((False, [FoundRow("vLLM", server.address, 2)]), (True, [])):
        settings = replace(Settings(), serve=serves, serve_port=server.port)
        ports = {server.port: ServerKind.OLLAMA}
        directory = RemoteDirectory(store, gate.allow, partial(replace, settings), ports)
        assert directory.find() == found


def test_pictures_are_only_sent_to_models_that_take_them(
    directory: EngineDirectory, store: ConnectionStore, server: Server, gate: Gate
) -> None:
    rows = [
        {"id": name, "architecture": {"input_modalities": kinds}}
        for name, kinds in (("sees", ["text", "image"]), ("reads", ["text"]))
    ]
    server.on("/v1/models", json_reply({"data": [*rows, {"id": "says nothing"}]}))
    engines = RemoteEngines(store, gate.allow, read_image=lambda part: b"GIF89a")
    id = directory.save(EngineEdit("", "", server.address))
    directory.models(id)
    server.chat(answer("Hello"))
    asked = question(messages=(PromptMessage(Role.USER, (ImagePart("a.gif"),)),))

    async def run(name: str) -> None:
        async for _ in engines.generate(Remote(id, name), asked):
            pass

    for name in ("sees", "reads", "says nothing"):
        asyncio.run(run(name))
    found = [body["messages"][0]["content"] for body in server.asked]
    picture = {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}}
    assert found == [[picture], '\n[picture "a.gif", which you cannot see]\n', [picture]]


def test_models_of_connections_answer(
    directory: EngineDirectory, store: ConnectionStore, server: Server, gate: Gate
) -> None:
    engines = RemoteEngines(store, gate.allow)
    id = directory.save(EngineEdit("", "", server.address, key=KEY))
    directory.models(id)
    server.chat(answer("Hello"))
    ref = Remote(id, "big")
    assert [model.id for _, model in engines.models()] == ["big", "small"]

    async def run() -> str:
        deltas = [delta async for delta in engines.generate(ref, question())]
        return "".join(each.text for each in deltas if isinstance(each, TextDelta))

    assert asyncio.run(run()) == "Hello"
    assert server.asked[0]["model"] == "big"
    assert server.received[-1].headers["authorization"] == f"Bearer {KEY}"
    assert asyncio.run(engines.engine(ref)) is asyncio.run(engines.engine(ref))
    (row,) = directory.rows()
    directory.save(EngineEdit(id, row.name, row.address, key="another key"))
    assert asyncio.run(run()) == "Hello"
    assert server.received[-1].headers["authorization"] == "Bearer another key"
    directory.delete(id)
    with pytest.raises(RemoteError) as error:
        asyncio.run(run())
    assert error.value.fault.kind is RemoteFaultKind.NO_CONNECTION


def test_capabilities_belong_to_a_model(
    directory: EngineDirectory, store: ConnectionStore, server: Server, gate: Gate, qtbot: object
) -> None:
    id = directory.save(EngineEdit("", "", server.address))
    directory.models(id)
    client = LocalClient(FakeEngine, lambda _: None)
    engines = EngineRegistry(client, RemoteEngines(store, gate.allow))
    ref = Remote(id, "big")
    assert isinstance(engines.for_model(ref), RemoteEngines)
    assert engines.local(ref) is None
    assert engines.for_model(Remote("unknown", "big")) is None
    assert engines.capabilities(Remote("unknown", "big")) == Capabilities()
    found = engines.capabilities(ref)
    assert (found.adapters, found.snapshots, found.counts, found.metrics) == (False,) * 4
    assert ConstraintKind.REGEX in found.formats
    for name in ("adapters", "snapshots", "counts", "metrics", "logits"):
        assert found.reason(name).endswith(".")
    assert f"127.0.0.1:{server.port}" in found.reason("adapters")
    assert found.sampler_reason("min_p") == found.reason("thinking") == ""  # vLLM
    assert "mirostat" not in (found.samplers or ())
    assert "does not use" in found.sampler_reason("mirostat")
    here = engines.capabilities(Local(Path("/m.gguf")))
    assert here.adapters
    assert here.reason("adapters") == ""
    client.deleteLater()
