"""Open WebUI against the server: the models it finds there, and one answer by its own API.

python open_webui_answer.py ADDRESS MODEL
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time

import requests

BASE, MODEL = f"{sys.argv[1]}/v1", sys.argv[2]
ANSWER = "One two three."
START_SECONDS = 240
# Nothing is downloaded: neither models for search in documents, nor news of versions.
SETTINGS = {
    "OPENAI_API_BASE_URL": BASE,
    "OPENAI_API_KEY": "x",
    "ENABLE_OLLAMA_API": "false",
    "WEBUI_AUTH": "false",
    "WEBUI_SECRET_KEY": "x",
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "RAG_EMBEDDING_ENGINE": "openai",
    "ENABLE_VERSION_UPDATE_CHECK": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "true",
}


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, "Open WebUI ended"
        try:
            if requests.get(f"{url}/health", timeout=5).ok:
                return
        except requests.RequestException:
            time.sleep(0.5)
    raise TimeoutError("Open WebUI does not answer")


with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "wb") as log:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [f"{os.path.dirname(sys.executable)}/open-webui", "serve"]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env=os.environ | SETTINGS | {"DATA_DIR": folder, "HOME": folder},
        stdout=log,
        stderr=log,
    )
    try:
        wait(url, process)
        signed = requests.post(
            f"{url}/api/v1/auths/signin", json={"email": "", "password": ""}, timeout=60
        )
        signed.raise_for_status()
        headers = {"Authorization": f"Bearer {signed.json()['token']}"}
        found = requests.get(f"{url}/api/models", headers=headers, timeout=60).json()
        assert MODEL in [one["id"] for one in found["data"]], found
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
        answer = requests.post(
            f"{url}/api/chat/completions", json=body, headers=headers, timeout=120
        )
        assert answer.json()["choices"][0]["message"]["content"] == ANSWER, answer.text
        with requests.post(
            f"{url}/api/chat/completions",
            json=body | {"stream": True},
            headers=headers,
            stream=True,
            timeout=120,
        ) as streamed:
            lines = [line for line in streamed.iter_lines() if line.startswith(b"data: ")]
        assert b"[DONE]" in lines[-1], lines
        assert any(b"three." in line for line in lines), lines
    except BaseException:
        log.flush()
        with open(f"{folder}/log", "rb") as written:
            sys.stderr.buffer.write(written.read()[-4000:])
        raise
    finally:
        process.terminate()
        process.wait(30)
