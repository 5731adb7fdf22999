"""Engine thread: commands, their events, and recovery from failed commands."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tiny
from chosen_backend import ops
from engine import (
    DEFAULT_CACHE,
    Chat,
    CountTokens,
    Event,
    Failed,
    Fault,
    FaultKind,
    FileLook,
    Finished,
    FinishReason,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Role,
    Text,
    Thought,
    TokensCounted,
    Turn,
    Unload,
    inspect_model,
)
from engine.loading.loader import load
from engine_bench import GREEDY, TIMEOUT_SECONDS, Bench, answer_text


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf")


def test_a_load_reports_what_unloading_would_free(bench: Bench, model: Path) -> None:
    predicted = inspect_model(model, 128)
    bench.send(1, Load(model, 128))
    loaded = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(loaded, ModelLoaded)
    assert 0 < loaded.held_bytes <= loaded.memory_bytes - predicted.cache_bytes


def test_a_load_places_layers_on_backends(bench: Bench, model: Path) -> None:
    split = (("torch:cpu", 1), ("reference", 0))
    bench.send(1, Load(model, placement=split))
    loaded = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(loaded, ModelLoaded)
    assert loaded.kernels == "layers 1: torch cpu, 2: reference"
    assert isinstance(bench.generate(2, "hello", max_tokens=8)[-1], Finished)
    bench.send(3, Load(model, backend="torch:cpu"))
    loaded = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(loaded, ModelLoaded)
    assert loaded.kernels == "torch cpu"


def test_a_refused_placement_keeps_the_loaded_model(bench: Bench, model: Path) -> None:
    bench.send(1, Load(model))
    bench.until(ModelLoaded, Failed)
    bench.send(2, Load(model, placement=(("reference", 7), ("torch", 0))))
    failed = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(failed, Failed)
    assert "do not divide the 2 layers" in failed.message
    assert isinstance(bench.generate(3, "hello", max_tokens=8)[-1], Finished)


def test_load_then_answer(bench: Bench, model: Path) -> None:
    bench.send(1, Load(model))
    events = bench.until(ModelLoaded, Failed)
    progress = [event for event in events if isinstance(event, LoadProgress)]
    assert progress
    assert progress[-1].done_bytes == progress[-1].total_bytes
    loaded = events[-1]
    assert isinstance(loaded, ModelLoaded)
    assert (loaded.request, loaded.architecture, loaded.context) == (1, "llama", 256)
    assert not loaded.template
    assert loaded.cache is DEFAULT_CACHE
    assert loaded.resident_bytes > 10_000_000  # torch alone uses more
    assert {loaded.kernels} == set(ops.in_use(["F32"]).values())
    assert loaded.slow == ()
    events = bench.generate(2, "hello", max_tokens=8)
    assert [event.request for event in events] == [2] * len(events)
    assert isinstance(events[0], PromptProgress)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.generated_tokens == 8
    assert answer_text(events)


def test_second_turn_reuses_the_cached_prefix(bench: Bench, model: Path) -> None:
    bench.load(model)
    first = answer_text(bench.generate(2, "hello", max_tokens=6))
    finished = bench.generate(3, "hello", first, "and then", max_tokens=6)[-1]
    assert isinstance(finished, Finished)
    assert finished.reused_tokens > 10


def test_answer_can_be_continued(bench: Bench, model: Path) -> None:
    bench.load(model)
    whole = answer_text(bench.generate(2, "hello", max_tokens=12))
    part = answer_text(bench.generate(3, "hello", max_tokens=5))
    assert whole.startswith(part)
    rest = bench.generate(4, "hello", part, max_tokens=7)
    assert isinstance(rest[-1], Finished)
    assert answer_text(rest)


def test_cancel_stops_an_answer_and_the_next_one_works(bench: Bench, model: Path) -> None:
    bench.load(model)
    bench.react = lambda event: bench.cancel(2) if isinstance(event, Text) else None
    finished = bench.generate(2, "hello")[-1]
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.CANCELLED
    bench.react = lambda event: None
    last = bench.generate(3, "hello", max_tokens=3)[-1]
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.LENGTH


def test_cancel_overtakes_a_queued_request(bench: Bench, model: Path) -> None:
    bench.load(model)
    started, go = threading.Event(), threading.Event()

    def hold(event: Event) -> None:
        if isinstance(event, PromptProgress) and event.request == 6:
            started.set()
            assert go.wait(TIMEOUT_SECONDS)

    bench.react = hold
    turns = (Turn(Role.USER, "hello"),)
    bench.send(6, Chat(turns, sampling=GREEDY, max_tokens=2))
    assert started.wait(TIMEOUT_SECONDS)
    bench.send(7, Chat(turns, sampling=GREEDY, max_tokens=2))
    bench.cancel(7)
    go.set()
    ended = [bench.until(Finished)[-1] for _ in range(2)]
    finished = next(event for event in ended if event.request == 7)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.generated_tokens) == (FinishReason.CANCELLED, 0)
    other = next(event for event in ended if event.request == 6)
    assert isinstance(other, Finished)
    assert other.reason is not FinishReason.CANCELLED


def test_cancel_stops_a_load(bench: Bench, model: Path) -> None:
    bench.react = lambda event: bench.cancel(1) if isinstance(event, LoadProgress) else None
    bench.send(1, Load(model))
    assert isinstance(bench.until(ModelLoaded, ModelUnloaded, Failed)[-1], ModelUnloaded)
    bench.react = lambda event: None
    bench.load(model, request=2)


def test_invalid_file_keeps_the_loaded_model(bench: Bench, model: Path, tmp_path: Path) -> None:
    bench.load(model)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model at all")
    bench.send(2, Load(bad))
    failed = bench.until(Failed, ModelLoaded, ModelUnloaded)[-1]
    assert isinstance(failed, Failed)
    assert failed.request == 2
    assert failed.message
    assert failed.remedy
    assert failed.fault == Fault(FaultKind.NOT_A_MODEL, FileLook.TEXT)
    assert isinstance(bench.generate(3, "hello", max_tokens=2)[-1], Finished)


def test_tensor_of_wrong_shape_keeps_the_loaded_model(
    bench: Bench, model: Path, tmp_path: Path
) -> None:
    bench.load(model)
    faulty = tiny.write(tmp_path / "faulty.gguf", metadata={"llama.feed_forward_length": 77})
    bench.send(2, Load(faulty))
    failed = bench.until(Failed, ModelLoaded, ModelUnloaded)[-1]
    assert isinstance(failed, Failed)
    assert "ffn_" in failed.message
    assert isinstance(bench.generate(3, "hello", max_tokens=2)[-1], Finished)


def test_failure_while_loading_weights_reports_the_model_as_unloaded(
    bench: Bench, model: Path, tmp_path: Path
) -> None:
    bench.load(model)
    faulty = tiny.write(tmp_path / "faulty.gguf", metadata={"tokenizer.ggml.token_type": [1]})
    bench.send(2, Load(faulty))
    events = bench.until(Failed)
    assert any(isinstance(event, ModelUnloaded) for event in events)
    assert "token_type" in str(events[-1])
    failed = bench.generate(3, "hello")[-1]
    assert isinstance(failed, Failed)
    assert "No model" in failed.message


def test_generate_without_a_model_fails_with_message_and_remedy(bench: Bench) -> None:
    failed = bench.generate(1, "hello")[-1]
    assert isinstance(failed, Failed)
    assert failed.message == "No model is loaded."
    assert failed.remedy


def test_model_without_template_uses_a_built_in_one(bench: Bench, tmp_path: Path) -> None:
    loaded = bench.load(tiny.write(tmp_path / "base.gguf", template=None))
    assert loaded.template == "ChatML"
    assert isinstance(bench.generate(2, "hello", max_tokens=2)[-1], Finished)


def test_think_tag_at_the_end_of_the_prompt_begins_the_answer(bench: Bench, tmp_path: Path) -> None:
    opens = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<think>\\n' }}"
    bench.load(tiny.write(tmp_path / "thinks.gguf", template=opens))
    events = bench.generate(2, "hello", max_tokens=4)
    texts = [event for event in events if isinstance(event, Thought)]
    assert texts[0].text.startswith("\n")
    assert answer_text(events).startswith("<think>\n")
    assert "<think>" not in "".join(event.text for event in texts)[1:]


def test_a_conversation_longer_than_the_context_fails_with_figures(
    bench: Bench, model: Path
) -> None:
    bench.load(model)
    failed = bench.generate(2, "hello " * 400)[-1]
    assert isinstance(failed, Failed)
    assert "256" in failed.message
    assert failed.fault.kind in (FaultKind.CHAT_FULL, FaultKind.MESSAGE_TOO_LONG)
    assert failed.fault.context > failed.fault.most_context == 256
    assert isinstance(bench.generate(3, "hello", max_tokens=2)[-1], Finished)


@pytest.mark.parametrize(
    "text", ["", "\x00", "مرحبا بالعالم", "你好，世界", "👩‍👩‍👧‍👦" * 5, "<|im_end|>" * 3, "\ud800"]
)
def test_any_text_can_be_a_prompt(bench: Bench, model: Path, text: str) -> None:
    bench.load(model)
    assert isinstance(bench.generate(2, text, max_tokens=2)[-1], Finished)


def test_unload_drops_the_model(bench: Bench, model: Path) -> None:
    bench.load(model)
    bench.send(2, Unload())
    assert isinstance(bench.until(ModelUnloaded)[-1], ModelUnloaded)
    assert isinstance(bench.generate(3, "hello")[-1], Failed)


def test_stop_during_an_answer_ends_the_thread(model: Path) -> None:
    bench = Bench()
    bench.load(model)
    started = threading.Event()
    bench.react = lambda event: started.set() if isinstance(event, Text) else None
    bench.send(2, Chat((Turn(Role.USER, "hello"),), sampling=GREEDY))
    assert started.wait(TIMEOUT_SECONDS)
    bench.engine.stop()
    assert not any(thread.name == "engine" for thread in threading.enumerate())


def test_tokens_of_a_text_are_counted(bench: Bench, model: Path) -> None:
    bench.load(model)
    tokenizer = load(model).tokenizer
    for request, text in enumerate(("", "Hello there", "tea é \U0001f333\n\n" * 500), 2):
        bench.send(request, CountTokens(text))
        (counted,) = bench.until(TokensCounted, Failed)
        assert counted == TokensCounted(request, len(tokenizer.encode(text, add_special=False)))


def test_tokens_cannot_be_counted_without_a_model(bench: Bench) -> None:
    bench.send(1, CountTokens("text"))
    (failed,) = bench.until(TokensCounted, Failed)
    assert isinstance(failed, Failed)


def test_cancelled_count_ends_with_no_tokens(bench: Bench, model: Path) -> None:
    bench.send(1, Load(model))
    bench.send(2, CountTokens("text"))
    bench.cancel(2)
    assert bench.until(TokensCounted, Failed)[-1] == TokensCounted(2, 0)
