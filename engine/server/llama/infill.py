"""llama.cpp's route of editors: the text in a gap, by models of code."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import Infill
from engine.server.fields import Fields
from engine.server.http import Call, Stream, post
from engine.server.llama.completion import completed
from engine.server.service import Service

_MOST_FILES = 256


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def infill(call: Call) -> Response | Stream:
        return await completed(service, call, [_gap(call.body)])

    return [post("/infill", infill)]


def _gap(body: Fields) -> Infill:
    """The gap of a request; raises ApiError that names the field at fault."""
    for name in ("input_prefix", "input_suffix"):
        if name not in body:
            body.fail(name, "is missing; give the text on this side of the gap.")
    files = body.objects("input_extra")
    if len(files) > _MOST_FILES:
        body.fail("input_extra", f"has {len(files)} texts; give {_MOST_FILES} at most.")
    return Infill(
        body.text("input_prefix"),
        body.text("input_suffix"),
        body.text("prompt"),
        tuple((one.text("filename", "file"), one.required_text("text")) for one in files),
    )
