"""Runs llama.cpp's llama-server on loopback for one model, as an oracle for recorded outputs."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_TIMEOUT_SECONDS = 60.0


class Refusal(Exception):
    """An error response of the server, or its output when it failed to start."""


@contextmanager
def serving(program: str, model: Path, *options: str) -> Iterator[str]:
    """Start a server for `model` and yield its URL; raises Refusal when it fails to start."""
    port = str(free_port())
    command = [program, "-m", str(model), "--host", "127.0.0.1", "--port", port, "-t", "2"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        running = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=errors)
        try:
            if not is_ready(f"http://127.0.0.1:{port}", running):
                errors.seek(0)
                raise Refusal(errors.read()[:600])
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait()


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def is_ready(address: str, running: subprocess.Popen[bytes]) -> bool:
    """Wait until the server is ready; False when it exits first or the time limit passes."""
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while time.monotonic() < deadline and running.poll() is None:
        try:
            ask(address, "health")
        except (Refusal, OSError):
            time.sleep(0.1)
        else:
            return True
    return False


def ask(address: str, path: str, question: dict[str, Any] | None = None) -> Any:
    """Send a request (POST when it has a body) and return the JSON response; raises Refusal."""
    request = urllib.request.Request(
        f"{address}/{path}",
        None if question is None else json.dumps(question).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        raise Refusal(refusal.read()[:300].decode("utf-8", "replace")) from None


def version(program: str) -> str:
    """The first line that `--version` prints."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (done.stderr or done.stdout).splitlines()[0]
