"""One HTTP exchange: answering, streaming, and noticing a lost client or the end of the server."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from engine.errors import EngineError, FaultKind
from engine.server import fields
from engine.server.activity import Exchange
from engine.server.bodies import Body
from engine.server.errors import ApiError, Family, from_engine
from engine.server.fields import Fields
from engine.server.pictures import PictureAccess
from engine.server.values import Delta

log = logging.getLogger(__name__)

SSE, NDJSON = "text/event-stream; charset=utf-8", "application/x-ndjson"
END_OF_STREAM = b"data: [DONE]\n\n"
INTERNAL = "The server hit an internal error; its log has the details."
_STOPS = "The server is being stopped, so the answer is not complete."
_RETRY_SECONDS = 5.0  # after which a server that was stopped may be there again
_PING_SECONDS = 15.0
_SWAPS = 3  # of its model that a call survives


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose body was read."""

    request: Request
    body: Fields  # of a POST; else empty
    exchange: Exchange  # what the log says about it
    pictures: PictureAccess = PictureAccess()  # noqa: RUF009  frozen; that it may have


@dataclass(frozen=True, slots=True)
class Stream:
    """A response of frames that are sent as they are made."""

    frames: AsyncGenerator[bytes, None]
    error: Callable[[ApiError], bytes]  # makes the frame that reports one after the first frame
    media_type: str = SSE


Handler = Callable[[Call], Awaitable[Response | Stream]]


def dumps(value: Any) -> bytes:
    """JSON in UTF-8, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def sse(value: Any, event: str = "") -> bytes:
    """A server-sent event with a JSON value, and its type if it has one."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + dumps(value) + b"\n\n"


def ndjson(value: Any) -> bytes:
    """A line of newline-delimited JSON."""
    return dumps(value) + b"\n"


def typed_sse(value: dict[str, Any]) -> bytes:
    """A server-sent event whose type is the "type" of its value."""
    return sse(value, value["type"])


def sse_error(error: ApiError) -> bytes:
    """The event that reports an error in OpenAI's streams."""
    return sse(error.body(Family.OPENAI))


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response with a JSON value."""
    return Response(dumps(value), status, headers, "application/json")


class Writer(Protocol):
    """Writes an answer in the format of one API."""

    def push(self, delta: Delta) -> Iterable[dict[str, Any]]:
        """The parts of a stream that a delta becomes."""
        ...

    def fail(self, error: ApiError) -> dict[str, Any]:
        """The part that reports an error after the answer began."""
        ...

    @property
    def whole(self) -> dict[str, Any]:
        """The response with all deltas so far."""
        ...


async def respond(
    deltas: AsyncGenerator[Delta, None],
    writer: Writer,
    *,
    streams: bool,
    encode: Callable[[dict[str, Any]], bytes] = typed_sse,
    media_type: str = SSE,
) -> Response | Stream:
    """The response to a request for an answer: whole, or a stream of its parts."""

    async def frames() -> AsyncGenerator[bytes, None]:
        async with aclosing(deltas) as found:
            async for delta in found:
                for part in writer.push(delta):
                    yield encode(part)

    if streams:
        return Stream(frames(), lambda error: encode(writer.fail(error)), media_type)
    async with aclosing(deltas) as found:
        async for delta in found:
            for _ in writer.push(delta):
                pass
    return json_response(writer.whole)


def error_response(error: ApiError, family: Family) -> Response:
    """The response to a request that cannot be answered."""
    return json_response(error.body(family), error.status, error.headers)


def stopped() -> ApiError:
    """The error of a request whose answer ends because the server does."""
    return ApiError(503, _STOPS, code="answer_ended", retry_seconds=_RETRY_SECONDS)


def family_of(path: str) -> Family:
    """The family of APIs that a path belongs to."""
    if path.startswith("/v1/messages"):
        return Family.ANTHROPIC
    if path.startswith(("/v1/", "/api/v0/")):
        return Family.OPENAI
    return Family.OLLAMA if path.startswith("/api/") else Family.LLAMA


def get(path: str, handler: Handler) -> Route:
    """A route that is read."""
    return Route(path, _Endpoint(handler, reads_body=False), methods=["GET", "HEAD"])


def post(path: str, handler: Handler, *, list_as: str = "", may_lack_body: bool = False) -> Route:
    """A route with a JSON object as its body; a list is the field `list_as` of one."""
    made = _Endpoint(handler, reads_body=True, list_as=list_as, without_body=may_lack_body)
    return Route(path, made, methods=["POST"])


class _Endpoint:
    """ASGI application of one route."""

    def __init__(
        self, handler: Handler, *, reads_body: bool, list_as: str = "", without_body: bool = False
    ) -> None:
        self._handler = handler
        self._empty = b"{}" if without_body else b""  # what an empty body stands for
        self._reads_body = reads_body
        self._list_as = list_as

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = _Sender(send, scope["state"]["exchange"])
        work = asyncio.ensure_future(self._answer(scope, receive, sender))

        def stop() -> None:
            sender.is_stopping = True
            work.cancel()

        scope["state"]["stop"] = stop  # called when the server is stopped
        try:
            await asyncio.wait({work, sender.body_read}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return
            lost = asyncio.ensure_future(_disconnect(receive))
            try:
                await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                lost.cancel()
        finally:
            if not work.done():
                scope["state"]["exchange"].outcome = "the client went away"
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _answer(self, scope: Scope, receive: Receive, sender: _Sender) -> None:
        state, family = scope["state"], family_of(scope["path"])
        request = Request(scope, receive)
        try:
            with Body(state["bodies"]) as held:
                raw = await held.read(request) if self._reads_body else b"{}"
                body = fields.parse(raw if raw.strip() else self._empty, self._list_as)
                sender.body_read.set_result(None)
                limits, folder = state["bodies"].limits, state["image_files"]
                pictures = PictureAccess(limits, folder, held.hold_files)
                call = Call(request, body, state["exchange"], pictures)
                response = await self._respond(call, sender)
        except ClientDisconnect:
            state["exchange"].outcome = "the client went away"
            return
        except (ApiError, EngineError) as fault:
            error = from_engine(fault) if isinstance(fault, EngineError) else fault
            response = self._failed(scope, error, family)
        except asyncio.CancelledError:
            if not sender.is_stopping or sender.has_begun:
                raise
            response = self._failed(scope, stopped(), family)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            response = self._failed(scope, ApiError(500, INTERNAL), family)
        if response is not None:
            await response(scope, receive, sender.send)

    async def _respond(self, call: Call, sender: _Sender) -> Response | None:
        """The response to a call; None: it was streamed. Raises ApiError and EngineError.

        A model may be replaced by its owner after the call has found it, and before the engine
        looks: it is then found again.
        """
        swaps = 0
        while True:
            try:
                found = await self._handler(call)
                if not isinstance(found, Stream):
                    return found
                await sender.stream(found)
            except EngineError as error:  # of a stream: nothing was sent
                swaps += 1
                if error.fault.kind is not FaultKind.NOT_LOADED or swaps > _SWAPS:
                    raise
            else:
                return None

    def _failed(self, scope: Scope, error: ApiError, family: Family) -> Response:
        scope["state"]["exchange"].outcome = str(error)
        return error_response(error, family)


class _Sender:
    """Sends the response of one exchange."""

    def __init__(self, send: Send, exchange: Exchange) -> None:
        self.send = send
        self.is_stopping = False  # the server is
        self.has_begun = False  # a stream has
        self._exchange = exchange
        self._sent = 0.0  # when the last part was
        self.body_read: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def stream(self, response: Stream) -> None:
        """Send a stream to its end; an error becomes its last frame."""
        async with aclosing(response.frames) as frames:
            first = await anext(frames, b"")  # an error before it has a status of its own
            headers = {
                "content-type": response.media_type,
                "cache-control": "no-store",
                "x-accel-buffering": "no",  # proxies pass parts on at once
            }
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            await self.send({"type": "http.response.start", "status": 200, "headers": raw})
            self.has_begun = True
            pings = asyncio.ensure_future(self._ping()) if response.media_type == SSE else None
            try:
                await self._part(first)
                async for frame in frames:
                    await self._part(frame)
            except (ApiError, EngineError) as found:
                error = from_engine(found) if isinstance(found, EngineError) else found
            except asyncio.CancelledError:
                if not self.is_stopping:
                    raise
                error = stopped()
            except Exception:
                log.exception("a stream failed")
                error = ApiError(500, INTERNAL)
            else:
                error = None
            finally:
                if pings is not None:
                    pings.cancel()
            if error is not None:
                self._exchange.outcome = str(error)
                await self._part(response.error(error))
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _part(self, frame: bytes) -> None:
        self._sent = time.monotonic()
        await self.send({"type": "http.response.body", "body": frame, "more_body": True})
        await asyncio.sleep(0)  # a client that has gone away is noticed before the next part

    async def _ping(self) -> None:
        """Send a comment now and then while there is nothing else: proxies cut silent streams."""
        while True:
            await asyncio.sleep(_PING_SECONDS)
            if time.monotonic() - self._sent >= _PING_SECONDS:
                await self._part(b":\n\n")


async def _disconnect(receive: Receive) -> None:
    """Wait until the client is gone; the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
