"""Remote engine: the answers of a server's models as an async generator of typed deltas.

It runs on any asyncio loop and needs no window. Closing the generator, or cancelling the task that
reads it, closes the socket, on which every server stops generating. Read it inside
`contextlib.aclosing`, so that it is closed when the reader leaves early.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

from app.domain.answer_request import AnswerRequest
from app.domain.connection import Connection, ServerKind
from app.domain.deltas import Delta, WaitingDelta
from app.domain.parts import ImagePart
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.engines.remote.chunks import ChunkReader
from app.engines.remote.errors import RemoteError
from app.engines.remote.events import MAX_EVENT, EventParser, EventTooLarge
from app.engines.remote.exchange import Allow, Answer, Server, Times, exchange
from app.engines.remote.faults import (
    ErrorBody,
    body_error,
    context_in,
    error_in,
    is_page,
    page_error,
    response_error,
    wants_too_many,
)
from app.engines.remote.keys import NO_CREDENTIALS, Credentials
from app.engines.remote.models import Found, look
from app.engines.remote.values import object_of, text_of
from app.engines.remote.wire import Body, formats_of, request_body, without
from app.net.ledger import Purpose

_MAX_REFUSALS = 8  # times that a request is sent again without what a server refuses
_MAX_ERROR = 1 << 18  # bytes of an error's text
_DONE = "[DONE]"
_ANSWER_KEYS = {"choices", "usage", "prompt_progress"}  # of chunks
# How long an answer waits for a server: one that loads a model, and one that names a time.
_LOADING_SECONDS = 900.0
_LOADING_STEPS = (0.5, 1.0, 2.0, 3.0, 5.0)
_MAX_WAIT_SECONDS = 60.0
_MAX_WAITS = 5


def no_image(part: ImagePart) -> bytes:
    """Reads no image: raises FileNotFoundError."""
    raise FileNotFoundError(part.name)


class RemoteEngine:
    """The models of one connection."""

    def __init__(
        self,
        connection: Connection,
        allow: Allow,
        credentials: Credentials = NO_CREDENTIALS,
        *,
        proxy: str = "",
        read_image: Callable[[ImagePart], bytes] = no_image,
        times: Times = Times(),  # noqa: B008  (frozen)
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        """`read_image` gives the bytes of an attached image and may block; it raises OSError."""
        self.server = Server(connection, allow, credentials, proxy, times)
        self._read_image = read_image
        self._sleep = sleep
        self._refused: dict[str, list[ErrorBody]] = {}  # what was refused, by model

    @property
    def connection(self) -> Connection:
        """Its connection."""
        return self.server.connection

    async def look(self) -> Found:
        """Its API, kind and models; raises RemoteError."""
        return await look(self.server)

    async def generate(self, request: AnswerRequest) -> AsyncGenerator[Delta]:
        """Answer; raises RemoteError, after the deltas that came before the error.

        While the server loads the model, or asks to wait, `WaitingDelta` comes before each wait.
        """
        body = await self._body(request)
        waits, waited = 0, 0.0
        while True:
            try:
                async with contextlib.aclosing(self._answer(request, body)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except RemoteError as error:
                error = RemoteError.of(replace(error.fault, model=request.model))
                seconds = _wait(error.fault, waits, waited)
                if not seconds:
                    raise error from None
                yield WaitingDelta(error.error, seconds)
            waits, waited = waits + 1, waited + seconds
            await self._sleep(seconds)

    # --- steps ----------------------------------------------------------------------------------

    async def _body(self, request: AnswerRequest) -> Body:
        """The body of the request, without what this server has refused before."""
        kind = self.connection.kind
        constraint = request.constraint
        if constraint is not None and constraint.kind not in formats_of(kind):
            raise self.server.error(RemoteFaultKind.FORMAT, model=request.model)
        try:
            body = await asyncio.to_thread(request_body, request, kind, self._read_image)
        except OSError as error:
            reason = error.strerror or str(error)
            raise self.server.error(RemoteFaultKind.IMAGES, reason, model=request.model) from error
        for refused in self._refused.get(request.model, ()):
            body = without(body, refused) or body
        return body

    async def _answer(self, request: AnswerRequest, body: Body) -> AsyncGenerator[Delta]:
        """One answer; fields that the server refuses are left out of `body`, which changes."""
        for _ in range(_MAX_REFUSALS + 1):
            reader = ChunkReader(
                time.monotonic(), request.max_tokens, request.context, request.continues
            )
            last = object_of(body["messages"][-1] if body["messages"] else None)
            if self.connection.kind is ServerKind.LLAMA_SERVER and request.continues:
                reader.echo = text_of(last.get("content"))
            refusal: ErrorBody | None = None
            async with exchange(
                self.server,
                "POST",
                f"{self.connection.address}/chat/completions",
                Purpose.ANSWERS,
                json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
                self.server.times.first,
            ) as answer:
                if answer.status >= 400:
                    error, refusal = await self._refusal(answer, request.model)
                    smaller = _smaller(body, refusal) if refusal is not None else None
                    if smaller is None:
                        raise error
                    body.clear()
                    body.update(smaller)
                else:
                    async with contextlib.aclosing(self._stream(answer, reader, request)) as deltas:
                        async for delta in deltas:
                            yield delta
            if refusal is None:
                return
            if not _of_value(refusal):  # the field itself will be refused the next time too
                self._refused.setdefault(request.model, []).append(refusal)
        raise self.server.error(RemoteFaultKind.REFUSED, model=request.model)

    async def _refusal(self, answer: Answer, model: str) -> tuple[RemoteError, ErrorBody | None]:
        """The error of a response, and its text if a smaller request may be accepted."""
        content = await answer.read(_MAX_ERROR)
        headers = {name: answer.header(name) for name in ("retry-after", "content-type")}
        error = response_error(self.server, answer.status, headers, content, model)
        if answer.status not in (400, 404, 422, 500, 501):
            return error, None
        try:
            found = error_in(json.loads(content))
        except (ValueError, RecursionError):
            found = None
        return error, found or ErrorBody(content.decode("utf-8", "replace"))

    async def _stream(
        self, answer: Answer, reader: ChunkReader, request: AnswerRequest
    ) -> AsyncGenerator[Delta]:
        """The deltas of a response; raises RemoteError where it ends before its end."""
        parser, times = EventParser(), self.server.times
        start = bytearray()  # of the response, until its first event
        try:
            async with contextlib.aclosing(answer.pieces(times.first, times.between)) as pieces:
                async for piece in pieces:
                    if not reader.has_events:
                        start += piece
                    for event in parser.push(piece):
                        for delta in self._event(event.data, event.name, reader, request, start):
                            yield delta
                        if reader.is_done:
                            break
                    if reader.is_done:
                        break
                    if len(start) > MAX_EVENT:
                        raise EventTooLarge
            if not reader.is_done:
                for event in parser.finish():
                    for delta in self._event(event.data, event.name, reader, request, start):
                        yield delta
        except EventTooLarge:
            for delta in reader.cut():
                yield delta
            raise self._broken(reader, request, RemoteFaultKind.INVALID, "huge line") from None
        except RemoteError as error:
            if reader.reason is None or error.fault.kind is RemoteFaultKind.OFFLINE:
                for delta in reader.cut():
                    yield delta
                raise self._in_answer(error, reader, request) from error
            # the answer was complete: only the end of the response is missing
        if not reader.has_events:
            for delta in self._whole(bytes(start), reader, request):
                yield delta
        if reader.reason is None and not (reader.is_done and reader.has_content):
            for delta in reader.cut():
                yield delta
            kind = RemoteFaultKind.CUT if reader.has_content else RemoteFaultKind.CLOSED
            raise self._broken(reader, request, kind)
        for delta in reader.finish():
            yield delta

    def _event(
        self, data: str, name: str, reader: ChunkReader, request: AnswerRequest, start: bytearray
    ) -> list[Delta]:
        """The deltas of one event; raises RemoteError."""
        data = data.strip()
        if not data:
            return []
        if data == _DONE:
            reader.has_events = reader.is_done = True
            return []
        try:
            chunk: object = json.loads(data)
        except (ValueError, RecursionError):
            if not reader.has_events and not start.lstrip().startswith(b"data:"):
                return []  # the lines of JSON that is not streamed
            if name == "error":
                chunk = {"error": data}
            else:
                raise self._broken(reader, request, RemoteFaultKind.INVALID, "no JSON") from None
        error = error_in(chunk)
        if error is not None or name == "error":
            error = error or ErrorBody(data)
            raise body_error(self.server, error, model=request.model, partial=reader.has_content)
        found = object_of(chunk)
        reader.has_events |= not found.keys().isdisjoint(_ANSWER_KEYS)
        return list(reader.read(found))

    def _whole(self, content: bytes, reader: ChunkReader, request: AnswerRequest) -> list[Delta]:
        """The deltas of a response that is not streamed."""
        if is_page(content):
            raise page_error(self.server, content)
        try:
            found: object = json.loads(content) if content.strip() else None
        except (ValueError, RecursionError):
            raise self._broken(reader, request, RemoteFaultKind.INVALID, "no JSON") from None
        if found is None:
            raise self._broken(reader, request, RemoteFaultKind.CLOSED)
        error = error_in(found)
        if error is not None:
            raise body_error(self.server, error, model=request.model)
        if "choices" not in object_of(found):
            raise self._broken(reader, request, RemoteFaultKind.INVALID, "no answer")
        reader.is_done = True
        return list(reader.read(object_of(found)))

    def _broken(
        self, reader: ChunkReader, request: AnswerRequest, kind: RemoteFaultKind, about: str = ""
    ) -> RemoteError:
        return self.server.error(kind, about, model=request.model, partial=reader.has_content)

    def _in_answer(
        self, error: RemoteError, reader: ChunkReader, request: AnswerRequest
    ) -> RemoteError:
        """An error as it is after a part of the answer."""
        fault = replace(error.fault, model=request.model, partial=reader.has_content)
        if fault.kind is RemoteFaultKind.CLOSED and fault.partial:
            fault = replace(fault, kind=RemoteFaultKind.CUT)
        return RemoteError.of(fault)


def _smaller(body: Body, refusal: ErrorBody) -> Body | None:
    """A request that the server may accept; None if there is none."""
    if context_in(refusal) is not None:
        limits = {"max_tokens", "max_completion_tokens"} & body.keys()
        if not limits or not wants_too_many(refusal.message):
            return None
        return {name: value for name, value in body.items() if name not in limits}
    return without(body, refusal)


def _of_value(refusal: ErrorBody) -> bool:
    """Whether only the value in this request is refused, such as a limit that is too large."""
    return context_in(refusal) is not None or wants_too_many(refusal.message)


def _wait(fault: RemoteFault, waits: int, waited: float) -> float:
    """Seconds until a failed answer is asked for again; 0: it is not."""
    if fault.partial:
        return 0.0
    if fault.kind is RemoteFaultKind.LOADING and waited < _LOADING_SECONDS:
        usual = _LOADING_STEPS[min(waits, len(_LOADING_STEPS) - 1)]
        return min(fault.wait_seconds or usual, _MAX_WAIT_SECONDS)
    if fault.kind in (RemoteFaultKind.LIMIT, RemoteFaultKind.BUSY) and waits < _MAX_WAITS:
        return fault.wait_seconds if fault.wait_seconds <= _MAX_WAIT_SECONDS else 0.0
    return 0.0
