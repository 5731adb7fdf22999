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


def test_metrics_have_llamas_names_too(served: Served) -> None:
    def found() -> dict[str, float]:
        response = served.http.get("/metrics")
        assert int(response.headers["Process-Start-Time-Unix"]) > 1_600_000_000
        rows = [one.split() for one in response.text.splitlines() if one.startswith("llamacpp:")]
        return {name.removeprefix("llamacpp:"): float(value) for name, value in rows}

    before = found()
    timings = served.post(CHAT, chat("a question that nobody asked before"))["timings"]
    after = found()
    grown = {name: after[name] - value for name, value in before.items()}
    assert grown["prompt_tokens_total"] == timings["prompt_n"] > 0
    assert grown["prompt_tokens_cached_total"] == timings["cache_n"]
    assert grown["tokens_predicted_total"] == timings["predicted_n"] == 8
    assert grown["n_decode_total"] >= 8
    assert grown["prompt_seconds_total"] == pytest.approx(timings["prompt_ms"] / 1e3)
    assert (after["requests_processing"], after["requests_deferred"]) == (0, 0)
    served.post("/embeddings", {"input": "hello there"})
    embedded = found()
    assert embedded["prompt_tokens_total"] > after["prompt_tokens_total"]
    assert embedded["n_decode_total"] > after["n_decode_total"]
    assert embedded["tokens_predicted_total"] == after["tokens_predicted_total"]


def test_what_a_server_says_holds_unless_a_request_says_otherwise(tiny_model: Path) -> None:
    sampling = {"temperature": 0.0, "top_k": 7, "seed": 5}
    service = ServiceOptions(sampling=sampling, max_tokens=6, shows_prompts=True)
    made = Served(tiny_model, ServerOptions(service=service))
    try:
        params = made.get("/props")["default_generation_settings"]["params"]
        assert (params["temperature"], params["top_k"], params["seed"]) == (0.0, 7, 5)
        first = made.post("/completion", {"prompt": "hello"})
        assert first["tokens_predicted"] == 6
        assert first["generation_settings"]["n_predict"] == 6
        assert made.post("/completion", {"prompt": "hello"})["content"] == first["content"]
        found = made.post("/completion", {"prompt": "hello", "n_predict": 9, "top_k": 2})
        assert found["tokens_predicted"] == 9
        assert found["generation_settings"]["top_k"] == 2
        found = made.post(CHAT, chat(max_tokens=3))
        assert found["usage"]["completion_tokens"] == 3
        assert "hello" in found["__verbose"]["prompt"]
        assert "__verbose" not in made.post(CHAT, chat(verbose=False))
    finally:
        made.close()


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
