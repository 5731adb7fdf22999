"""Ollama's routes that say which models there are, and what they are."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.server.facts import KnownModel
from engine.server.http import Call, get, json_response, post
from engine.server.ollama.names import model_name, timestamp
from engine.server.service import Service

# Of the API that these routes speak: programs compare it with the version that a feature needs.
_VERSION = "0.13.3"
_EVER = 100 * 365 * 86400.0  # seconds
_UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "K"))


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    facts = service.facts

    async def version(call: Call) -> Response:
        return json_response({"version": _VERSION})

    async def tags(call: Call) -> Response:
        known = await facts.listed(await service.cards())
        return json_response({"models": [_listed(one) for one in known]})

    async def running(call: Call) -> Response:
        cards = [card for card in await service.cards() if card.loaded is not None]
        known = await facts.listed(cards)
        expiry = service.models.expiry
        rows = [_running(one, expiry(one.card.path)) for one in known]
        return json_response({"models": rows})

    async def show(call: Call) -> Response:
        card = await service.models.find(model_name(call.body))
        return json_response(_shown(await facts.of(card)))

    async def root(call: Call) -> Response:
        return Response("Tokonoma is running", media_type="text/plain")

    return [
        get("/", root),  # programs ask for it to see whether there is a server
        get("/api/version", version),
        get("/api/tags", tags),
        get("/api/ps", running),
        post("/api/show", show),
    ]


def _listed(known: KnownModel) -> dict[str, Any]:
    """A model in a list."""
    card = known.card
    return {
        "name": card.name,
        "model": card.name,
        "modified_at": timestamp(card.changed),
        "size": card.size_bytes,
        "digest": _digest(known),
        "details": _details(known),
        "capabilities": _capabilities(known),
    }


def _running(known: KnownModel, expiry: float | None) -> dict[str, Any]:
    """A loaded model, and until when it is."""
    loaded = known.card.loaded
    assert loaded is not None
    made = _listed(known)
    del made["modified_at"], made["capabilities"]
    on_devices = sum(one.memory_bytes for one in loaded.runs_on if one.name != "cpu")
    return made | {
        "size": loaded.memory_bytes,
        "size_vram": on_devices,
        "expires_at": timestamp(time.time() + _EVER if expiry is None else expiry),
        "context_length": loaded.context,
    }


def _shown(known: KnownModel) -> dict[str, Any]:
    """A model in detail."""
    card, facts = known.card, known.facts
    family = facts.architecture
    return {
        "modelfile": f"FROM {card.path.name}\n",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": _details(known),
        "model_info": {
            "general.architecture": family,
            "general.basename": card.label,
            "general.parameter_count": facts.parameters,
            f"{family}.block_count": facts.layers,
            f"{family}.context_length": known.loaded_context or known.context,
        },
        "capabilities": _capabilities(known),
        "modified_at": timestamp(card.changed),
    }


def _details(known: KnownModel) -> dict[str, Any]:
    facts = known.facts
    return {
        "parent_model": "",
        "format": "gguf",
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": _size(facts.parameters),
        "quantization_level": facts.format,
    }


def _capabilities(known: KnownModel) -> list[str]:
    if known.kind != "chat":
        return ["embedding"]
    made = ["completion"]
    if known.calls_tools:
        made.append("tools")
    if known.sees:
        made.append("vision")
    if known.card.loaded is not None and known.card.loaded.can_think:
        made.append("thinking")
    return made


def _digest(known: KnownModel) -> str:
    """64 characters that differ for another file: of its name, size and time, not of its content."""
    card = known.card
    text = f"{card.path.name}\0{card.size_bytes}\0{card.changed}"
    return hashlib.sha256(text.encode()).hexdigest()


def _size(parameters: int) -> str:
    """A number of parameters, such as "134.5M"."""
    for least, unit in _UNITS:
        if parameters >= least:
            return f"{parameters / least:.1f}{unit}"
    return str(parameters)
