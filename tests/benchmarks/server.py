"""Server benchmark: throughput and latency under 1, 2, 4 and 8 clients, against llama-server.

    python tests/benchmarks/server.py MODEL.gguf [LLAMA_SERVER] [--seconds 20] [--clients 1,2,4,8]

Both servers run on the same file with the same threads, one after the other in each round. Every
client streams chat completions, one after the other, of its own question. The table has tokens per
second of all clients together, and the 50th and 95th percentile of the time between tokens and of
the time to the first token. Then the time to the first token of a long prompt, fresh and with its
beginning shared with a prompt before. Last, the same answer asked for at the engine's door and
by HTTP, in pairs: the reader is another process that only counts bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx

import llama_server
from engine import Chat, Event, ModelLoaded, Role, Sampling, Turn
from engine import Load as LoadModel
from engine.client import Engine
from engine.machine.device import physical_cores
from engine.messages import Failed, Finished
from engine.server.serve import Server, ServerOptions

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
ANSWER = 128  # tokens
PAIRS = 9  # of answers by HTTP and at the door
SHARED = 2_000  # tokens, about
_WORDS = "the tree in the quiet room has grown since the window was opened to the north "
TOPICS = ("rivers", "clocks", "bread", "maps", "bridges", "bees", "glass", "salt")


@dataclass
class Load:
    """What clients of one server saw."""

    tokens: int = 0
    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)  # seconds to the first token
    gaps: list[float] = field(default_factory=list)  # seconds between chunks

    @property
    def speed(self) -> float:
        """Tokens per second of all clients together."""
        return self.tokens / self.seconds if self.seconds else 0.0


@contextmanager
def ours(model: Path) -> Iterator[str]:
    """Serve a model with this engine; yields the address."""
    port = llama_server.free_port()
    command = [sys.executable, "-m", "engine", "serve", "--model", str(model), "--port", str(port)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        if not llama_server.is_ready(address, running):
            raise SystemExit("The server did not start.")
        yield address
    finally:
        running.terminate()
        running.wait()


def connected(address: str) -> httpx.AsyncClient:
    """A client that opens a connection for each request: llama-server closes those left open."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=address, timeout=600, trust_env=False, limits=limits)


def body(content: str, tokens: int) -> dict[str, Any]:
    """A request for an answer of so many tokens."""
    return {
        "model": "",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def stream(client: httpx.AsyncClient, content: str, tokens: int) -> AsyncIterator[Any]:
    """The chunks of one answer to a question."""
    async with client.stream("POST", CHAT, json=body(content, tokens)) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                yield json.loads(line[6:])


async def ask(client: httpx.AsyncClient, content: str, tokens: int, load: Load) -> None:
    """Stream one answer, and add what was seen to `load`."""
    began = last = time.perf_counter()
    is_first = True
    async for chunk in stream(client, content, tokens):
        if usage := chunk.get("usage"):
            load.tokens += usage["completion_tokens"]
        if not any(choice["delta"].get("content") for choice in chunk["choices"]):
            continue
        now = time.perf_counter()
        (load.firsts if is_first else load.gaps).append(now - (began if is_first else last))
        is_first, last = False, now


async def measure(address: str, clients: int, seconds: float) -> Load:
    """Let so many clients ask one question after the other for so long."""
    load = Load()
    async with connected(address) as client:
        began = time.perf_counter()

        async def work(number: int) -> None:
            turn = 0
            while turn == 0 or time.perf_counter() - began < seconds:
                topic = TOPICS[(number + turn) % len(TOPICS)]
                await ask(client, f"Tell me about {topic} ({number}, {turn}).", ANSWER, load)
                turn += 1

        await asyncio.gather(*(work(number) for number in range(clients)))
        load.seconds = time.perf_counter() - began
    return load


async def first_token(address: str) -> tuple[float, float]:
    """Seconds to the first token of a long prompt, and of another with the same beginning."""
    long = (_WORDS * (SHARED // 14)).strip()
    found: list[float] = []
    async with connected(address) as client:
        for question in ("What has grown?", "Where is the window?"):
            load = Load()
            await ask(client, f"{long}\n\n{question}", 2, load)
            found += load.firsts
    return found[0], found[1]


def percentile(values: list[float], share: float) -> float:
    """A percentile of values in milliseconds; 0 without values."""
    if not values:
        return 0.0
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] * 1e3


def row(name: str, clients: int, load: Load) -> str:
    """One line of the table."""
    gap, first = load.gaps, load.firsts
    return (
        f"{name:<14} {clients:>2} {load.speed:>9.1f} {percentile(gap, 0.5):>8.1f} "
        f"{percentile(gap, 0.95):>8.1f} {percentile(first, 0.5):>9.1f} {percentile(first, 0.95):>9.1f}"
    )


def read_answers(port: int) -> None:
    """Read one answer by HTTP for each line of standard input; prints its seconds."""
    for line in sys.stdin:
        began = time.perf_counter()
        content = json.dumps(body(line.strip(), ANSWER)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head.encode() + content)
            answer = bytearray()
            while part := connection.recv(1 << 16):
                answer += part
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())
        print(time.perf_counter() - began, flush=True)


def finished(engine: Engine, request: Chat | LoadModel) -> Event:
    """Wait for the last event of a request at the door."""
    events: Queue[Event] = Queue()
    engine.submit(request, events.put)
    while not isinstance(event := events.get(), Finished | ModelLoaded | Failed):
        pass
    if isinstance(event, Failed):
        raise SystemExit(event.message)
    return event


def http_overhead(model: Path) -> float:
    """What HTTP adds to the time of an answer, as a share of it: the median of pairs."""
    engine = Engine()
    engine.start()
    finished(engine, LoadModel(model, context=4096))
    server = Server(engine, ServerOptions(port=0))
    server.start()
    command = [sys.executable, __file__, "--read", server.address.rsplit(":", 1)[1]]
    shares: list[float] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for number in range(PAIRS + 1):
            content = f"Tell me about {TOPICS[number % len(TOPICS)]} ({number})."
            seconds: dict[bool, float] = {}
            for is_http in (True, False) if number % 2 else (False, True):
                own = f"{content} {'Please.' if is_http else 'Thanks.'}"
                if is_http:
                    print(own, file=reader.stdin, flush=True)
                    seconds[is_http] = float(reader.stdout.readline())
                else:
                    began = time.perf_counter()
                    turns = (Turn(Role.USER, own),)
                    asked = Chat(turns, Sampling(temperature=0, ignore_end=True), ANSWER)
                    finished(engine, asked)
                    seconds[is_http] = time.perf_counter() - began
            shares += [seconds[True] / seconds[False] - 1] * (number > 0)  # the first is warm-up
        reader.stdin.close()
    server.stop()
    engine.stop()
    return statistics.median(shares)


def main() -> None:
    """Measure both servers, print a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("program", nargs="?", help="llama-server; without it only what HTTP costs")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", default="1,2,4,8")
    options = parser.parse_args()
    if options.program is None:
        print(f"HTTP adds {http_overhead(options.model):.1%} to an answer of {ANSWER} tokens")
        return
    counts = [int(one) for one in options.clients.split(",")]
    most = str(max(counts))
    threads = str(physical_cores())
    print("server         n  tokens/s  gap p50  gap p95  first p50  first p95   (milliseconds)")
    speeds: dict[int, dict[str, float]] = {count: {} for count in counts}
    servers = {
        "ours": ours(options.model),
        "llama-server": llama_server.serving(
            options.program, options.model, "-np", most, "-c", str(int(most) * 4096), "-t", threads
        ),
    }
    for name, server in servers.items():
        with server as address:
            asyncio.run(measure(address, 1, 1.0))  # warm
            for count in counts:
                load = asyncio.run(measure(address, count, options.seconds))
                speeds[count][name] = load.speed
                print(row(name, count, load), flush=True)
            fresh, shared = asyncio.run(first_token(address))
            print(f"{name:<14} first token of {SHARED} tokens {fresh:.3f} s, shared {shared:.3f} s")
    for count in counts:
        ratio = speeds[count]["ours"] / speeds[count]["llama-server"]
        print(f"{count} clients: {ratio:.2f} x the throughput of llama-server")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read_answers(int(sys.argv[2]))
    else:
        main()
