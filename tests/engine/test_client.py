"""The engine's door: several clients, priorities, limits, deadlines, and several models at once."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine import (
    ApplyTemplate,
    Busy,
    Chat,
    Complete,
    CountTokens,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Engine,
    Event,
    Failed,
    Finished,
    FinishReason,
    Limits,
    Load,
    LoadProgress,
    Metrics,
    MetricsRead,
    ModelLoaded,
    ModelUnloaded,
    Priority,
    Request,
    RequestHandle,
    Restore,
    Save,
    SnapshotLoaded,
    SnapshotSaved,
    TemplateApplied,
    Text,
    Tokenize,
    Tokenized,
    TokensCounted,
    Unload,
)
from engine.loading import placement
from engine.loading.memory import MemoryPlan
from engine_bench import (
    AMPLE_BYTES,
    GREEDY,
    SEEDED,
    TIMEOUT_SECONDS,
    Bench,
    answer_text,
    finished,
    turns_of,
    with_printable_output,
)

NOT_LAST = (LoadProgress, Text)
LONG = 20  # tokens


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return tuple(
        with_printable_output(
            tiny.write(folder / f"{name}.gguf", architecture=name, context=2048, seed=seed)
        )
        for seed, name in enumerate(("llama", "qwen3", "gemma3"))
    )  # type: ignore[return-value]


@pytest.fixture
def bench(models: tuple[Path, ...]) -> Iterator[Bench]:
    made = Bench()
    made.load(models[0])
    yield made
    made.engine.stop()


def ended(bench: Bench, *numbers: int) -> dict[int, list[Event]]:
    """All events up to the final ones of these requests, by the number of the request."""
    found: defaultdict[int, list[Event]] = defaultdict(list)
    left = set(numbers)
    while left:
        event = bench.events.get(timeout=TIMEOUT_SECONDS)
        found[event.request].append(event)
        if isinstance(event, Finished | Failed | ModelLoaded | ModelUnloaded | TokensCounted):
            left.discard(event.request)
    return found


def slow(bench: Bench) -> None:
    """Let tokens and tensors come slowly, so that an answer goes on until it is cancelled."""
    seconds = {Text: 0.002, LoadProgress: 0.02}
    bench.react = lambda event: time.sleep(seconds.get(type(event), 0.0))


def when(bench: Bench, number: int, kind: type, do: Callable[[], object], tokens: int = 2) -> None:
    """Do something once, on the engine's thread, at an event of a request."""
    done: list[bool] = []

    def react(event: Event) -> None:
        is_due = getattr(event, "generated_tokens", tokens) >= tokens
        if event.request == number and isinstance(event, kind) and is_due and not done:
            done.append(True)
            do()

    bench.react = react


# --- ids and events -----------------------------------------------------------------------------


def test_requests_of_many_threads_have_ids_and_events_of_their_own(
    models: tuple[Path, ...],
) -> None:
    engine = Engine()
    engine.start()
    events: dict[int, list[Event]] = {}
    handles: list[RequestHandle] = []
    over = threading.Semaphore(0)

    def submit(request: Request, client: str, *, cancels: bool) -> None:
        own: list[Event] = []

        def deliver(event: Event) -> None:
            own.append(event)
            if is_final(event):
                over.release()

        handle = engine.submit(request, deliver, client=client)
        events[handle.id] = own
        handles.append(handle)
        if cancels:
            handle.cancel()

    submit(Load(models[0]), "", cancels=False)

    def client(seed: int) -> None:
        chance = random.Random(seed)
        for number in range(25):
            asked = chance.choice(
                (
                    Chat(
                        turns_of(f"{seed} says {number}"), GREEDY, max_tokens=chance.randint(1, 6)
                    ),
                    Complete(f"{seed} {number}", GREEDY, max_tokens=3),
                    CountTokens("one two"),
                    Metrics(),
                    Embed(("one",)),
                    Tokenize("one two"),
                )
            )
            submit(asked, f"client {seed}", cancels=chance.random() < 0.3)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in handles:
        assert over.acquire(timeout=TIMEOUT_SECONDS)
    engine.stop()
    assert len({handle.id for handle in handles}) == len(handles) == 6 * 25 + 1
    for handle in handles:
        own = events[handle.id]
        assert {event.request for event in own} == {handle.id}
        assert [is_final(event) for event in own] == [False] * (len(own) - 1) + [True]


def is_final(event: Event) -> bool:
    if isinstance(event, Finished):
        return event.last
    kinds = (ModelLoaded, Failed, TokensCounted, MetricsRead, Embedded, Tokenized)
    return isinstance(event, kinds)


def test_a_client_that_goes_away_leaves_nothing_behind(bench: Bench) -> None:
    when(bench, 4, Text, lambda: bench.engine.leave("gone"), tokens=5)
    for number in (2, 3):
        asked = Chat(turns_of(f"client {number}"), GREEDY, stop_loops=False)
        bench.send(number, asked, client="gone")
    bench.send(4, Chat(turns_of("stays"), GREEDY, max_tokens=60), client="stays")
    bench.send(5, Embed(("a text",) * 200), client="gone")
    found = ended(bench, 2, 3, 4)
    assert finished(found[2]).reason is finished(found[3]).reason is FinishReason.CANCELLED
    assert finished(found[4]).reason is FinishReason.LENGTH
    bench.react = lambda event: None
    bench.expect(6, CountTokens("x"), TokensCounted)
    scheduler = bench.engine._loop._residents.main.session._scheduler
    assert not scheduler.sequences
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


# --- the queue ----------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_goes_on(models: tuple[Path, ...]) -> None:
    engine = Engine(limits=Limits(requests=3, per_client=2))
    arrived: queue.Queue[Event] = queue.Queue()

    def ask(client: str) -> None:
        engine.submit(CountTokens("one two"), arrived.put, client=client)

    engine.submit(Load(models[0]), arrived.put)
    for client in ("a", "a", "b"):
        ask(client)
    for client in ("a", "b", "c"):
        with pytest.raises(Busy) as refused:
            ask(client)
        assert refused.value.retry_after > 0
    ask("")  # the program itself
    engine.start()
    counted = 0
    while counted < 4:
        counted += isinstance(arrived.get(timeout=TIMEOUT_SECONDS), TokensCounted)
    ask("a")
    assert isinstance(arrived.get(timeout=TIMEOUT_SECONDS), TokensCounted)
    engine.stop()


def test_a_request_that_waits_beyond_its_deadline_fails(
    bench: Bench, models: tuple[Path, ...]
) -> None:
    slow(bench)
    bench.send(2, Chat(turns_of("hello"), GREEDY, stop_loops=False))
    bench.until(Text)
    bench.send(3, Unload())
    bench.send(4, Chat(turns_of("late"), GREEDY), deadline=0.0)
    found = ended(bench, 4)
    assert found[4][-1].message == "The request waited too long to begin."
    assert len(found[4]) == 1
    bench.cancel(2)
    ended(bench, 3)


def test_an_answer_that_has_begun_outlives_its_deadline(bench: Bench) -> None:
    bench.expect(2, CountTokens("x"), TokensCounted)  # the model is warm
    when(bench, 3, Text, lambda: setattr(bench.handles[3], "deadline", 0.0))
    asked = Chat(turns_of("hello"), GREEDY, max_tokens=400, stop_loops=False)
    bench.send(3, asked, deadline=30.0)
    assert finished(ended(bench, 3)[3]).reason is FinishReason.LENGTH


def test_a_cancelled_request_ends_though_others_hold_it_up(bench: Bench) -> None:
    slow(bench)
    bench.send(2, Chat(turns_of("hello"), GREEDY, stop_loops=False))
    bench.until(Text)
    bench.send(3, Unload())
    bench.send(4, Chat(turns_of("waits"), GREEDY))
    bench.cancel(4)
    found = ended(bench, 4)
    assert finished(found[4]).reason is FinishReason.CANCELLED
    assert not any(isinstance(event, Finished) for event in found[2])
    bench.cancel(2)
    ended(bench, 3)


def test_the_window_is_answered_before_the_clients_that_came_first(bench: Bench) -> None:
    for number in (2, 3, 4):
        text = f"a long question of client {number} " * 30
        bench.send(number, Chat(turns_of(text), GREEDY, max_tokens=2), client=f"{number}")
    bench.send(
        5, Chat(turns_of("a question " * 30), GREEDY, max_tokens=1), priority=Priority.WINDOW
    )
    order: list[int] = []
    while len(order) < 4:
        event = bench.events.get(timeout=TIMEOUT_SECONDS)
        assert not isinstance(event, Failed), event
        if isinstance(event, Finished):
            order.append(event.request)
    assert order.index(5) <= 1, "at most the one that was being read"


# --- several models -----------------------------------------------------------------------------


def alone(path: Path, request: Request, **options: Any) -> str:
    bench = Bench()
    bench.load(path)
    bench.send(2, request, **options)
    text = answer_text(bench.until(Finished, Failed))
    bench.engine.stop()
    return text


def test_models_together_give_the_bits_that_they_give_alone(
    bench: Bench, models: tuple[Path, ...]
) -> None:
    asked = {
        2 + at: Chat(turns_of(f"question {at}"), sampling, max_tokens=40, model=model, answers=1)
        for at, (model, sampling) in enumerate(itertools.product(models[:2], (GREEDY, SEEDED)))
    }
    loaded = bench.expect(9, Load(models[1], beside=True), ModelLoaded)
    assert loaded.beside
    for number, request in asked.items():
        bench.send(number, request)
    found = ended(bench, *asked)
    assert [one.path for one in bench.engine.resident] == list(models[:2])
    for number, request in asked.items():
        assert answer_text(found[number]) == alone(request.model or models[0], request)


def test_answers_go_on_while_a_model_is_loaded_beside(
    bench: Bench, models: tuple[Path, ...]
) -> None:
    seen: list[tuple[int, type]] = []
    slow(bench)
    bench.send(2, Chat(turns_of("hello"), GREEDY, stop_loops=False))
    bench.until(Text)
    bench.send(3, Load(models[1], beside=True))
    bench.send(4, Chat(turns_of("a second one"), GREEDY, max_tokens=3))
    while (3, ModelLoaded) not in seen:
        event = bench.events.get(timeout=TIMEOUT_SECONDS)
        assert not isinstance(event, Failed), event
        seen.append((event.request, type(event)))
    begun, done = seen.index((3, LoadProgress)), seen.index((3, ModelLoaded))
    assert (2, Text) in seen[begun:done]
    bench.cancel(2)
    text = answer_text(ended(bench, 2)[2])
    assert text


def test_a_load_that_is_cancelled_leaves_the_others(bench: Bench, models: tuple[Path, ...]) -> None:
    when(bench, 3, LoadProgress, lambda: bench.cancel(3))
    bench.send(3, Load(models[1], beside=True))
    (event,) = (one for one in ended(bench, 3)[3] if not isinstance(one, LoadProgress))
    assert event == ModelUnloaded(3, 0, event.resident_bytes, models[1])
    assert [one.path for one in bench.engine.resident] == [models[0]]
    assert finished(bench.generate(4, "hello", max_tokens=2)).generated_tokens == 2


def test_a_model_that_is_there_is_not_loaded_again(bench: Bench, models: tuple[Path, ...]) -> None:
    first = bench.expect(2, Load(models[1], beside=True), ModelLoaded)
    bench.send(3, Load(models[1], beside=True))
    bench.send(4, Load(models[0], beside=True))
    again = ended(bench, 3, 4)
    assert [type(event) for event in again[3] + again[4]] == [ModelLoaded, ModelLoaded]
    assert again[3][0].seconds == first.seconds
    assert not again[4][0].beside


def test_requests_name_their_model(bench: Bench, models: tuple[Path, ...]) -> None:
    failed = bench.expect(2, CountTokens("x", models[1]), Failed)
    assert failed.message == "The model qwen3.gguf is not loaded."
    bench.expect(3, Load(models[1], beside=True), ModelLoaded)
    assert bench.expect(4, Metrics(models[1]), MetricsRead).path == models[1]
    assert bench.expect(5, Metrics(), MetricsRead).path == models[0]
    unloaded = bench.expect(6, Unload(models[1]), ModelUnloaded)
    assert unloaded.path == models[1]
    assert [one.path for one in bench.engine.resident] == [models[0]]
    assert finished(bench.generate(7, "hello", max_tokens=2)).generated_tokens == 2


def test_the_main_model_is_swapped_and_those_beside_it_stay(
    bench: Bench, models: tuple[Path, ...]
) -> None:
    bench.expect(2, Load(models[1], beside=True), ModelLoaded)
    beside = Chat(turns_of("hello"), GREEDY, max_tokens=300, model=models[1])
    bench.send(3, beside)
    bench.send(4, Chat(turns_of("main"), GREEDY, max_tokens=30))
    bench.send(5, Load(models[2]))
    bench.send(6, Chat(turns_of("main"), GREEDY, max_tokens=30))
    found = ended(bench, 3, 4, 5, 6)
    assert [one.path for one in bench.engine.resident] == [models[2], models[1]]
    assert finished(found[4]).reason is FinishReason.LENGTH
    assert answer_text(found[4]) == alone(models[0], Chat(turns_of("main"), GREEDY, max_tokens=30))
    assert answer_text(found[6]) == alone(models[2], Chat(turns_of("main"), GREEDY, max_tokens=30))
    assert answer_text(found[3]) == alone(models[1], Chat(beside.turns, GREEDY, max_tokens=300))


def test_a_model_beside_becomes_the_main_one(bench: Bench, models: tuple[Path, ...]) -> None:
    bench.expect(2, Load(models[1], beside=True), ModelLoaded)
    bench.expect(3, Load(models[1]), ModelLoaded)
    assert [(one.path, one.beside) for one in bench.engine.resident] == [(models[1], False)]


def test_the_model_that_was_idle_longest_makes_room_and_the_main_one_stays(
    models: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 0

    def available() -> int:
        return total - sum(one.session.memory_bytes for one in bench.engine._loop._residents)

    # What a tiny model adds to the memory of the process is chance.
    monkeypatch.setattr(MemoryPlan, "with_weights", lambda plan, measured_bytes: plan)
    bench = Bench()
    needs: list[int] = []
    for path in models:
        bench.send(9, Load(path, context=2048))
        needs += [
            one.memory_bytes for one in bench.until(ModelLoaded) if isinstance(one, ModelLoaded)
        ]
    main, second, third = needs
    monkeypatch.setattr(placement, "available_memory", available)
    total = int(1.1 * (main + max(second, third)) / 0.9)  # for two of them, not for three
    assert total < sum(needs)
    bench.send(1, Load(models[0], context=2048))
    bench.until(ModelLoaded)
    for number, path in ((2, models[1]), (3, models[2])):
        bench.send(number, Load(path, context=2048, beside=True))
        seen = bench.until(ModelLoaded, Failed)
        assert isinstance(seen[-1], ModelLoaded), seen[-1]
        unloaded = [event for event in seen if isinstance(event, ModelUnloaded)]
        assert [(one.request, one.path) for one in unloaded] == [(0, models[1])] * (number == 3)
        assert finished(bench.generate(10 + number, "hello", max_tokens=2, model=path))
    assert [one.path for one in bench.engine.resident] == [models[0], models[2]]
    bench.send(4, Load(models[1], context=1 << 20, beside=True))
    seen = bench.until(ModelLoaded, Failed)
    assert isinstance(seen[-1], Failed)
    assert [one.path for one in bench.engine.resident] == [models[0]], "not for want of trying"
    bench.engine.stop()


# --- texts and snapshots ------------------------------------------------------------------------


def test_a_prompt_of_ids_continues_as_its_text_does(bench: Bench) -> None:
    text = "the quick brown fox"
    tokens = bench.expect(2, Tokenize(text, adds_special=True, with_pieces=True), Tokenized)
    joined = "".join(tokens.pieces).encode("latin-1").decode()
    assert joined.endswith(text.replace(" ", "\N{LOWER ONE EIGHTH BLOCK}")) or text in joined
    assert text in bench.expect(3, Detokenize(tokens.ids), Detokenized).text
    bench.send(4, Complete(text, GREEDY, max_tokens=20))
    from_text = bench.until(Finished, Failed)
    bench.send(5, Complete(tokens.ids, GREEDY, max_tokens=20))
    from_ids = bench.until(Finished, Failed)
    assert finished(from_text).prompt_tokens == finished(from_ids).prompt_tokens == len(tokens.ids)
    assert answer_text(from_text) == answer_text(from_ids) != ""
    assert finished(from_ids).reused_tokens == len(tokens.ids) - 1
    for number, wrong in ((6, (1 << 30,)), (7, (-1,))):
        assert "has no token" in bench.expect(number, Complete(wrong), Failed).message
        assert "has no token" in bench.expect(number, Detokenize(wrong), Failed).message
    assert bench.expect(8, Complete(""), Failed).message == "The prompt is empty."


def test_an_applied_template_is_the_prompt_of_a_chat(bench: Bench) -> None:
    turns = turns_of("hello", "hi", "and now?")
    applied = bench.expect(2, ApplyTemplate(turns), TemplateApplied)
    assert "and now?" in applied.text
    assert finished(bench.generate(3, "hello", "hi", "and now?", max_tokens=1)).prompt_tokens == (
        applied.tokens
    )


def test_a_snapshot_is_saved_of_the_turns_that_are_given(
    bench: Bench, models: tuple[Path, ...]
) -> None:
    one, two = "the first client says this " * 30, "the second client says that " * 30
    bench.generate(2, one, max_tokens=2, conversation="1")
    bench.generate(3, two, max_tokens=2, conversation="1")  # another client's chat of that name
    refused = bench.expect(4, Save("1", AMPLE_BYTES), Failed)
    assert refused.message == "It is not said which text is to be saved."
    assert bench.expect(5, Save("1", AMPLE_BYTES, turns=turns_of(one)), SnapshotSaved).tokens
    bench.load(models[0], request=6)
    for number, text in ((7, one), (8, two)):
        found = bench.expect(number, Restore(turns_of(text), "1"), SnapshotLoaded)
        assert (found.restored_tokens > 100) is (text is one)


def test_a_client_of_another_model_frees_its_pages_during_a_pass(
    bench: Bench, models: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled answer does not wait for the end of a pass of the other model."""
    bench.expect(2, Load(models[1], beside=True), ModelLoaded)
    main, beside = (one.session._scheduler for one in bench.engine._loop._residents)
    step, in_pass = main.runner.step, list[bool]()

    def watched(rows: Any, checkpoint: Callable[[], None]) -> Any:
        is_cancelling = bool(beside.sequences) and bool(main.sequences) and not in_pass
        if is_cancelling:
            bench.cancel(3)
        found = step(rows, checkpoint)
        if is_cancelling:
            in_pass.append(not beside.sequences)
        return found

    monkeypatch.setattr(main.runner, "step", watched)
    bench.send(3, Chat(turns_of("beside"), GREEDY, stop_loops=False, model=models[1]))
    bench.until(Text)
    bench.send(4, Chat(turns_of("a question " * 30), GREEDY, max_tokens=2))
    found = ended(bench, 3, 4)
    assert in_pass == [True]
    assert finished(found[3]).reason is FinishReason.CANCELLED
    assert finished(found[4]).generated_tokens == 2


@pytest.mark.parametrize("passes", [1, 2], ids=["queued", "begun"])
@pytest.mark.parametrize("beside", [False, True], ids=["same model", "another model"])
def test_what_is_cancelled_does_not_wait_for_a_pass_over_given_texts(
    bench: Bench,
    models: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
    beside: bool,
    passes: int,
) -> None:
    """An answer and a request that waits for its turn have ended before the pass does."""
    bench.expect(2, Load(models[1], beside=True), ModelLoaded)
    texts, other = (one.session for one in bench.engine._loop._residents)
    answers, model = (other, models[1]) if beside else (texts, None)
    runner, over, counted = texts._reader._embedder._runner, list[int](), list[int]()
    hidden, in_pass = runner.hidden, list[tuple[list[int], bool]]()

    def watched(batch: Any, checkpoint: Callable[[], None]) -> Any:
        is_long = len(batch[0].tokens) > LONG  # of request 5
        counted.extend([1] * is_long)
        is_cancelling = is_long and len(counted) == passes
        if is_cancelling:
            bench.cancel(3)
            bench.cancel(4)
        found = hidden(batch, checkpoint)
        if is_cancelling:
            in_pass.append((sorted(over), bool(answers._scheduler.sequences)))
        return found

    def react(event: Event) -> None:
        if isinstance(event, Finished | Embedded):
            over.append(event.request)
        if isinstance(event, Text) and not bench.handles.keys() & {4, 5}:
            bench.send(5, Embed(("a text " * LONG,) * 40))
            bench.send(4, Embed(("another",) * 40, model=model))

    bench.react = react
    monkeypatch.setattr(runner, "hidden", watched)
    bench.send(3, Chat(turns_of("hello"), GREEDY, stop_loops=False, model=model))
    found: defaultdict[int, list[Event]] = defaultdict(list)
    while len(over) < 3:
        event = bench.events.get(timeout=TIMEOUT_SECONDS)
        found[event.request].append(event)
    assert in_pass == [([3, 4], False)]
    assert finished(found[3]).reason is FinishReason.CANCELLED
    assert found[4] == [Embedded(4, (), 0)]
