"""LM Studio's list of models, which agents read for the length of the context."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.server.facts import KnownModel
from engine.server.http import Call, get, json_response
from engine.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes of this module."""
    facts = service.facts

    async def listed(call: Call) -> Response:
        known = await facts.listed(await service.cards())
        return json_response({"object": "list", "data": [_model(one) for one in known]})

    async def one(call: Call) -> Response:
        if not (name := call.request.path_params["name"]):
            return await listed(call)
        card = await service.models.find(name)
        return json_response(_model(await facts.of(card)))

    return [get("/api/v0/models", listed), get("/api/v0/models/{name:path}", one)]


def _model(known: KnownModel) -> dict[str, Any]:
    """A model in the list."""
    card, facts = known.card, known.facts
    kind = "embeddings" if known.kind != "chat" else "vlm" if known.sees else "llm"
    can = {"tool_use": known.calls_tools, "vision": known.sees}
    made: dict[str, Any] = {
        "id": card.name,
        "object": "model",
        "type": kind,
        "publisher": card.path.parent.name,
        "arch": facts.architecture,
        "compatibility_type": "gguf",
        "quantization": facts.format,
        "state": "loaded" if card.loaded is not None else "not-loaded",
        "max_context_length": known.context,
        "capabilities": [name for name, holds in can.items() if holds],
    }
    if card.loaded is not None:
        made["loaded_context_length"] = known.loaded_context
    return made
