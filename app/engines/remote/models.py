"""Models of a server, with the sizes of their contexts; and which program the server is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from typing import cast

from app.domain.connection import RemoteModel, ServerKind
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote import addresses
from app.engines.remote.errors import RemoteError
from app.engines.remote.exchange import Server, exchange
from app.engines.remote.faults import (
    body_error,
    error_in,
    is_page,
    page_error,
    response_error,
)
from app.engines.remote.values import Object, count_of, object_of, rows_of
from app.net.hosts import is_private
from app.net.ledger import Purpose

_MAX_BYTES = 8 << 20  # of a list of models; OpenRouter's has half a megabyte
_MAX_SHOWN = 40  # models of Ollama whose details are asked for
_AT_ONCE = 4  # requests
_RAY_CONTEXT = "max_request_context_length"  # in `metadata`: Ray Serve, whose engine is vLLM
# Where a list says how long a context is, the one in use before the longest possible one.
_CONTEXTS = (
    "loaded_context_length", "max_model_len", "context_length", "context_window", "n_ctx",
    "max_context_length", "max_context_window", "n_ctx_train", _RAY_CONTEXT,
)  # fmt: skip
_K = ServerKind
_OWNERS = {
    "vllm": _K.VLLM,
    "sglang": _K.SGLANG,
    "llamacpp": _K.LLAMA_SERVER,
    "tokonoma": _K.TOKONOMA,
}


@dataclass(frozen=True, slots=True)
class Found:
    """What an address has: the address of its API, its kind, and its models."""

    address: str
    kind: ServerKind
    models: tuple[RemoteModel, ...]


async def look(server: Server, purpose: Purpose = Purpose.MODELS) -> Found:
    """Find the API at a connection's address; raises RemoteError.

    The address may lack "/v1". A server without a list of models is found with none, if the user
    has named one.
    """
    errors: list[RemoteError] = []
    for address in addresses.candidates(server.connection.address):
        try:
            rows = await _listed(server, f"{address}/models", purpose)
        except RemoteError as error:
            errors.append(error)
            if error.fault.kind not in (RemoteFaultKind.NO_API, RemoteFaultKind.WEB_PAGE):
                break
            continue
        kind = await _kind(server, address, rows, purpose)
        models = [model for row in rows if (model := _model(row)) is not None]
        models = await _with_contexts(server, address, kind, models, purpose)
        return Found(address, kind, tuple(models))
    if server.connection.named and errors[-1].fault.kind is RemoteFaultKind.NO_API:
        return Found(server.connection.address, server.connection.kind, ())
    raise errors[0]


async def _listed(server: Server, url: str, purpose: Purpose) -> list[Object]:
    found = await fetch(server, url, purpose)
    named = object_of(found)
    rows = named.get("data", named.get("models", found))
    if not isinstance(rows, list):
        if (body := error_in(found)) is not None:
            # LM Studio answers a wrong path with the status 200.
            status = 404 if "endpoint" in body.message.lower() else 0
            raise body_error(server, body, status)
        raise server.error(RemoteFaultKind.INVALID, "no list of models")
    return [row for row in map(object_of, rows_of(cast("object", rows))) if row]


async def fetch(server: Server, url: str, purpose: Purpose, body: Object | None = None) -> object:
    """The JSON value of a short response; raises RemoteError."""
    sent = json.dumps(body).encode("ascii") if body is not None else None
    async with exchange(server, "GET" if sent is None else "POST", url, purpose, sent) as answer:
        content = await answer.read(_MAX_BYTES)
        if answer.status >= 400:
            headers = {name: answer.header(name) for name in ("retry-after", "content-type")}
            raise response_error(server, answer.status, headers, content)
        if is_page(content):
            raise page_error(server, content)
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise server.error(RemoteFaultKind.INVALID, "no JSON", status=answer.status) from error


async def _try(server: Server, url: str, purpose: Purpose, body: Object | None = None) -> Object:
    """A JSON object, or an empty one where there is none."""
    try:
        return object_of(await fetch(server, url, purpose, body))
    except RemoteError:
        return {}


async def _kind(server: Server, address: str, rows: list[Object], purpose: Purpose) -> ServerKind:
    """Which program answers, by its list of models or by its own routes."""
    for row in rows[:1]:
        owner = str(row.get("owned_by", "")).lower()
        if owner in _OWNERS:
            return _OWNERS[owner]
        if _RAY_CONTEXT in object_of(row.get("metadata")):
            return _K.VLLM
    root = addresses.native_root(address)
    if not is_private(addresses.host_of(address)):
        return _K.OPENAI  # a service: it is not asked for the routes of programs
    version, native, props = await asyncio.gather(
        _try(server, f"{root}/api/version", purpose),
        _try(server, f"{root}/api/v0/models", purpose),
        _try(server, f"{root}/props", purpose),
    )
    if "default_generation_settings" in props:
        return _K.LLAMA_SERVER
    if isinstance(version.get("version"), str):
        return _K.OLLAMA
    return _K.LM_STUDIO if isinstance(native.get("data"), list) else _K.OPENAI


async def _with_contexts(
    server: Server, address: str, kind: ServerKind, models: list[RemoteModel], purpose: Purpose
) -> list[RemoteModel]:
    """The models with what the server's own routes say of them."""
    root = addresses.native_root(address)
    if kind is _K.LLAMA_SERVER and models:
        props = await _try(server, f"{root}/props", purpose)
        settings = object_of(props.get("default_generation_settings"))
        context = count_of(settings.get("n_ctx")) or count_of(props.get("n_ctx"))
        modalities = object_of(props.get("modalities"))
        images = modalities.get("vision") if isinstance(modalities.get("vision"), bool) else None
        if len(models) == 1:  # of the only model; a router has several
            first = models[0]
            return [replace(first, context=context or first.context, images=images)]
    elif kind is _K.LM_STUDIO:
        found = await _try(server, f"{root}/api/v0/models", purpose)
        rows = map(object_of, rows_of(found.get("data")))
        by_id = {str(row.get("id")): row for row in rows}
        return [_of_lm_studio(model, by_id.get(model.id, {})) for model in models]
    elif kind is _K.OLLAMA:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def shown(model: RemoteModel) -> RemoteModel:
            async with gate:
                found = await _try(server, f"{root}/api/show", purpose, {"model": model.id})
            return _of_ollama(model, found)

        some = await asyncio.gather(*map(shown, models[:_MAX_SHOWN]))
        return [*some, *models[_MAX_SHOWN:]]
    return models


def _model(row: Object) -> RemoteModel | None:
    """One row of a list of models."""
    id = row.get("id") or row.get("name") or row.get("model")
    if not isinstance(id, str) or not id:
        return None
    meta = {**row, **object_of(row.get("metadata")), **object_of(row.get("meta"))}
    context = next((count for name in _CONTEXTS if (count := count_of(meta.get(name)))), 0)
    name = row.get("name")
    features = _texts(row.get("supported_parameters"))
    inputs = _texts(object_of(row.get("architecture")).get("input_modalities"))
    inputs = inputs or _texts([meta.get("input_modality")])
    return RemoteModel(
        id,
        name if isinstance(name, str) and name != id else "",
        context,
        images="image" in inputs if inputs else None,
        tools="tools" in features if features else None,
        chats="embed" not in str(row.get("type", row.get("task", ""))).lower(),
    )


def _of_lm_studio(model: RemoteModel, row: Object) -> RemoteModel:
    context = count_of(row.get("loaded_context_length")) or count_of(row.get("max_context_length"))
    kind, state = row.get("type"), row.get("state")
    capabilities = _texts(row.get("capabilities"))
    return replace(
        model,
        context=context or model.context,
        images=kind == "vlm" if isinstance(kind, str) else None,
        tools="tool_use" in capabilities if "capabilities" in row else None,
        chats=kind != "embeddings",
        loaded=state == "loaded" if isinstance(state, str) else None,
    )


def _of_ollama(model: RemoteModel, found: Object) -> RemoteModel:
    """What `/api/show` says: the context that the model was made for, or the one it is set to."""
    longest = next(
        (
            count_of(value)
            for name, value in object_of(found.get("model_info")).items()
            if name.endswith(".context_length")
        ),
        0,
    )
    chosen = 0
    for line in str(found.get("parameters", "")).splitlines():
        name, _, value = line.partition(" ")
        if name == "num_ctx":
            with contextlib.suppress(ValueError):
                chosen = int(value)
    capabilities = _texts(found.get("capabilities"))
    known = bool(capabilities)
    return replace(
        model,
        context=chosen or longest or model.context,
        images="vision" in capabilities if known else None,
        tools="tools" in capabilities if known else None,
        chats="completion" in capabilities if known else True,
    )


def _texts(value: object) -> list[str]:
    return [row for row in rows_of(value) if isinstance(row, str)]
