"""Bodies of requests: read within the limits of one, and of all that are not answered yet."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.requests import Request

from engine.server.errors import ApiError
from engine.server.limits import Limits

_FREE_BYTES = 64 << 10  # of each body: the number of connections limits these
_RETRY_SECONDS = 2.0


class BodyMemory:
    """What the bodies of unanswered requests take together; used on the server's event loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held_bytes = 0


class Body:
    """The body of one request; its memory counts until the request is answered."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._held_bytes = 0
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._memory.held_bytes -= self._held_bytes
        self._held_bytes = 0

    async def read(self, request: Request) -> bytes:
        """All of it; raises ApiError where it is too large or too slow, or memory is short."""
        limits = self._memory.limits
        too_large = ApiError(413, f"The body is larger than {limits.body_bytes:,} bytes.")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limits.body_bytes:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > limits.body_bytes:
                        raise too_large
                    self._hold(size - _FREE_BYTES)
        except TimeoutError:
            raise ApiError(408, "The body did not arrive in time.") from None
        self._size = size
        return b"".join(parts)

    def hold_files(self, size: int) -> None:
        """Count files that the body names, `size` bytes in all; raises ApiError as `read`."""
        self._hold(self._size + size - _FREE_BYTES)

    def _hold(self, size: int) -> None:
        """Count so many bytes; raises ApiError if all bodies together are too large."""
        more = size - self._held_bytes
        if more <= 0:
            return
        if self._memory.held_bytes + more > self._memory.limits.bodies_bytes:
            raise ApiError(
                503,
                "The requests that are not answered yet are too large together.",
                code="busy",
                retry_seconds=_RETRY_SECONDS,
            )
        self._memory.held_bytes += more
        self._held_bytes = size
