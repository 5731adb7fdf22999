"""Server benchmark: throughput and latency under 1, 2, 4 and 8 clients, against llama-server.

    python tests/benchmarks/server.py MODEL.gguf LLAMA_SERVER [--seconds 20] [--clients 1,2,4,8]

Both servers run on the same file with the same threads, one after the other in each round. Every
client streams chat completions, one after the other, of its own question. The table has tokens per
second of all clients together, and the 50th and 95th percentile of the time between tokens and of
the time to the first token. Then the time to the first token of a long prompt, fresh and with its
beginning shared with a prompt before, and what HTTP costs beside the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx

import llama_server
from engine.machine.device import physical_cores

ROOT = Path(__file__).parents[2]
ANSWER = 128  # tokens
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


async def stream(client: httpx.AsyncClient, content: str, tokens: int) -> AsyncIterator[Any]:
    """The chunks of one answer to a question."""
    body = {
        "model": "",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
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
    async with httpx.AsyncClient(base_url=address, timeout=600, trust_env=False) as client:
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
    async with httpx.AsyncClient(base_url=address, timeout=600, trust_env=False) as client:
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


def main() -> None:
    """Measure both servers, print a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("program", help="llama-server")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", default="1,2,4,8")
    options = parser.parse_args()
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
    main()
