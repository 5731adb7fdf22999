"""The subcommand `serve`: it prints its address, serves, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import tiny
from engine.cli.commands import main


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be asked to end there")
def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    model = tiny.write(tmp_path / "a-model.gguf", context=512)
    key = tmp_path / "key"
    key.write_text("the-key\n")
    arguments = ["serve", "-m", str(model), "--port", "0", "--key-file", str(key)]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.split()[2]
        assert httpx.get(f"{address}/v1/models").status_code == 401
        headers = {"Authorization": "Bearer the-key"}
        (found,) = httpx.get(f"{address}/v1/models", headers=headers).json()["data"]
        assert found["id"] == "a-model"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 1
    assert f"port {port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--key", "a b"], "without spaces"),
        (["--port", "70000"], "0 to 65535"),
        (["--host", "no.such.host.invalid"], "no address of this computer"),
        (["-m", "no-such-model"], "no model"),
    ],
)
def test_bad_options_are_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
