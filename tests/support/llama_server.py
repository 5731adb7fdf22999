"""llama.cpp's server as a source of truth, over loopback: started for one model, asked, ended."""

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

_PATIENCE = 60.0  # seconds until it must answer


class Refusal(Exception):
    """What the server said instead of an answer, or how it ended."""


@contextmanager
def serving(program: str, model: Path, *options: str) -> Iterator[str]:
    """The address of a server that has loaded `model`; raises Refusal when it does not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [program, "-m", str(model), "--host", "127.0.0.1", "--port", port, "-t", "2"]
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=said)
        try:
            if not _answers(f"http://127.0.0.1:{port}", running):
                said.seek(0)
                raise Refusal(said.read()[:600])
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait()


def _answers(address: str, running: subprocess.Popen[bytes]) -> bool:
    """Whether it comes to answer, rather than ending or saying nothing for long."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and running.poll() is None:
        try:
            ask(address, "health")
        except (Refusal, OSError):
            time.sleep(0.1)
        else:
            return True
    return False


def ask(address: str, path: str, question: dict[str, Any] | None = None) -> Any:
    """What the server answers to a question; raises Refusal for an error of its own."""
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
    """What the program says of itself."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (said.stderr or said.stdout).splitlines()[0]
