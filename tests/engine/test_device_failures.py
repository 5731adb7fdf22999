"""A GPU that fails in the middle of answers: they go on, on the processor, with the same text."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import thinkers
import tiny
import tiny_lora
from engine import (
    AdapterUse,
    Chat,
    CountTokens,
    DeviceFault,
    DevicesFound,
    DraftKind,
    DraftSet,
    Event,
    Failed,
    FindDevices,
    Finished,
    FinishReason,
    Load,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    SetAdapters,
    SetDraft,
    Text,
    TokensCounted,
)
from engine.errors import OutOfMemory
from engine_bench import (
    GREEDY,
    SEEDED,
    TIMEOUT_SECONDS,
    Bench,
    answer_text,
    turns_of,
    with_printable_output,
)
from fake_gpu import LABEL, FakeGpu
from kernels.backend.refusal import Reason

pytestmark = pytest.mark.sweep

TOKENS = 30
FAULTS = [
    (RuntimeError("CUDA error: an illegal memory access was encountered"), "driver fails"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
]
every_fault = pytest.mark.parametrize(("fault", "kind"), FAULTS)


@pytest.fixture
def bench(gpu: FakeGpu, caplog: pytest.LogCaptureFixture) -> Iterator[Bench]:
    del gpu  # before the engine's thread
    with caplog.at_level(logging.CRITICAL):
        made = Bench()
        yield made
        made.engine.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return with_printable_output(tiny.write(tmp_path / "m.gguf", layers=3, context=600))


@pytest.fixture
def held_at_loads(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that the GPU holds at the beginning of each load that replaces the model on it."""
    from engine import device_failover

    held: list[int] = []
    load = device_failover.load

    def watched(*operands: object, **options: object) -> object:
        held.append(gpu.held)
        return load(*operands, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(device_failover, "load", watched)
    return held


def loaded(bench: Bench, path: Path) -> ModelLoaded:
    event = bench.load(path, 1)
    assert [one.name for one in event.runs_on] == ["cuda"]
    assert event.runs_on[0].label == LABEL
    return event


def asked(number: int, **options: object) -> tuple[int, Chat]:
    options = {"sampling": GREEDY, "max_tokens": TOKENS} | options
    return number, Chat(turns_of("Hello there"), **options)  # type: ignore[arg-type]


def answers(bench: Bench, *requests: tuple[int, Chat]) -> dict[int, list[Event]]:
    """All events of several requests that run together."""
    for number, request in requests:
        bench.send(number, request)
    seen: dict[int, list[Event]] = {number: [] for number, _ in requests}
    seen[0] = []
    left = {number for number, _ in requests}
    while left:
        event = bench.events.get(timeout=TIMEOUT_SECONDS)
        seen.setdefault(event.request, []).append(event)
        if isinstance(event, Failed) or (isinstance(event, Finished) and event.last):
            left.discard(event.request)
    return seen


@every_fault
@pytest.mark.parametrize("after", [0, 50, 200])
def test_an_answer_goes_on_with_the_same_text(
    fault: BaseException, kind: str, after: int, bench: Bench, gpu: FakeGpu, path: Path
) -> None:
    before = loaded(bench, path)
    wanted = answer_text(answers(bench, asked(2))[2])
    gpu.fail(fault, after)
    events = answers(bench, asked(3, conversation="b", sampling=GREEDY))
    assert answer_text(events[3]) == wanted
    (moved,) = events[0]
    assert isinstance(moved, ModelMoved)
    assert [one.name for one in moved.loaded.runs_on] == ["cpu"]
    assert moved.loaded.moved is not None
    assert moved.loaded.moved.fault.value == kind
    assert moved.loaded.moved.text.count(".") == 1
    assert moved.loaded.context == before.context
    assert gpu.held == 0
    finished = events[3][-1]
    assert isinstance(finished, Finished)
    assert finished.generated_tokens == TOKENS
    # The session is one on the processor from here on.
    assert answer_text(answers(bench, asked(4))[4]) == wanted


@pytest.mark.parametrize("fault", [KeyError("blk.0"), IndexError("a row"), ValueError("CUDA")])
def test_a_fault_of_the_program_ends_the_answer_and_moves_nothing(
    fault: Exception, bench: Bench, gpu: FakeGpu, path: Path
) -> None:
    loaded(bench, path)
    wanted = answer_text(answers(bench, asked(2))[2])
    gpu.fail(fault, 50)
    events = answers(bench, asked(3))
    assert events[0] == []
    assert isinstance(events[3][-1], Failed)
    gpu.fault = None
    assert answer_text(answers(bench, asked(4))[4]) == wanted
    assert gpu.held > 0


@pytest.mark.parametrize("after", [60, 200])
def test_a_budget_of_thoughts_holds_across_the_devices(
    after: int, bench: Bench, gpu: FakeGpu, tmp_path: Path
) -> None:
    loaded(bench, thinkers.write(tmp_path / "m.gguf", thinkers.FAMILIES["gpt-oss"], context=600))
    gpu.fail(FAULTS[0][0], after)
    events = answers(bench, asked(2, thinking_budget=TOKENS, max_tokens=5))
    assert isinstance(events[0][0], ModelMoved)
    wanted = f"<think>{thinkers.WORD * TOKENS}</think>{thinkers.WORD * 5}"
    assert answer_text(events[2]) == wanted


def test_the_device_is_free_before_the_processor_has_the_model(
    bench: Bench, gpu: FakeGpu, path: Path, held_at_loads: list[int]
) -> None:
    loaded(bench, path)
    gpu.fail(RuntimeError("CUDA error: unspecified launch failure"), 120)
    answers(bench, asked(2))
    assert held_at_loads == [0]


def test_several_answers_with_seeds_and_adapters_go_on(
    bench: Bench, gpu: FakeGpu, path: Path, tmp_path: Path
) -> None:
    leaf = AdapterUse(tiny_lora.write(tmp_path / "leaf.gguf", path, seed=3), 0.5)
    root = AdapterUse(tiny_lora.write(tmp_path / "root.gguf", path, seed=4), 1.0)

    def commands(first: int) -> list[Chat]:
        return [
            asked(first, sampling=SEEDED),
            asked(first + 1, adapters=(root,), conversation="r"),
            asked(first + 2, sampling=SEEDED, answers=2, conversation="s"),
        ]

    loaded(bench, path)
    bench.send(9, SetAdapters((leaf,)))
    wanted = answers(bench, *commands(10))
    gpu.fail(RuntimeError("CUDA error: device-side assert triggered"), 400)
    found = answers(bench, *commands(20))
    assert any(isinstance(one, ModelMoved) for one in found[0])
    for number in range(3):
        for answer in range(2):
            texts = [
                "".join(
                    one.text for one in events if isinstance(one, Text) and one.answer == answer
                )
                for events in (wanted[10 + number], found[20 + number])
            ]
            assert texts[0] == texts[1]
    gpu.fault = None
    assert answer_text(answers(bench, asked(30, sampling=SEEDED))[30]) == answer_text(wanted[10])


def test_an_answer_does_not_go_on_with_another_adapter(
    bench: Bench, gpu: FakeGpu, path: Path, tmp_path: Path
) -> None:
    """The adapter's file was replaced before the GPU failed."""
    leaf = tiny_lora.write(tmp_path / "leaf.gguf", path, seed=3)
    loaded(bench, path)
    answers(bench, asked(2, adapters=(AdapterUse(leaf),), max_tokens=2))
    other = tiny_lora.write(tmp_path / "other.gguf", path, seed=4)

    def replace_it(event: Event) -> None:
        if isinstance(event, Text) and event.request == 3 and gpu.fault is None:
            other.replace(leaf)
            gpu.fail(FAULTS[0][0])

    bench.react = replace_it
    failed = answers(bench, asked(3, adapters=(AdapterUse(leaf),)))[3][-1]
    assert isinstance(failed, Failed)
    assert failed.message == "The adapter leaf has changed since the answer began."


def test_an_answer_can_be_stopped_while_the_model_moves(
    bench: Bench, gpu: FakeGpu, path: Path
) -> None:
    loaded(bench, path)

    def react(event: Event) -> None:
        if isinstance(event, ModelMoved):
            bench.cancel(2)

    bench.react = react
    gpu.fail(RuntimeError("CUDA error: unknown error"), 60)
    finished = answers(bench, asked(2, max_tokens=300))[2][-1]
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.CANCELLED


def test_without_memory_for_the_processor_the_answer_ends_and_the_engine_goes_on(
    bench: Bench, gpu: FakeGpu, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import device_failover

    def refuse(*operands: object, **options: object) -> object:
        raise OutOfMemory("The model needs 9 GB.", "Close other programs.")

    loaded(bench, path)
    with monkeypatch.context() as patch:
        patch.setattr(device_failover, "load", refuse)
        gpu.fail(RuntimeError("CUDA error: unknown error"), 60)
        events = answers(bench, asked(2))
    failed = events[2][-1]
    assert isinstance(failed, Failed)
    assert failed.message == "The model needs 9 GB."
    assert [type(one) for one in events[0]] == [ModelUnloaded]
    assert gpu.held == 0
    gpu.fault = None
    loaded(bench, path)
    assert answer_text(answers(bench, asked(3))[3])


def test_a_draft_model_on_a_device_that_fails_costs_only_its_help(
    bench: Bench, gpu: FakeGpu, path: Path
) -> None:
    """The model is on the processor, and its draft model on the GPU."""
    bench.send(1, Load(path, device="cpu"))
    bench.until(ModelLoaded)
    wanted = answer_text(answers(bench, asked(2))[2])
    bench.expect(3, SetDraft(path, device="gpu"), DraftSet)
    assert gpu.held > 0
    drafted = answers(bench, asked(4, drafts=DraftKind.MODEL))[4]
    assert answer_text(drafted) == wanted
    gpu.fail(RuntimeError("CUDA error: unknown error"), 30)
    for request in (5, 6):
        events = answers(bench, asked(request, drafts=DraftKind.MODEL))
        assert answer_text(events[request]) == wanted
        assert isinstance(events[request][-1], Finished)
        assert events[0] == []


def test_a_fault_of_a_request_is_no_fault_of_the_device(
    bench: Bench, gpu: FakeGpu, path: Path
) -> None:
    loaded(bench, path)
    bench.send(*asked(2, max_tokens=-1))
    assert isinstance(bench.until(Failed, ModelMoved)[-1], Failed)
    assert gpu.held > 0


def test_a_fault_outside_of_answers_moves_the_model_too(
    bench: Bench, gpu: FakeGpu, path: Path, tmp_path: Path
) -> None:
    """While adapters are prepared."""
    loaded(bench, path)
    leaf = tiny_lora.write(tmp_path / "leaf.gguf", path, seed=3)
    monkey = pytest.MonkeyPatch()

    def fail(*operands: object) -> object:
        raise RuntimeError("CUDA error: unknown error")

    with monkey.context() as patch:
        patch.setattr("engine.adapter_cache.lora.load_adapter", fail)
        bench.send(2, SetAdapters((AdapterUse(leaf),)))
        seen = bench.until(Failed)
    assert any(isinstance(one, ModelMoved) for one in seen)
    assert "runs on the processor now" in seen[-1].remedy  # type: ignore[union-attr]
    assert bench.expect(3, CountTokens("abc"), TokensCounted).request == 3
    assert gpu.held == 0


def test_a_device_that_fails_when_it_is_prepared_is_replaced(
    bench: Bench, path: Path, held_at_loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the load and its check, when steps are captured."""
    from engine.core.runner import Runner

    def fail(self: Runner) -> None:
        if self.is_elsewhere:
            raise RuntimeError("CUDA error: operation not permitted")

    monkeypatch.setattr(Runner, "prepare", fail)
    bench.send(1, Load(path))
    *before, event = bench.until(ModelLoaded, Failed)
    assert isinstance(event, ModelLoaded)
    assert [one.name for one in event.runs_on] == ["cpu"]
    assert event.moved is not None
    assert any(isinstance(one, ModelMoved) for one in before)
    assert held_at_loads == [0]
    assert answer_text(answers(bench, asked(2))[2])


def test_memory_that_is_held_is_the_computers(bench: Bench, gpu: FakeGpu, path: Path) -> None:
    """What the next load may count on: not what the GPU has."""
    on_gpu = loaded(bench, path)
    assert gpu.held > 0
    bench.send(2, Load(path, device="cpu"))
    (*_, on_processor) = bench.until(ModelLoaded)
    assert isinstance(on_processor, ModelLoaded)
    assert on_gpu.held_bytes < on_processor.held_bytes


def test_devices_are_found(bench: Bench, gpu: FakeGpu) -> None:
    (one,) = bench.expect(1, FindDevices(), DevicesFound).devices
    assert (one.name, one.label, one.refusal) == ("cuda", LABEL, None)
    gpu.refuse(Reason.NO_TRITON, "It has none.")
    (one,) = bench.expect(2, FindDevices(), DevicesFound).devices
    assert one.refusal is not None
    assert (one.refusal.fault, one.refusal.text) == (DeviceFault.NO_TRITON, "It has none.")


def test_devices_that_cannot_be_found_are_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[object]:
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr("kernels.devices.found", fail)
    assert bench.expect(1, FindDevices(), DevicesFound).devices == ()


def test_the_choice_of_a_load(bench: Bench, gpu: FakeGpu, path: Path) -> None:
    bench.send(1, Load(path, device="cpu"))
    event = bench.until(ModelLoaded)[-1]
    assert isinstance(event, ModelLoaded)
    assert [one.name for one in event.runs_on] == ["cpu"]
    assert gpu.held == 0
