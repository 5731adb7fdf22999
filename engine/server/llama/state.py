"""llama.cpp's routes about the server itself: properties, metrics, slots and adapters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine.messages import AdapterUse, MetricsRead, Sampling
from engine.prometheus import prometheus_text
from engine.server.http import Call, get, json_response, post
from engine.server.options import MOST_SCALE
from engine.server.sampling import llama_names
from engine.server.service import Service

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_SLOTS = 16  # answers that the engine decodes together


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def props(call: Call) -> Response:
        card = await service.models.find(call.request.query_params.get("model", ""))
        loaded = card.loaded
        sampling = (loaded.sampling if loaded else None) or Sampling()
        return json_response(
            {
                "default_generation_settings": {
                    "n_ctx": loaded.context if loaded else 0,
                    "params": llama_names(sampling),
                },
                "total_slots": _SLOTS,
                "model_alias": card.name,
                "model_path": str(card.path),
                "chat_template": loaded.template_source if loaded else "",
                "bos_token": loaded.begin if loaded else "",
                "eos_token": loaded.end if loaded else "",
                "modalities": {"vision": False, "audio": False},
                "build_info": "tokonoma",
                "is_sleeping": loaded is None,
            }
        )

    async def metrics(call: Call) -> Response:
        found = await service.metrics(call.request.query_params.get("model", ""))
        return PlainTextResponse(prometheus_text(found), media_type=_PROMETHEUS)

    async def slots(call: Call) -> Response:
        found = await service.metrics("")
        card = next((one for one in await service.cards() if one.loaded is not None), None)
        context = card.loaded.context if card is not None and card.loaded is not None else 0
        return json_response(_slots(found, context))

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


def _slots(metrics: MetricsRead, context: int) -> list[dict[str, Any]]:
    """A slot for each answer that may run; the first ones are those that do."""
    return [
        {"id": number, "n_ctx": context, "is_processing": number < metrics.running}
        for number in range(_SLOTS)
    ]


def _adapter(number: int, adapter: AdapterUse) -> dict[str, Any]:
    return {"id": number, "path": str(adapter.path), "scale": adapter.strength}
