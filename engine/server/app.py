"""The ASGI application: the routes of all APIs behind the guards."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from engine.server import lm_studio, ollama
from engine.server.anthropic import messages
from engine.server.errors import ApiError
from engine.server.guards import Guards, Key, Security
from engine.server.http import error_response, family_of
from engine.server.limits import Limits
from engine.server.llama import completion, infill, loading, saved, state, tokens
from engine.server.openai import chat, completions, embeddings, models, responses
from engine.server.service import Service

# Each module has `routes(service)`, a list of Starlette's routes.
_MODULES = (
    models,
    chat,
    completions,
    embeddings,
    state,
    tokens,
    completion,
    infill,
    loading,
    saved,
    responses,
    messages,
    lm_studio,
    ollama.chat,
    ollama.embed,
    ollama.models,
)


def application(
    service: Service,
    security: Security | None = None,
    limits: Limits | None = None,
    key: Key | None = None,
) -> Starlette:
    """The application; `security` is who may use it, `limits` what one exchange may take.

    `key` is that of `security`, for an owner who changes it.
    """
    security = security or Security()
    guards = Middleware(
        Guards,
        security=security,
        key=key or Key(security.key),
        limits=limits or Limits(),
        recorder=service.recorder,
    )
    return Starlette(
        routes=[route for module in _MODULES for route in module.routes(service)],
        middleware=[guards],
        exception_handlers={HTTPException: _no_route},
    )


async def _no_route(request: Request, error: Exception) -> Response:
    """The response to a path or method that no API has."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:200]
    if status == 405:
        message = f"{path} does not take the method {request.method[:20]}."
    else:
        message = f"This server has no route {path}."
    found = ApiError(status, message, code="not_found" if status == 404 else None)
    return error_response(found, family_of(request.url.path))
