"""Drives one engine as clients and the window do at once, and prints how fairly they are served.

Four HTTP clients stream answers without pause; the window asks a short question every few seconds
at its own priority. Run by hand: `python tests/drivers/server_load.py MODEL [MINUTES]`.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx

from engine import Chat, Event, Failed, Finished, Load, ModelLoaded, Role, Sampling, Text, Turn
from engine.client import Engine, Limits
from engine.messages import Priority
from engine.server.serve import Server, ServerOptions

CLIENTS = 4
PAUSE_SECONDS = 3.0  # between two questions of the window
ALONE = 8  # questions of the window without clients
CONTEXT = 8_192


@dataclass(slots=True)
class Client:
    """What one HTTP client was given."""

    tokens: int = 0
    answers: int = 0
    errors: list[str] = field(default_factory=list[str])


def stream(address: str, number: int, client: Client, end: float) -> None:
    """Ask without pause until `end`."""
    headers = {"User-Agent": f"client-{number}"}
    with httpx.Client(base_url=address, timeout=120, headers=headers) as http:
        while time.monotonic() < end:
            messages = [
                {"role": "user", "content": f"{client.answers}. Write a long story about a ship."}
            ]
            body = {"model": "", "messages": messages, "max_tokens": 256, "stream": True}
            try:
                read(http, body, client, end)
            except Exception as error:  # noqa: BLE001  each is a finding
                client.errors.append(repr(error)[:200])
            client.answers += 1


def read(http: httpx.Client, body: dict[str, object], client: Client, end: float) -> None:
    """Read one answer, up to `end`; an event with text counts as a token."""
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise AssertionError(response.read().decode()[:200])
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise AssertionError(line[:200])
            client.tokens += bool(event["choices"] and event["choices"][0]["delta"].get("content"))
            if time.monotonic() > end:
                return


def first_token(engine: Engine, number: int) -> float:
    """Seconds from a question of the window to the first text of its answer."""
    arrived: Queue[tuple[float, Event]] = Queue()
    turns = (Turn(Role.USER, f"Question {number}: name a colour and say why you like it."),)
    began = time.perf_counter()
    engine.submit(
        Chat(turns, Sampling(seed=1), max_tokens=32),
        lambda event: arrived.put((time.perf_counter(), event)),
        priority=Priority.WINDOW,
    )
    found = 0.0
    while True:
        at, event = arrived.get(timeout=120)
        if isinstance(event, Failed):
            raise AssertionError(event.message)
        if isinstance(event, Text) and not found:
            found = at - began
        if isinstance(event, Finished):
            return found or at - began


def quiet(engine: Engine) -> list[float]:
    """The same for several questions while nobody else asks."""
    found: list[float] = []
    for number in range(ALONE):
        found.append(first_token(engine, number))
        time.sleep(0.3)
    return found


def load(engine: Engine, path: Path) -> None:
    """Load the main model; raises AssertionError."""
    ended: Queue[Event] = Queue()
    engine.submit(Load(path, context=CONTEXT), ended.put)
    while not isinstance(event := ended.get(timeout=120), ModelLoaded):
        assert not isinstance(event, Failed), event


def main(path: Path, minutes: float) -> int:
    """Run it and print the figures; 1 if there was an error or a bound was not kept."""
    engine = Engine(limits=Limits())
    engine.start()
    load(engine, path)
    server = Server(engine, ServerOptions(port=0))
    server.start()
    first_token(engine, 0)
    alone = quiet(engine)
    end = time.monotonic() + minutes * 60
    clients = [Client() for _ in range(CLIENTS)]
    threads = [
        threading.Thread(target=stream, args=(server.address, number, one, end))
        for number, one in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    time.sleep(2)
    beside: list[float] = []
    errors: list[str] = []
    while time.monotonic() < end - 5:
        try:
            beside.append(first_token(engine, len(beside)))
        except Exception as error:  # noqa: BLE001  each is a finding
            errors.append(repr(error)[:200])
        time.sleep(PAUSE_SECONDS)
    for thread in threads:
        thread.join()
    alone += quiet(engine)
    server.stop()
    engine.stop()
    errors += [error for one in clients for error in one.errors]
    tokens = [one.tokens for one in clients]
    ratio = statistics.median(beside) / statistics.median(alone)
    fair = max(tokens) / max(min(tokens), 1)
    print(
        f"{minutes:g} minutes, {sum(tokens)} tokens, {sum(one.answers for one in clients)} answers"
    )
    print(f"tokens per client {tokens}: most / least {fair:.2f}")
    print(
        f"window's first token: alone {statistics.median(alone) * 1e3:.0f} ms, beside {CLIENTS} "
        f"clients {statistics.median(beside) * 1e3:.0f} ms (median of {len(beside)}), "
        f"ratio {ratio:.2f}, slowest {max(beside) * 1e3:.0f} ms"
    )
    print(f"errors: {len(errors)} {sorted(set(errors))[:5]}")
    return int(bool(errors) or fair > 2)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10.0))
