"""Lists of models in the words of Ollama and LM Studio, and embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import scripted_model
import tiny_encoders
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from serving import Served, chat, wait_until

FILES = ("scripted", "encoder")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("models")
    main = scripted_model.write(folder / "scripted.gguf")
    tiny_encoders.write(folder / "encoder.gguf")
    options = ServerOptions(service=ServiceOptions(folders=lambda: (folder,)))
    made = Served(main, options)
    yield made
    made.close()


def test_a_list_of_models_has_their_facts(served: Served) -> None:
    listed = {one["name"]: one for one in served.get("/api/tags")["models"]}
    main, encoder = (listed[name] for name in FILES)
    assert main["model"] == "scripted"
    assert main["size"] > 0
    assert len(main["digest"]) == 64
    assert main["digest"] != encoder["digest"]
    assert main["details"]["family"] == "llama"
    assert main["details"]["quantization_level"] == "F32"
    assert main["details"]["parameter_size"].endswith("K")
    assert main["capabilities"] == ["completion", "tools", "thinking"]
    assert encoder["capabilities"] == ["embedding"]


def test_only_loaded_models_run(served: Served) -> None:
    (running,) = served.get("/api/ps")["models"]
    assert running["name"] == "scripted"
    assert running["context_length"] == 4096
    assert running["expires_at"] > "2100"  # the window's model stays


def test_a_model_is_kept_as_long_as_its_last_client_says(tmp_path: Path) -> None:
    for name in ("main", "other"):
        scripted_model.write(tmp_path / f"{name}.gguf")
    options = ServerOptions(service=ServiceOptions(folders=lambda: (tmp_path,)))
    served = Served(tmp_path / "main.gguf", options)
    try:
        served.post("/v1/chat/completions", chat(model="other", keep_alive="1h"))
        listed = {one["name"]: one["expires_at"] for one in served.get("/api/ps")["models"]}
        left = datetime.fromisoformat(listed["other"]) - datetime.now(UTC)
        assert 3500 < left.total_seconds() <= 3600
        served.post("/api/chat", {"model": "other", "keep_alive": -1})
        listed = {one["name"]: one["expires_at"] for one in served.get("/api/ps")["models"]}
        assert listed["other"] > "2100"
        served.post("/api/chat", {"model": "other", "keep_alive": 0})
        wait_until(lambda: len(served.get("/api/ps")["models"]) == 1)
    finally:
        served.close()


def test_the_root_says_that_there_is_a_server(served: Served) -> None:
    assert served.http.get("/").text == "Tokonoma is running"


@pytest.mark.parametrize("name", ["model", "name"])
def test_a_model_is_shown(served: Served, name: str) -> None:
    found = served.post("/api/show", {name: "scripted:latest"})
    family = found["model_info"]["general.architecture"]
    assert found["model_info"][f"{family}.context_length"] == 4096
    assert "tools" in found["capabilities"]
    assert served.error("/api/show", {}, 400)["error"].startswith("`model` is missing")
    assert "no model" in served.error("/api/show", {"model": "x"}, 404)["error"]


def test_the_version_is_one_that_programs_can_compare(served: Served) -> None:
    assert all(part.isdecimal() for part in served.get("/api/version")["version"].split("."))


def test_lm_studios_list_has_the_lengths_of_contexts(served: Served) -> None:
    listed = {one["id"]: one for one in served.get("/api/v0/models")["data"]}
    main, encoder = (listed[name] for name in FILES)
    assert main["type"] == "llm"
    assert main["state"] == "loaded"
    assert main["max_context_length"] == main["loaded_context_length"] == 4096
    assert main["capabilities"] == ["tool_use"]
    assert encoder["type"] == "embeddings"
    assert encoder["state"] == "not-loaded"
    assert "loaded_context_length" not in encoder
    assert served.get("/api/v0/models/scripted") == main
    assert served.get("/api/v0/models/")["object"] == "list"


def test_texts_are_embedded(tmp_path: Path) -> None:
    tiny_encoders.write(tmp_path / "encoder.gguf")
    options = ServerOptions(service=ServiceOptions(folders=lambda: (tmp_path,)))
    served = Served(options=options)
    try:
        body = {"model": "encoder", "input": ["the fox", "the dog"]}
        found = served.post("/api/embed", body)
        assert len(found["embeddings"]) == 2
        assert found["prompt_eval_count"] > 0
        (short,) = served.post("/api/embed", body | {"input": "the fox", "dimensions": 2})[
            "embeddings"
        ]
        assert len(short) == 2
        assert math.hypot(*short) == pytest.approx(1.0)
        old = served.post("/api/embeddings", {"model": "encoder", "prompt": "the fox"})
        assert old["embedding"] == found["embeddings"][0]
        assert "`input`" in served.error("/api/embed", {"model": "encoder"})["error"]
        served.post("/api/embed", body | {"keep_alive": 0})
        wait_until(lambda: not served.get("/api/ps")["models"])
    finally:
        served.close()
