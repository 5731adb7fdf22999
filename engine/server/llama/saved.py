"""llama.cpp's route that saves the cached text of a slot to the disk, restores or erases it.

Texts are cached for all slots together: what is restored serves any prompt that begins like it, and
what others share is not erased.
"""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import (
    Forget,
    Restore,
    Save,
    SnapshotLoaded,
    SnapshotSaved,
    TextForgotten,
)
from engine.server.bridge import answer
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.http import Call, json_response, post
from engine.server.options import MOST_SLOT
from engine.server.service import Service

_MOST_NAME = 200  # characters
_BUDGET = 64 << 30  # bytes of all saved texts together


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def act(call: Call) -> Response:
        action = call.request.query_params.get("action", "")
        if action == "erase":
            slot = _slot(call)
            return json_response({"id_slot": slot, "n_erased": await erase(slot)})
        if action not in ("save", "restore"):
            raise ApiError(400, "`action` must be save, restore or erase.", param="action")
        if not service.options.saves_slots:
            message = "This server was started without --slot-save-path."
            raise ApiError(501, message, code="not_supported")
        slot, name = _slot(call), _name(call.body)
        model = call.request.query_params.get("model", "") or call.body.text("model")
        found = await (save(slot, name) if action == "save" else restore(slot, name, model))
        return json_response({"id_slot": slot, "filename": name} | found)

    async def erase(slot: int) -> int:
        if (text := service.slots.text(slot)) is None:
            return 0
        service.slots.drop(slot)
        request = Forget(text.answer, text.model)
        return (await answer(service.engine, request, TextForgotten)).tokens

    async def save(slot: int, name: str) -> dict[str, Any]:
        if (text := service.slots.text(slot)) is None:
            raise ApiError(400, f"No answer has ended in slot {slot} yet.", code="invalid_value")
        request = Save(name, _BUDGET, text.answer, model=text.model)
        began = time.perf_counter()
        found = await answer(service.engine, request, SnapshotSaved)
        times = {"save_ms": (time.perf_counter() - began) * 1e3}
        return {"n_saved": text.tokens, "n_written": found.size_bytes, "timings": times}

    async def restore(slot: int, name: str, model: str) -> dict[str, Any]:
        began = time.perf_counter()
        async with service.models.use(model) as card:
            request = Restore((), name, adapters=service.adapters_of(card), model=card.path)
            found = await answer(service.engine, request, SnapshotLoaded)
        if not found.total_tokens or found.refused:
            message = found.refused or f"Nothing is saved as {name!r}."
            raise ApiError(400, message, code="invalid_value", param="filename")
        times = {"restore_ms": (time.perf_counter() - began) * 1e3}
        return {"n_restored": found.ready_tokens, "timings": times}

    return [post("/slots/{slot}", act, may_lack_body=True)]


def _slot(call: Call) -> int:
    """The number of the slot in the path."""
    text: str = call.request.path_params["slot"]
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < MOST_SLOT):
        raise ApiError(400, "The path must have the number of a slot.", code="invalid_value")
    return int(text)


def _name(body: Fields) -> str:
    """The name of a saved text."""
    name = body.required_text("filename")
    if not name or len(name) > _MOST_NAME or any(one in name for one in "/\\\0"):
        body.fail("filename", f"must be a name of {_MOST_NAME} characters at most, without /.")
    return name
