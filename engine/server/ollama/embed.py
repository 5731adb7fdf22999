"""Ollama's embeddings of texts."""

from __future__ import annotations

import time

from starlette.responses import Response
from starlette.routing import Route

from engine.server.http import Call, json_response, post
from engine.server.ollama.names import model_name, nanoseconds
from engine.server.options import keep_seconds
from engine.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def embed(call: Call) -> Response:
        began = time.monotonic()
        body = call.body
        if body.get("images"):
            body.fail("images", "has pictures; only texts become vectors here.")
        if "input" not in body:
            body.fail("input", "is missing; give a text or a list of texts.")
        name, found = await service.embed(
            model_name(body),
            body.texts("input"),
            call.exchange,
            size=body.integer("dimensions", 0, 0),
            keep_seconds=keep_seconds(body),
        )
        return json_response(
            {
                "model": name,
                "embeddings": found.vectors,
                "total_duration": nanoseconds(time.monotonic() - began),
                "load_duration": 0,
                "prompt_eval_count": found.tokens,
            }
        )

    async def embeddings(call: Call) -> Response:
        body = call.body
        texts = (body.required_text("prompt"),)
        kept = keep_seconds(body)
        _, found = await service.embed(model_name(body), texts, call.exchange, keep_seconds=kept)
        return json_response({"embedding": found.vectors[0]})

    return [post("/api/embed", embed), post("/api/embeddings", embeddings)]
