"""The subcommand `serve`: it prints its address, serves, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import tiny
import tiny_lora
from engine import AdapterUse, DraftKind, Engine, Load, Pooling
from engine.cli.commands import main
from engine.errors import RequestError
from engine.server import serve as server
from engine.server.guards import Security
from engine.server.models import MainModel
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from engine_bench import with_printable_output
from serving import chat


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be asked to end there")
def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    model = with_printable_output(tiny.write(tmp_path / "a-model.gguf", context=2048))
    key = tmp_path / "key"
    key.write_text("\ufeffthe-key\r\n", encoding="utf-8")  # as an editor on Windows writes it
    arguments = ["serve", "-m", str(model), "--port", "0", "--key-file", str(key)]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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
        began = threading.Semaphore(0)

        def stream() -> str:
            """The last event of a stream, which ends as it should."""
            body = chat(max_tokens=1900, n=2, ignore_eos=True, stream=True)
            url, lines = f"{address}/v1/chat/completions", list[str]()
            with httpx.stream("POST", url, headers=headers, json=body, timeout=60) as response:
                began.release()
                lines += response.iter_lines()
            return [line for line in lines if line][-1]

        with ThreadPoolExecutor(8) as pool:
            streams = [pool.submit(stream) for _ in range(8)]
            for _ in streams:
                assert began.acquire(timeout=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            ends = {one.result(30) for one in streams}
        assert any("being stopped" in one for one in ends)
        assert all("being stopped" in one or one == "data: [DONE]" for one in ends)
        _, errors = process.communicate()
        assert errors == ""
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
        (["--key", "schlüssel"], "of ASCII"),
        (["--port", "70000"], "0 to 65535"),
        (["--host", "no.such.host.invalid"], "no address of this computer"),
        (["-m", "no-such-model"], "no model"),
        (["-m", "MODEL", "--chat-template", "vicuna"], "no built-in chat template"),
        (["-m", "MODEL", "--chat-template-file", "/no/such/file"], str(Path("/no/such/file"))),
        (["-m", "MODEL", "--parallel", "17"], "1 to 16"),
        (["-m", "MODEL", "--draft", "no-such-model"], "no model"),
        (["-m", "MODEL", "--sleep-idle-seconds", "-2"], "no time"),
        (["--pooling", "some"], "invalid choice"),
        (["--image-files", "no-such-folder"], "--image-files is not there"),
    ],
)
def test_bad_options_are_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny.write(tmp_path / "a-model.gguf", context=512))
    given = [model if one == "MODEL" else one for one in arguments]
    assert main(["serve", "--port", "0", *given]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_options_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.write(tmp_path / "a-model.gguf", context=512)
    adapter = tiny_lora.write(tmp_path / "adapter.gguf", model)
    made: list[ServerOptions] = []

    def refuse(engine: Engine, options: ServerOptions) -> None:
        made.append(options)
        raise RequestError("Nothing is served here.", "")

    monkeypatch.setattr(server, "Server", refuse)
    arguments = ["serve", "-m", str(model), "--host", "127.0.0.1,::1", "--port", "8123"]
    arguments += ["--key", "k", "--allow-origin", "localhost", "--allow-origin", "http://a.b"]
    arguments += ["--allow-host", "desk", "--slot-save-path", str(tmp_path), "--no-slots"]
    arguments += ["--no-metrics", "-v", "--log-texts", "-a", "one,two", "--tags", "x,y"]
    arguments += ["--ngram", "--pooling", "cls", "-c", "256", "-t", "2", "--memory", "2G"]
    arguments += ["--sleep-idle-seconds", "9", "--keep", "3", "--only", "-n", "7", "-rea", "20"]
    arguments += ["--lora", f"{adapter}:0.5", "--lora-init-without-apply", "--temp", "0.5"]
    arguments += ["--media-path", str(tmp_path)]
    arguments += ["-np", "2", "--chat-template", "chatml", "--device", "cpu"]
    assert main(arguments) == 1
    load = Load(
        model,
        context=256,
        threads=2,
        device="cpu",
        memory_bytes=2_000_000_000,
        embeddings=True,
        template="chatml",
        parallel=2,
    )
    assert made == [
        ServerOptions(
            host="127.0.0.1,::1",
            port=8123,
            security=Security("k", ("localhost", "http://a.b"), ("desk",), image_files=tmp_path),
            service=ServiceOptions(
                keep_seconds=180.0,
                loads=False,
                context=256,
                aliases=("one", "two"),
                tags=("x", "y"),
                main=MainModel(load, None, 9.0),
                adapters=(AdapterUse(adapter, 0.0),),
                keeps_texts=True,
                sampling={"temperature": 0.5},
                max_tokens=7,
                thinking=True,
                thinking_budget=20,
                pooling=Pooling.CLS,
                drafts=DraftKind.LOOKUP,
                shows_slots=False,
                shows_prompts=True,
                saves_slots=True,
                shows_metrics=False,
            ),
        )
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be asked to end there")
def test_a_command_for_llama_server_starts_it(tmp_path: Path) -> None:
    """Its options are known, or named as not needed."""
    model = tiny.write(tmp_path / "a-model.gguf", context=512)
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% for message in messages %}[{{ message.content }}]{% endfor %}", encoding="utf-8"
    )
    arguments = ["serve", "-m", str(model), "--port", "0", "--api-key", "k", "--ctx-size", "256"]
    arguments += ["-np", "2", "-a", "one,two", "--tags", "x,y", "-n", "5", "--temp", "0"]
    arguments += ["--chat-template-file", str(template), "--jinja", "-ngl", "99", "-fa", "on"]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[2]
        with httpx.Client(base_url=address, headers={"Authorization": "Bearer k"}) as http:
            (found,) = http.get("/v1/models").json()["data"]
            props = http.get("/props").json()
            messages = {"messages": [{"role": "user", "content": "hi"}]}
            applied = http.post("/apply-template", json=messages).json()
        assert (found["id"], found["aliases"]) == ("one", ["one", "two"])
        assert found["tags"] == ["x", "y"]
        assert props["total_slots"] == 2
        assert props["default_generation_settings"]["n_ctx"] == 256
        assert props["default_generation_settings"]["params"]["temperature"] == 0
        assert applied == {"prompt": "[hi]"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "Not needed here: --jinja, -ngl, -fa." in process.stderr.read()
    finally:
        process.kill()
        process.communicate()
