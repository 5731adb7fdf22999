"""llama.cpp's routes about the server itself: properties, metrics, slots and adapters."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine.messages import AdapterUse, MetricsRead, ModelLoaded
from engine.prometheus import prometheus_text
from engine.server.errors import ApiError
from engine.server.http import Call, get, json_response, post
from engine.server.options import MOST_SCALE
from engine.server.sampling import llama_names
from engine.server.service import Service

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_SLOTS = 16  # answers that the engine generates at once, unless a model was loaded for fewer
_STARTED = str(round(time.time()))  # of this process, about


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def props(call: Call) -> Response:
        card = await service.models.find(call.request.query_params.get("model", ""))
        loaded = card.loaded
        return json_response(
            {
                "default_generation_settings": {
                    "n_ctx": loaded.context if loaded else 0,
                    "params": llama_names(service.drawn(card)),
                },
                "total_slots": loaded.parallel if loaded else _SLOTS,
                "model_alias": card.name,
                "model_path": str(card.path),
                "chat_template": loaded.template_source if loaded else "",
                "bos_token": loaded.begin if loaded else "",
                "eos_token": loaded.end if loaded else "",
                "modalities": {"vision": card.sees, "audio": False},
                "build_info": "tokonoma",
                "is_sleeping": loaded is None,
            }
        )

    async def metrics(call: Call) -> Response:
        if not service.options.shows_metrics:
            raise _off("metrics")
        found = await service.metrics(call.request.query_params.get("model", ""))
        headers = {"Process-Start-Time-Unix": _STARTED}
        return PlainTextResponse(prometheus_text(found), headers=headers, media_type=_PROMETHEUS)

    async def slots(call: Call) -> Response:
        if not service.options.shows_slots:
            raise _off("slots")
        found = await service.metrics("")
        loaded = next((one.loaded for one in await service.cards() if one.loaded), None)
        return json_response(_slots(found, loaded))

    async def adapters(call: Call) -> Response:
        return json_response([_adapter(*one) for one in enumerate(service.adapters)])

    async def set_adapters(call: Call) -> Response:
        scales = dict.fromkeys(range(len(service.adapters)), 0.0)
        for one in call.body.objects("adapters"):
            number = one.integer("id", -1)
            if number not in scales:
                one.fail("id", f"must be the number of an adapter in /lora-adapters, not {number}.")
            scales[number] = one.number("scale", 1.0, -MOST_SCALE, MOST_SCALE)
        for number, scale in scales.items():
            service.adapters[number] = replace(service.adapters[number], strength=scale)
        return json_response({"success": True})

    return [
        get("/props", props),
        get("/metrics", metrics),
        get("/slots", slots),
        get("/lora-adapters", adapters),
        post("/lora-adapters", set_adapters, list_as="adapters"),
    ]


def _off(what: str) -> ApiError:
    """What the server was started without."""
    message = f"This server was started with --no-{what}."
    return ApiError(501, message, code="not_supported")


def _slots(metrics: MetricsRead, loaded: ModelLoaded | None) -> list[dict[str, Any]]:
    """A slot for each answer that may run; the first ones are those that do."""
    context, count = (loaded.context, loaded.parallel) if loaded else (0, _SLOTS)
    return [
        {"id": number, "n_ctx": context, "is_processing": number < metrics.running}
        for number in range(count)
    ]


def _adapter(number: int, adapter: AdapterUse) -> dict[str, Any]:
    return {"id": number, "path": str(adapter.path), "scale": adapter.strength}
