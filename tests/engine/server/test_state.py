"""llama.cpp's routes about the server: properties, metrics, slots, adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_lora
from engine.messages import AdapterUse
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from serving import Served, chat

CHAT = "/v1/chat/completions"


def test_properties_name_the_model_and_its_sampling(served: Served) -> None:
    found = served.get("/props")
    settings = found["default_generation_settings"]
    assert settings["n_ctx"] == 2048
    assert {"temperature", "top_k", "repeat_last_n", "dynatemp_range"} <= set(settings["params"])
    assert found["model_alias"] == "tiny-served"


def test_metrics_are_prometheus_text(served: Served) -> None:
    before = served.http.get("/metrics")
    assert before.headers["content-type"].startswith("text/plain; version=0.0.4")
    served.post(CHAT, chat())

    def generated(text: str) -> int:
        name = "tokonoma_generated_tokens_total "
        (line,) = [line for line in text.splitlines() if line.startswith(name)]
        return int(line.removeprefix(name))

    assert generated(served.http.get("/metrics").text) == generated(before.text) + 8


def test_slots_say_what_runs(served: Served) -> None:
    slots = served.get("/slots")
    assert [one["id"] for one in slots] == list(range(16))
    assert not any(one["is_processing"] for one in slots)


@pytest.fixture(scope="module")
def adapted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("adapters")
    paths = [tiny_lora.write(folder / f"{seed}.gguf", tiny_model, seed=seed) for seed in (1, 2)]
    uses = (AdapterUse(paths[0], 0.0), AdapterUse(paths[1], 0.0))
    made = Served(tiny_model, ServerOptions(service=ServiceOptions(adapters=uses)))
    yield made
    made.close()


def text(served: Served, **options: object) -> str:
    body = chat(temperature=0, max_tokens=16, **options)
    return served.post(CHAT, body)["choices"][0]["message"]["content"]


def test_adapters_of_one_request_and_of_the_server(adapted: Served) -> None:
    assert [one["scale"] for one in adapted.get("/lora-adapters")] == [0.0, 0.0]
    plain = text(adapted)
    once = text(adapted, lora=[{"id": 1, "scale": 1.5}])
    assert once != plain
    assert text(adapted) == plain
    adapted.post("/lora-adapters", [{"id": 1, "scale": 1.5}])
    assert adapted.get("/lora-adapters")[1]["scale"] == 1.5
    assert text(adapted) == once
    assert text(adapted, lora=[]) == plain
    adapted.post("/lora-adapters", [])
    assert text(adapted) == plain


def test_an_unknown_adapter_is_refused(adapted: Served) -> None:
    assert adapted.error("/lora-adapters", [{"id": 5, "scale": 1}])["error"]["param"].endswith("id")
    assert adapted.error(CHAT, chat(lora=[{"id": 7}]))["error"]["param"] == "lora[0].id"
    assert adapted.error(CHAT, chat(lora=[{"id": 0, "scale": 50}]))["error"]["param"].endswith(
        "scale"
    )
