"""Routes that say how the server is and which models it has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.server.http import Call, get, json_response
from engine.server.models import ModelCard
from engine.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def health(call: Call) -> Response:
        return json_response({"status": "ok"})

    async def listed(call: Call) -> Response:
        cards = [_card(card) for card in await service.cards()]
        ids = [card["id"] for card in cards]
        ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {}  # for Anthropic's clients
        made = {"object": "list", "data": cards, "models": cards, "has_more": False}
        return json_response(made | ends)

    async def one(call: Call) -> Response:
        if not (name := call.request.path_params["name"]):
            return await listed(call)
        card = await service.models.find(name)
        return json_response(_card(card))

    return [
        get("/health", health),
        get("/v1/health", health),
        get("/v1/models", listed),
        get("/models", listed),
        get("/v1/models/{name:path}", one),
    ]


def _card(card: ModelCard) -> dict[str, Any]:
    """A model in OpenAI's list, with what other programs read: its context and state."""
    loaded = card.loaded
    facts: dict[str, Any] = {"size": card.size_bytes, "state": "loaded" if loaded else "installed"}
    if loaded is not None:
        facts |= {
            "n_ctx": loaded.context,
            "n_params": loaded.parameters,
            "architecture": loaded.architecture,
            "quantization": loaded.format,
        }
    inputs = ["text", "image"] if card.sees else ["text"]
    return {
        "id": card.name,
        "object": "model",
        # As OpenRouter names it; of a model that is not loaded it is not known here.
        **({"architecture": {"input_modalities": inputs}} if loaded else {}),
        "created": int(card.changed),
        "owned_by": "tokonoma",
        "name": card.label,
        "type": "model",  # with the next ones, a model in Anthropic's list
        "lifecycle": "active",
        "max_input_tokens": loaded.context if loaded else None,
        "max_tokens": loaded.context if loaded else None,
        "display_name": card.label,
        "created_at": datetime.fromtimestamp(card.changed, UTC).isoformat(timespec="seconds"),
        "slug": card.name,
        "aliases": list(card.aliases),
        "tags": list(card.tags),
        "status": {"value": "loaded" if loaded else "sleeping" if card.is_main else "unloaded"},
        "max_model_len": loaded.context if loaded else None,
        "context_length": loaded.context if loaded else None,
        "meta": facts,
    }
