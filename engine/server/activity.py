"""Activity of the server: who is connected, requests so far, and a log of the last ones."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace

_KEPT = 500  # exchanges in the log
_RECENT_SECONDS = 60.0  # a client counts as connected so long after its last request
_MOST_CLIENTS = 100
MOST_TEXT = 20_000  # characters of a prompt or an answer in the log: their end, their beginning


@dataclass(frozen=True, slots=True)
class Client:
    """A program that uses the server, as the log and the per-client limits know it."""

    name: str = ""  # product of its User-Agent header, such as "OpenAI/Python 3.51.0"
    address: str = ""  # IP address

    @property
    def key(self) -> str:
        """Identity for per-client limits."""
        return f"{self.address} {self.name}".strip()


@dataclass(slots=True)
class Exchange:
    """One request and what became of it. Texts are only kept where the user asked for that."""

    number: int
    client: Client
    method: str
    path: str
    began: float  # seconds since the epoch
    model: str = ""
    status: int = 0  # 0: no answer has begun
    seconds: float = 0.0
    is_running: bool = True  # its answer has not ended
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    outcome: str = ""  # why it failed, in one sentence; "": it did not
    prompt: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """A client that is being answered or was lately."""

    client: Client
    running: int  # requests
    requests: int  # so far
    last: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Activity:
    """A snapshot for the window."""

    clients: tuple[Connected, ...] = ()  # the last ones first
    connections: int = 0  # open sockets
    running: int = 0  # requests
    requests: int = 0  # so far
    failed: int = 0  # of these
    generated_tokens: int = 0
    log: tuple[Exchange, ...] = ()  # the last one first


@dataclass(slots=True)
class _Known:
    requests: int = 0
    running: int = 0
    last: float = 0.0


@dataclass(slots=True)
class Recorder:
    """Counts exchanges; used by the server's thread, read by any."""

    keeps_texts: bool = False
    connections: int = 0
    _log: deque[Exchange] = field(default_factory=lambda: deque[Exchange](maxlen=_KEPT))
    _clients: dict[Client, _Known] = field(default_factory=dict[Client, "_Known"])
    _requests: int = 0
    _running: int = 0
    _failed: int = 0
    _generated: int = 0

    def begin(self, client: Client, method: str, path: str) -> Exchange:
        """A request arrived."""
        now = time.time()
        self._requests += 1
        self._running += 1
        known = self._clients.pop(client, None) or _Known()
        known.requests, known.running, known.last = known.requests + 1, known.running + 1, now
        self._clients[client] = known
        if len(self._clients) > _MOST_CLIENTS:
            idle = next((one for one, found in self._clients.items() if not found.running), None)
            if idle is not None:
                del self._clients[idle]
        exchange = Exchange(self._requests, client, method, path, now)
        self._log.append(exchange)
        return exchange

    def end(self, exchange: Exchange) -> None:
        """A request was answered, or its client is gone."""
        now = time.time()
        exchange.seconds, exchange.is_running = now - exchange.began, False
        self._running -= 1
        self._failed += exchange.status >= 400 or bool(exchange.outcome)
        self._generated += exchange.generated_tokens
        if (known := self._clients.get(exchange.client)) is not None:
            known.running, known.last = known.running - 1, now
        if not self.keeps_texts:
            exchange.prompt = exchange.answer = ""

    def keep_texts(self, kept: bool) -> None:
        """Keep texts from now on, or none, nor those that were kept; from any thread."""
        self.keeps_texts = kept
        if not kept:
            for exchange in list(self._log):
                exchange.prompt = exchange.answer = ""

    def snapshot(self) -> Activity:
        """What happened so far."""
        now = time.time()
        clients = [
            Connected(client, known.running, known.requests, known.last)
            for client, known in reversed(list(self._clients.items()))
            if known.running or now - known.last < _RECENT_SECONDS
        ]
        log = tuple(replace(one) for one in reversed(list(self._log)))
        return Activity(
            tuple(clients),
            self.connections,
            self._running,
            self._requests,
            self._failed,
            self._generated,
            log,
        )
