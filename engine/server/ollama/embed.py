"""Ollama's embeddings of texts."""

from __future__ import annotations

import math
import time

from starlette.responses import Response
from starlette.routing import Route

from engine.server.http import Call, json_response, post
from engine.server.ollama.names import model_name, nanoseconds
from engine.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def embed(call: Call) -> Response:
        began = time.monotonic()
        body = call.body
        if "input" not in body:
            body.fail("input", "is missing; give a text or a list of texts.")
        name, found = await service.embed(model_name(body), body.texts("input"), call.client)
        call.exchange.model, call.exchange.prompt_tokens = name, found.tokens
        vectors: list[tuple[float, ...]] = list(found.vectors)
        if "dimensions" in body:
            vectors = [_shortened(one, body.integer("dimensions", 0, 1)) for one in vectors]
        return json_response(
            {
                "model": name,
                "embeddings": vectors,
                "total_duration": nanoseconds(time.monotonic() - began),
                "load_duration": 0,
                "prompt_eval_count": found.tokens,
            }
        )

    async def embeddings(call: Call) -> Response:
        body = call.body
        texts = (body.required_text("prompt"),)
        _, found = await service.embed(model_name(body), texts, call.client)
        return json_response({"embedding": found.vectors[0]})

    return [post("/api/embed", embed), post("/api/embeddings", embeddings)]


def _shortened(vector: tuple[float, ...], size: int) -> tuple[float, ...]:
    """The first `size` numbers of a vector, of length 1 again."""
    first = vector[:size]
    length = math.sqrt(sum(one * one for one in first)) or 1.0
    return tuple(one / length for one in first)
