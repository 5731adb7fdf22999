"""llama.cpp's routes that load and unload models by name."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from engine.server.http import Call, json_response, post
from engine.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def load(call: Call) -> Response:
        async with service.models.use(call.body.required_text("model")):
            return json_response({"success": True})

    async def unload(call: Call) -> Response:
        await service.models.unload(call.body.required_text("model"))
        return json_response({"success": True})

    return [post("/models/load", load), post("/models/unload", unload)]
