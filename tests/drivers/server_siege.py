"""Attacks a running `python -m engine serve` and prints one line per attack with its verdict.

Beside each attack a witness asks for /health without pause and streams answers: the line has the
longest time that either waited. Run by hand: `python tests/drivers/server_siege.py MODEL [NAME ...]`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx

KEY = "correct-horse"
CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
JSON = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
LONG = {"max_tokens": 4000, "ignore_eos": True, "stream": True}
MOST_GAP = 1.0  # seconds that another client may wait for its next token
ROOT = Path(__file__).parents[2]


class Target:
    """A server in a process of its own."""

    def __init__(self, model: Path, *options: str) -> None:
        folder = Path(tempfile.mkdtemp())
        key = folder / "key"
        key.write_text(KEY, encoding="utf-8")
        key.chmod(0o600)
        self.log = folder / "log"
        command = [sys.executable, "-m", "engine", "serve", "-m", str(model), "--port", "0"]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, "--key-file", str(key), *options],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        while not (found := re.search(r"Listening at http://127.0.0.1:(\d+)", self.text())):
            assert self.process.poll() is None, self.text()
            time.sleep(0.1)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def text(self) -> str:
        return self.log.read_text(errors="replace", encoding="utf-8")

    def post(self, path: str, body: Any, seconds: float = 60.0) -> httpx.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(self.url + path, content=raw, headers=JSON, timeout=seconds)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def raw(self, sent: bytes, seconds: float = 20.0) -> bytes:
        """What comes back for these bytes until the connection ends, or for some seconds."""
        parts: list[bytes] = []
        with self.connect() as one, suppress(OSError):
            one.settimeout(seconds)
            one.sendall(sent)
            while part := one.recv(65536):
                parts.append(part)
        return b"".join(parts)

    def state(self) -> dict[str, int]:
        """Threads, descriptors, megabytes, and answers in progress."""
        folder = Path(f"/proc/{self.process.pid}")
        status = folder.joinpath("status").read_text(encoding="utf-8")
        slots = httpx.get(f"{self.url}/slots", headers=JSON, timeout=60).json()
        numbers = {"processing": sum(one["is_processing"] for one in slots)}
        return {
            "threads": len(list(folder.joinpath("task").iterdir())),
            "files": len(list(folder.joinpath("fd").iterdir())),
            "MB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024,  # type: ignore[index]
        } | numbers


def chat(text: str = "hello", **options: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": "", "messages": [message], "max_tokens": 4} | options


class Witness:
    """Other clients: the longest time each waited."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ends = threading.Event()
        self.health = self.token = 0.0
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=one) for one in (self._ask, self._stream)]

    def __enter__(self) -> Witness:
        for one in self._threads:
            one.start()
        time.sleep(0.7)
        self.health = self.token = 0.0
        return self

    def __exit__(self, *error: object) -> None:
        time.sleep(0.3)
        self._ends.set()
        for one in self._threads:
            one.join()

    def _ask(self) -> None:
        while not self._ends.wait(0.02):
            began = time.perf_counter()
            try:
                httpx.get(f"{self._target.url}/health", timeout=60)
            except httpx.HTTPError as error:
                self.errors.append(repr(error))
            self.health = max(self.health, time.perf_counter() - began)

    def _stream(self) -> None:
        body = chat("Tell me a long story.", **LONG)
        options: dict[str, Any] = {"json": body, "headers": JSON, "timeout": 60}
        while not self._ends.is_set():
            try:
                with httpx.stream("POST", self._target.url + CHAT, **options) as response:
                    last = 0.0
                    for _ in response.iter_lines():
                        now = time.perf_counter()
                        self.token = max(self.token, now - last if last else 0.0)
                        last = now
                        if self._ends.is_set():
                            return
            except httpx.HTTPError as error:
                self.errors.append(repr(error))


Attack = Callable[[Target], str]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    """Register an attack, which returns what happened; "BAD" in it is a finding."""
    ATTACKS[function.__name__] = function
    return function


def codes(responses: Iterator[tuple[str, httpx.Response | Exception]]) -> str:
    """Statuses by name; those of 500 and errors of the connection are bad."""
    found: list[str] = []
    for name, one in responses:
        status = one.status_code if isinstance(one, httpx.Response) else type(one).__name__
        is_bad = status == 500 or isinstance(one, Exception)
        found.append(f"{name}:{status}{' BAD' if is_bad else ''}")
    return " ".join(found)


def each(target: Target, bodies: dict[str, Any], path: str = CHAT, seconds: float = 60) -> str:
    """Send each body and time it."""

    def sent() -> Iterator[tuple[str, httpx.Response | Exception]]:
        for name, body in bodies.items():
            began = time.perf_counter()
            try:
                found: httpx.Response | Exception = target.post(path, body, seconds)
            except httpx.HTTPError as error:
                found = error
            took = time.perf_counter() - began
            yield f"{name}({took:.1f}s)" if took > 1 else name, found

    return codes(sent())


def raw_codes(target: Target, requests: dict[str, bytes], seconds: float = 3.0) -> str:
    """The statuses that come back for raw bytes."""
    found: list[str] = []
    for name, sent in requests.items():
        statuses = re.findall(rb"HTTP/1\.1 (\d+)", target.raw(sent, seconds))
        shown = ",".join(one.decode() for one in statuses) or "closed"
        found.append(f"{name}:{shown}{' BAD' if '500' in shown else ''}")
    return " ".join(found)


@attack
def numbers(target: Target) -> str:
    base = json.dumps(chat())[:-1]
    values = ["1e999", "-1e999", "NaN", "Infinity", "-0", "-0.0", "1" + "0" * 400, "1" * 5000]
    bodies = {
        f"{field}={value[:6]}": f'{base},"{field}":{value}}}'.encode()
        for field in ("temperature", "max_tokens", "seed", "n", "top_logprobs")
        for value in values
    }
    for value in values:
        for form in ('{"5":%s}', "[[5,%s]]"):
            bodies[f"bias {form[0]}={value[:6]}"] = f'{base},"logit_bias":{form % value}}}'.encode()
        schema = f'{{"type":"json_schema","json_schema":{{"schema":{{"maximum":{value}}}}}}}'
        bodies[f"schema={value[:6]}"] = f'{base},"response_format":{schema}}}'.encode()
        bodies[f"template={value[:6]}"] = (
            f'{base},"chat_template_kwargs":{{"a":{value}}}}}'.encode()
        )
    return each(target, bodies)


@attack
def encodings(target: Target) -> str:
    text = json.dumps(chat("höß"), ensure_ascii=False)
    return each(
        target,
        {
            "utf-16": text.encode("utf-16"),
            "utf-16-le": text.encode("utf-16-le"),
            "latin-1": text.encode("latin-1"),
            "bom": b"\xef\xbb\xbf" + text.encode(),
            "surrogate": json.dumps(chat("\ud800")).encode(),
            "nul": json.dumps(chat("a\0b")).encode(),
            "raw nul": b'{"a": "\0"}',
            "duplicate keys": b'{"model":"x","messages":1,' + text.encode()[1:],
            "deep": b"[" * 1_000_000,
            "deep object": b'{"a":' * 100_000,
        },
    )


@attack
def huge(target: Target) -> str:
    words = "The quick brown fox jumps over the lazy dog. "
    return each(
        target,
        {
            "8 MB text": chat(words * (8 * 1024**2 // len(words))),
            "8 MB of one letter": chat("a" * 8 * 1024**2),
            "8 MB of spaces": chat(" " * 8 * 1024**2),
            "more than context": chat("word " * 20_000),
            "100,000 messages": chat() | {"messages": chat("a")["messages"] * 100_001},
        },
        seconds=120,
    )


@attack
def huge_ids(target: Target) -> str:
    return each(target, {"3 million ids": {"model": "", "prompt": [5] * 3_000_000}}, COMPLETE)


@attack
def many_values(target: Target) -> str:
    body = b'{"model":"","x":[' + b"[]," * 20_000_000 + b"[]]," + json.dumps(chat()).encode()[1:]
    return each(target, {"60 MB of lists": body}, seconds=120)


@attack
def lists(target: Target) -> str:
    stops = [f"stop {at}" for at in range(10_000)]
    options: dict[str, Any] = {
        "10,000 stops": {"stop": stops, "max_tokens": 100},
        "one stop of 1 MB": {"stop": ["a" * 1_000_000]},
        "bias of all": {"logit_bias": {str(at): -1 for at in range(49_152)}},
        "bias of others": {"logit_bias": {str(at): 1 for at in range(10**8, 10**8 + 100)}},
        "20,000 text biases": {"logit_bias": [[f"word {at}", 1] for at in range(20_000)]},
        "20,000 breakers": {
            "dry_sequence_breakers": [f"b{at}" for at in range(20_000)],
            "dry_multiplier": 1,
        },
        "n=1000": {"n": 1000},
        "n=-1": {"n": -1},
        "max_tokens=-5": {"max_tokens": -5, "stop": [" ", "."]},
        "max_tokens=2^62": {"max_tokens": 2**62, "stop": ["e", " ", "."]},
        "top_k=2^62": {"top_k": 2**62},
        "repeat_last_n=2^62": {"repeat_last_n": 2**62, "repeat_penalty": 1.1},
        "temperature=1e300": {"temperature": 1e300},
        "dry_base=1e300": {"dry_base": 1e300, "dry_multiplier": 1e300},
        "dynatemp": {"dynatemp_range": 1e300, "dynatemp_exponent": -1e300},
        "presence=1e38": {"presence_penalty": 1e38, "frequency_penalty": -1e300},
    }
    found = each(target, {name: chat(**one) for name, one in options.items()})
    more = {"best_of": {"model": "", "prompt": "a", "best_of": 1000}}
    return f"{found} {each(target, more, COMPLETE)}"


@attack
def stop_of_what_comes(target: Target) -> str:
    """A stop text whose beginning the model writes again and again: all of it is held."""
    body = chat(
        stop=[" a" * 500_000 + "x", *(" a" * 100 + str(at) for at in range(5_000))],
        logit_bias=[[" a", 100]],
        max_tokens=1500,
        ignore_eos=True,
        repeat_penalty=1.0,
    )
    return each(target, {"held stop": body}, seconds=120)


def schema_tool(at: int, schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"tool_{at}", "parameters": schema}}


@attack
def tools(target: Target) -> str:
    endless: Any = {"$ref": "#"}
    tree = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/t"}},
        "$defs": {"t": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/t"}, endless]}}},
    }
    wide = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(5_000)}}
    some = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = {
        "1,000 tools": {"tools": [schema_tool(at, some) for at in range(1000)]},
        "1,000 tools required": {
            "tools": [schema_tool(at, some) for at in range(1000)],
            "tool_choice": "required",
        },
        "recursive": {"tools": [schema_tool(0, tree)], "tool_choice": "required"},
        "endless": {"tools": [schema_tool(0, endless)], "tool_choice": "required"},
        "wide": {"tools": [schema_tool(0, wide)], "tool_choice": "required"},
        "one name 100 times": {"tools": [schema_tool(0, some)] * 100},
    }
    return each(target, {name: chat(**one) for name, one in made.items()}, seconds=120)


@attack
def bombs(target: Target) -> str:
    ambiguous = 'root ::= a*\na ::= "x"? a? | "x" a "x"? | ("y"? "z"?){0,50}'
    schema = {"type": "array", "items": {"type": "string", "pattern": "^(a|b|ab)*$"}}
    for _ in range(8):
        schema = {"anyOf": [schema, {"allOf": [schema, schema]}]}
    made = {
        "regex": {"guided_regex": "(a{1,1000}){1,1000}"},
        "regex 2": {"guided_regex": "((a|aa|aaa|b)*c?){1,500}.*(x|y|xy)*[a-z]{1,400}$"},
        "regex 3": {"guided_regex": "(.*a.{30}){1,3}|(.*b.{28})"},
        "regex 4": {"guided_regex": "(?:.*[ab].{20,60}[cd]){5,9}"},
        "gbnf": {"grammar": ambiguous},
        "gbnf long": {"grammar": 'root ::= "a"{0,100000}'},
        "gbnf left": {"grammar": 'root ::= root root | root "a" | ""'},
        "gbnf wide": {"grammar": "root ::= " + " | ".join(f'"w{at}" root' for at in range(20_000))},
        "choices": {"guided_choice": [f"choice {at}" for at in range(50_000)]},
        "schema": {"guided_json": schema},
        "pattern": {"guided_json": {"type": "string", "pattern": "(.*a.{200}b.*){50}"}},
        "long string": {"guided_json": {"type": "string", "minLength": 500_000}},
        "enum": {"guided_json": {"enum": list(range(100_000))}},
    }
    options = {"max_tokens": 40}
    return each(target, {name: chat(**options, **one) for name, one in made.items()}, seconds=120)


@attack
def endless_grammars(target: Target) -> str:
    """Grammars that take longer than is waited for, in a row: no thread of them may stay."""
    before = target.state()["threads"]
    enums = [{"enum": list(range(at * 60_000, at * 60_000 + 60_000))} for at in range(2)]
    patterns = [{"type": "string", "pattern": f"x{at}"} for at in range(60)]
    made = {
        "enums": {"guided_json": {"allOf": enums}},
        "one of": {"guided_json": {"oneOf": patterns}},
        "all of": {"guided_json": {"allOf": patterns}},
    }
    found = each(target, {name: chat(max_tokens=4, **one) for name, one in made.items()})
    time.sleep(2)
    more = target.state()["threads"] - before
    return f"{found} threads more: {more}{' BAD' if more > 2 else ''}"


@attack
def templates(target: Target) -> str:
    deep: Any = "x"
    for _ in range(90):
        deep = [deep]
    kwargs = {
        "deep": {"a": deep},
        "wide": {f"k{at}": "v" for at in range(100_000)},
        "messages": {"messages": [], "bos_token": "x", "range": 5, "namespace": None},
    }
    bodies = {name: chat(chat_template_kwargs=one) for name, one in kwargs.items()}
    return each(target, bodies, seconds=120)


def request(line: str, *headers: str, body: bytes = b"", key: str = KEY) -> bytes:
    lines = [line, "Host: localhost", f"Authorization: Bearer {key}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


@attack
def framing(target: Target) -> str:
    body = json.dumps(chat(max_tokens=1)).encode()
    post = f"POST {CHAT} HTTP/1.1"
    length, chunked = f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"
    size = f"{len(body):x}\r\n".encode()
    inner = request("GET /v1/models HTTP/1.1")
    health = request("GET /health HTTP/1.1")
    return raw_codes(
        target,
        {
            "length too long": request(post, f"Content-Length: {len(body) + 50}", body=body),
            "length too short": request(post, f"Content-Length: {len(body) - 5}", body=body),
            "two lengths": request(post, length, "Content-Length: 5", body=body),
            "length list": request(post, f"{length}, 5", body=body),
            "length +": request(post, f"Content-Length: +{len(body)}", body=body),
            "length -1": request(post, "Content-Length: -1", body=body),
            "length 2^70": request(post, f"Content-Length: {2**70}", body=body),
            "CL.TE": request(post, length, chunked, body=b"0\r\n\r\n" + inner),
            "TE odd": request(post, "Transfer-Encoding: xchunked", body=body),
            "TE twice": request(post, chunked, "Transfer-Encoding: identity", body=body),
            "TE space": request(post, "Transfer-Encoding : chunked", body=body),
            "chunk bad": request(post, chunked, body=b"zz\r\n" + body),
            "chunk huge": request(post, chunked, body=b"f" * 30 + b"\r\n" + body),
            "chunk extension": request(post, chunked, body=size[:-2] + b";" + b"a" * 100_000),
            "bare LF": request("GET /health HTTP/1.1").replace(b"\r\n", b"\n"),
            "obs-fold": request("GET /health HTTP/1.1", "X-A: b", " folded"),
            "HTTP/0.9": b"GET /health\r\n",
            "HTTP/1.0": b"GET /health HTTP/1.0\r\n\r\n",
            "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "absolute": request("GET http://evil.example/v1/models HTTP/1.1"),
            "CONNECT": request("CONNECT localhost:22 HTTP/1.1"),
            "TRACE": request("TRACE / HTTP/1.1"),
            "10,000 headers": request(
                "GET /health HTTP/1.1", *(f"x{at}: {at}" for at in range(10_000))
            ),
            "2,000 headers": request(
                "GET /health HTTP/1.1", *(f"x{at}: {at}" for at in range(2_000))
            ),
            "two hosts": request("GET /health HTTP/1.1", "Host: evil.example"),
            "upgrade": request("GET /health HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket"),
            "expect": request(post, length, "Expect: 100-continue", body=body),
            "pipeline of 5": health * 5,
            "pipeline of 3000": health * 3000,
            "path traversal": request("GET /v1/models/..%2f..%2fetc%2fpasswd HTTP/1.1"),
            "path nul": request("GET /v1/models/%00%ff HTTP/1.1"),
            "path raw": request("GET /\xff\xfe HTTP/1.1"),
            "query": request("GET /metrics?model=%ff%00&" + "a=b&" * 5000 + " HTTP/1.1"),
        },
    )


@attack
def endless_chunks(target: Target) -> str:
    """A chunked body without end, as fast as it goes."""
    sent = 0
    with target.connect() as one:
        one.sendall(request(f"POST {CHAT} HTTP/1.1", "Transfer-Encoding: chunked"))
        try:
            while sent < 400 << 20:
                one.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            return f"cut after {sent >> 20} MB"
    return "BAD: took 400 MB"


@attack
def tiny_chunks(target: Target) -> str:
    """A body of a few MB in chunks of one byte: each is an event of the server."""
    began = time.perf_counter()
    with target.connect() as one, suppress(OSError):
        one.sendall(request(f"POST {CHAT} HTTP/1.1", "Transfer-Encoding: chunked"))
        for _ in range(200):
            one.sendall(b"1\r\n \r\n" * 10_000)
    return f"2 million chunks in {time.perf_counter() - began:.1f} s"


@attack
def slow_senders(target: Target) -> str:
    """200 connections that send headers and bodies byte by byte."""
    opened = [target.connect() for _ in range(200)]
    head = request(f"POST {CHAT} HTTP/1.1", "Content-Length: 5000")
    for at, one in enumerate(opened):
        one.sendall(head if at % 2 else head[:20])
    for at in range(20, 60):
        for one in opened:
            with suppress(OSError):
                one.sendall(head[at : at + 1])
        time.sleep(0.05)
    status = target.post(CHAT, chat()).status_code
    for one in opened:
        one.close()
    return f"another client: {status}"


@attack
def hosts(target: Target) -> str:
    wanted = {
        "attacker.com": 403, "localhost.attacker.com": 403, "127.0.0.1.nip.io": 403, "127.1": 403,
        "2130706433": 403, "0x7f.0.0.1": 403, "localhost@evil.com": 403, "evil.com#localhost": 403,
        "localhost": 200, "localhost.": 200, "LOCALHOST:99": 200, "[::1]": 200, "[::1]:8080": 200,
        "127.0.0.1": 200, "127.0.0.1:1": 200, "[::1]evil.com": 403, "localhost:evil.com": 403,
        "[::1].evil.com": 403, "[evil.com]": 403, "localhost\tevil.com": 403,
    }  # fmt: skip
    found: list[str] = []
    for host, status in wanted.items():
        sent = f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n"
        got = re.findall(
            rb"HTTP/1\.1 (\d+)", target.raw(f"{sent}Connection: close\r\n\r\n".encode())
        )
        if got != [b"%d" % status] and not (status == 403 and got == [b"400"]):
            found.append(f"{host!r}:{got} BAD")
    return " ".join(found) or f"{len(wanted)} names as wanted"


@attack
def pages(target: Target) -> str:
    """What a page in a browser can send; only its own failure to know the key stops some."""
    body = json.dumps(chat(max_tokens=1))
    cases: dict[str, tuple[str, dict[str, str]]] = {
        "origin": ("POST", {"Origin": "http://evil.example", "Content-Type": "text/plain"}),
        "null": ("POST", {"Origin": "null", "Content-Type": "text/plain"}),
        "other port": ("POST", {"Origin": "http://localhost:1"}),
        "cross-site no-cors": (
            "GET",
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        ),
        "same-site no-cors": ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}),
        "cross-site POST": ("POST", {"Sec-Fetch-Site": "cross-site"}),
    }
    found: list[str] = []
    for name, (method, headers) in cases.items():
        path = CHAT if method == "POST" else "/metrics?model=x"
        options: dict[str, Any] = {"content": body} if method == "POST" else {}
        got = httpx.request(
            method, target.url + path, headers=JSON | headers, timeout=30, **options
        )
        found.append(f"{name}:{got.status_code}{'' if got.status_code == 403 else ' BAD'}")
    return " ".join(found)


@attack
def keys(target: Target) -> str:
    """Wrong keys from 50 connections for 3 seconds, and the right one beside them."""
    end = time.monotonic() + 3
    tried: Counter[int] = Counter()

    def guess(number: int) -> None:
        with httpx.Client(base_url=target.url, timeout=30) as http:
            while time.monotonic() < end:
                key = f"guess-{number}-{sum(tried.values())}"
                tried[http.get("/v1/models", headers={"x-api-key": key}).status_code] += 1

    threads = [threading.Thread(target=guess, args=(at,)) for at in range(50)]
    for one in threads:
        one.start()
    time.sleep(1)
    began = time.perf_counter()
    right = httpx.get(f"{target.url}/v1/models", headers=JSON).status_code
    took = time.perf_counter() - began
    for one in threads:
        one.join()
    leaks = [word for word in (KEY, "guess-") if word in target.text()]
    bad = " BAD" if set(tried) != {401} or right != 200 or leaks else ""
    rate = sum(tried.values()) / 3
    return f"{rate:.0f} tries/s, the right key: {right} in {took * 1e3:.0f} ms{bad} {leaks or ''}"


@attack
def abandoned(target: Target) -> str:
    """200 connections, half of them in mid-stream, dropped at once: all must come back."""
    before = target.state()
    opened = [target.connect() for _ in range(200)]
    body = json.dumps(chat("Count.", **LONG)).encode()
    for at, one in enumerate(opened):
        if at % 2:
            agent = f"User-Agent: agent-{at % 10}"
            length = f"Content-Length: {len(body)}"
            one.sendall(request(f"POST {CHAT} HTTP/1.1", agent, length, body=body))
    time.sleep(4)
    during = target.state()
    for one in opened:
        one.close()
    began = time.monotonic()
    while (after := target.state())["processing"] > before["processing"]:
        if time.monotonic() - began > 20:
            break
        time.sleep(0.05)
    took = time.monotonic() - began
    time.sleep(2)
    after = target.state()
    more = {name: after[name] - before[name] for name in before}
    is_bad = more["files"] > 3 or more["processing"] > 0 or more["threads"] > 2 or more["MB"] > 300
    return (
        f"during {during}; freed in {took:.2f} s; more than before {more}{' BAD' if is_bad else ''}"
    )


@attack
def two_on_one_port(target: Target) -> str:
    command = [sys.executable, "-m", "engine", "serve", "--port", str(target.port)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    text = (done.stdout + done.stderr).strip()
    is_bad = done.returncode == 0 or "Traceback" in text
    return f"exit {done.returncode}: {text[:120]}{' BAD' if is_bad else ''}"


def stopped(model: Path, number: int) -> str:
    """Stop a server while 8 clients stream."""
    target = Target(model)
    ends: list[str] = []

    def stream() -> None:
        try:
            options: dict[str, Any] = {"json": chat("Count.", **LONG), "headers": JSON}
            with httpx.stream("POST", target.url + CHAT, timeout=60, **options) as response:
                last = ""
                for line in response.iter_lines():
                    last = line or last
                ends.append("told" if "being stopped" in last else last[:60])
        except httpx.HTTPError as error:
            ends.append(type(error).__name__)

    threads = [threading.Thread(target=stream) for _ in range(8)]
    for one in threads:
        one.start()
    time.sleep(3)
    began = time.monotonic()
    target.process.send_signal(number)
    code = target.process.wait(30)
    took = time.monotonic() - began
    for one in threads:
        one.join()
    bad = (
        " BAD" if code or took > 3 or "Traceback" in target.text() or set(ends) != {"told"} else ""
    )
    return f"exit {code} after {took:.1f} s, ends {dict(Counter(ends))}{bad}"


def file_gone(model: Path) -> str:
    """The file of the model is deleted, then replaced by rubbish, under the server."""
    folder = Path(tempfile.mkdtemp())
    copy = folder / model.name
    copy.write_bytes(model.read_bytes())
    target = Target(copy)
    copy.unlink()
    deleted = target.post(CHAT, chat()).status_code
    copy.write_bytes(b"rubbish" * 1000)
    replaced = target.post(CHAT, chat()).status_code
    named = target.post(CHAT, chat(model=model.stem)).status_code
    listed = httpx.get(f"{target.url}/v1/models", headers=JSON).status_code
    os.kill(target.process.pid, signal.SIGTERM)
    code = target.process.wait(30)
    bad = " BAD" if "Traceback" in target.text() or code else ""
    return f"deleted:{deleted} replaced:{replaced} named:{named} listed:{listed} exit {code}{bad}"


@contextmanager
def running(model: Path) -> Iterator[Target]:
    target = Target(model)
    try:
        yield target
    finally:
        target.process.send_signal(signal.SIGTERM)
        target.process.wait(30)


def main(model: Path, names: list[str]) -> int:
    """Run the attacks of these names, or all; 1 if one was bad."""
    bad = 0
    with running(model) as target:
        for name, run in ATTACKS.items():
            if names and name not in names:
                continue
            with Witness(target) as witness:
                began = time.perf_counter()
                found = run(target)
                took = time.perf_counter() - began
            waits = f"health {witness.health:.2f} s, token {witness.token:.2f} s"
            is_bad = (
                "BAD" in found or witness.errors or max(witness.health, witness.token) > MOST_GAP
            )
            is_bad = bool(is_bad or "Traceback" in target.text())
            bad += is_bad
            print(
                f"{'BAD ' if is_bad else 'ok  '} {name} [{took:.0f} s; {waits}] {found}", flush=True
            )
            if witness.errors:
                print(f"     the witness: {sorted(set(witness.errors))[:3]}", flush=True)
            if target.process.poll() is not None:
                ended = target.process.returncode
                print(f"     the server ended with {ended}: {target.text()[-500:]}")
                return 1
        if "Traceback" in target.text():
            print(target.text()[-3000:])
    for name, alone in {
        "stopped by SIGTERM": lambda: stopped(model, signal.SIGTERM),
        "stopped by SIGINT": lambda: stopped(model, signal.SIGINT),
        "file gone": lambda: file_gone(model),
    }.items():
        if not names or name in names:
            found = alone()
            bad += "BAD" in found
            print(f"{'BAD ' if 'BAD' in found else 'ok  '} {name}: {found}", flush=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
