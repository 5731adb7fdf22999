"""Embeddings of texts, and scores of documents for a query."""

from __future__ import annotations

import base64
import itertools
import struct
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import Embedded, Pooling
from engine.server.errors import ApiError
from engine.server.http import Call, json_response, post
from engine.server.openai.completions import prompts
from engine.server.options import keep_seconds
from engine.server.service import Service

_MOST_TEXTS = 2048  # as in OpenAI's API, which clients fill


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def embed(call: Call) -> tuple[str, Embedded]:
        """The model and the vectors of a request."""
        body = call.body
        name = "input" if "input" in body else "content"
        if name not in body:
            raise ApiError(
                400, "`input` is missing; give a text or a list of texts.", param="input"
            )
        texts = await _texts(call, service, name)
        return await service.embed(
            body.text("model"),
            texts,
            call.exchange,
            size=body.integer("dimensions", 0, 0),
            keep_seconds=keep_seconds(body),
        )

    async def embeddings(call: Call) -> Response:
        if service.options.pooling is Pooling.NONE:
            message = "Without pooling each token has a vector; ask /embeddings for them."
            raise ApiError(400, message, code="invalid_value")
        form = call.body.choice("encoding_format", ("float", "base64"), "float")
        model, found = await embed(call)
        data = [
            {"object": "embedding", "index": at, "embedding": _encoded(vector, form)}
            for at, vector in enumerate(found.vectors)
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return json_response({"object": "list", "data": data, "model": model, "usage": usage})

    async def llama_embeddings(call: Call) -> Response:
        """llama.cpp's own form: a list of vectors for each text, one unless nothing is pooled."""
        _, found = await embed(call)
        vectors = iter(found.vectors)
        counts = found.counts if found.pooling is Pooling.NONE else (1,) * len(found.counts)
        rows = [list(itertools.islice(vectors, count)) for count in counts]
        return json_response([{"index": at, "embedding": row} for at, row in enumerate(rows)])

    async def rerank(call: Call) -> Response:
        body = call.body
        name = "documents" if "documents" in body else "texts"
        documents = [_document(call, name, at, one) for at, one in enumerate(body.items(name))]
        model, found = await service.rerank(
            body.text("model"), body.required_text("query"), documents, call.exchange
        )
        results: list[dict[str, Any]] = [
            {"index": at, "relevance_score": score} for at, score in enumerate(found.scores)
        ]
        if body.flag("return_documents"):
            for one, document in zip(results, documents, strict=True):
                one["document"] = {"text": document}
        results.sort(key=lambda one: -one["relevance_score"])
        most = body.integer("top_n", len(results), least=0)
        if name == "texts":  # the form of Hugging Face's server for embeddings
            rows = [{"index": one["index"], "score": one["relevance_score"]} for one in results]
            return json_response(rows[:most])
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return json_response(
            {"model": model, "object": "list", "usage": usage, "results": results[:most]}
        )

    return [
        post("/v1/embeddings", embeddings),
        post("/embeddings", llama_embeddings),
        post("/embedding", llama_embeddings),
        post("/v1/rerank", rerank),
        post("/rerank", rerank),
        post("/v1/reranking", rerank),
        post("/reranking", rerank),
    ]


async def _texts(call: Call, service: Service, name: str) -> list[str]:
    """The texts of a body: one or several, or the token ids of these."""
    model = call.body.text("model")
    found = await prompts(service, call.body, name, _MOST_TEXTS)
    return [one if isinstance(one, str) else await service.detokenize(model, one) for one in found]


def _encoded(vector: tuple[float, ...], form: str) -> list[float] | str:
    """A vector as a list, or as the Base64 of 32-bit little-endian floats."""
    if form == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _document(call: Call, name: str, at: int, value: Any) -> str:
    """A document: a string, or an object with its text."""
    if isinstance(value, dict):
        if value.get("image") is not None:
            call.body.fail(f"{name}[{at}].image", "is a picture; only texts are scored here.")
        value = value.get("text")
    if not isinstance(value, str):
        call.body.fail(f"{name}[{at}]", "must be a string, or an object with a `text`.")
    return value
