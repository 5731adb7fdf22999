"""Several answers at once: their events interleave, and other commands keep the documented order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tiny
import tiny_lora
from engine import (
    AdaptersSet,
    AdapterUse,
    Chat,
    CountTokens,
    Event,
    Failed,
    Finished,
    FinishReason,
    Load,
    ModelLoaded,
    ModelUnloaded,
    Priority,
    PromptProgress,
    Request,
    Restore,
    Save,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    TokensCounted,
    Unload,
)
from engine_bench import (
    AMPLE_BYTES,
    GREEDY,
    SEEDED,
    Bench,
    answer_text,
    turns_of,
    with_printable_output,
)

LONG = 150  # tokens of an answer that others run beside


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return with_printable_output(tiny.write(folder / "one.gguf", context=4096))


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return with_printable_output(tiny.write(folder / "two.gguf", context=4096, seed=5))


@pytest.fixture
def bench(model: Path) -> Iterator[Bench]:
    made = Bench()
    made.load(model)
    yield made
    made.engine.stop()


Numbered = tuple[int, Request]  # the number that its events have, see `Bench.send`


def ask(number: int, question: str, limit: int = LONG, **options: object) -> Numbered:
    made = Chat(turns_of(question), GREEDY, max_tokens=limit)
    return number, replace(made, **options)  # type: ignore[arg-type]


def run(
    bench: Bench,
    *asked: Numbered,
    after: int = 0,
    then: tuple[Numbered, ...] = (),
    cut: type | None = None,
    stops: int = 0,
    background: int = 0,
) -> list[Event]:
    """Send requests; returns all events up to the final one of each.

    `then` are sent, and the request `stops` cancelled, once the request `after` has generated two
    tokens. With `cut` the tokens come slowly, and an event of that class cancels the request `after`; the request `background` yields.
    """
    waiting = {number for number, _ in (*asked, *then)}
    left = list(then)

    def react(event: Event) -> None:
        is_due = isinstance(event, Text) and event.generated_tokens == 2
        if is_due and event.request == after:
            for number, request in left:
                bench.send(number, request)
            left.clear()
            bench.cancel(stops)
        if cut is not None and isinstance(event, cut):
            bench.cancel(after)
        elif cut is not None and isinstance(event, Text):
            time.sleep(0.002)

    bench.react = react
    for number, request in asked:
        priority = Priority.BACKGROUND if number == background else Priority.NORMAL
        bench.send(number, request, priority=priority)
    events: list[Event] = []
    while waiting:
        events += bench.until(
            Finished, Failed, AdaptersSet, ModelLoaded, ModelUnloaded, SnapshotLoaded,
            SnapshotSaved, TokensCounted,
        )  # fmt: skip
        if getattr(events[-1], "last", True):
            waiting.discard(events[-1].request)
    return events


def of(events: list[Event], request: int) -> list[Event]:
    return [event for event in events if event.request == request]


def end(events: list[Event], request: int) -> int:
    """Index of the last event of a request."""
    return max(at for at, event in enumerate(events) if event.request == request)


def begin(events: list[Event], request: int) -> int:
    return next(at for at, event in enumerate(events) if event.request == request)


def alone(model: Path, *asked: Numbered) -> list[Event]:
    """The events of requests sent one after another to an engine of their own."""
    bench, events = Bench(), list[Event]()
    bench.load(model)
    for one in asked:
        events += run(bench, one)
    bench.engine.stop()
    return events


def test_events_of_two_answers_interleave(bench: Bench, model: Path) -> None:
    asked = [ask(2, "first"), ask(3, "second " * 40), ask(4, "third", sampling=SEEDED)]
    events = run(bench, *asked)
    texts = [event.request for event in events if isinstance(event, Text)]
    switches = sum(one != other for one, other in itertools.pairwise(texts))
    assert switches > 2 * LONG
    for number, request in asked:
        own = of(events, number)
        wanted = alone(model, (9, request))
        assert answer_text(own) == answer_text(wanted)
        assert [event.generated_tokens for event in own if isinstance(event, Text)] == [
            event.generated_tokens for event in wanted if isinstance(event, Text)
        ]
        assert isinstance(own[0], PromptProgress)
        assert isinstance(own[-1], Finished)
        assert sum(isinstance(event, Finished) for event in own) == 1


def test_several_answers_have_events_of_their_own(bench: Bench) -> None:
    events = run(bench, ask(2, "hello", 30, answers=3, sampling=SEEDED), ask(3, "other", 60))
    finished = [event for event in of(events, 2) if isinstance(event, Finished)]
    assert sorted(event.answer for event in finished) == [0, 1, 2]
    assert [event.last for event in finished] == [False, False, True]
    assert of(events, 2)[-1] is finished[-1]
    texts = {
        number: "".join(e.text for e in of(events, 2) if isinstance(e, Text) and e.answer == number)
        for number in range(3)
    }
    assert len(set(texts.values())) == 3
    assert isinstance(of(events, 3)[-1], Finished)


def test_the_last_event_of_cancelled_answers_is_marked(bench: Bench) -> None:
    asked = ask(2, "hello", answers=3, sampling=SEEDED)
    events = run(bench, asked, after=2, stops=2)
    own = of(events, 2)
    finished = [event for event in own if isinstance(event, Finished)]
    assert [event.last for event in finished] == [False, False, True]
    assert {event.reason for event in finished} == {FinishReason.CANCELLED}
    assert own[-1] is finished[-1]


def test_cancelling_one_answer_leaves_the_other_whole(bench: Bench, model: Path) -> None:
    events = run(bench, ask(2, "first"), ask(3, "second"), after=3, stops=2)
    cut, whole = of(events, 2), of(events, 3)
    assert isinstance(cut[-1], Finished)
    assert cut[-1].reason is FinishReason.CANCELLED
    assert isinstance(whole[-1], Finished)
    assert whole[-1].reason is FinishReason.LENGTH
    assert answer_text(whole) == answer_text(alone(model, ask(3, "second")))


def test_a_failed_request_leaves_the_other_whole(bench: Bench, model: Path) -> None:
    then = (ask(3, "too long " * 4_000), ask(4, ""), ask(5, "x", max_tokens=-1))
    events = run(bench, ask(2, "first"), after=2, then=then)
    assert isinstance(of(events, 3)[-1], Failed)
    assert isinstance(of(events, 5)[-1], Failed)
    assert answer_text(of(events, 2)) == answer_text(alone(model, ask(2, "first")))


def test_stopping_ends_every_answer(model: Path) -> None:
    bench = Bench()
    bench.load(model)
    for request in (2, 3, 4):
        bench.send(*ask(request, f"question {request}", 0))
    started = {2, 3, 4}
    while started:
        (*_, event) = bench.until(Text)
        started.discard(event.request)
    bench.engine.stop()
    events: list[Event] = []
    while not bench.events.empty():
        events.append(bench.events.get())
    finished = [event for event in events if isinstance(event, Finished)]
    assert sorted(event.request for event in finished) == [2, 3, 4]
    assert {event.reason for event in finished} == {FinishReason.CANCELLED}


# --- order --------------------------------------------------------------------------------------


def test_a_model_is_loaded_after_the_answers_before(
    bench: Bench, model: Path, other_model: Path
) -> None:
    then = ((4, Load(other_model)), ask(5, "first"))
    events = run(bench, ask(2, "first"), ask(3, "second", LONG + 40), after=2, then=then)
    for request in (2, 3):
        last = of(events, request)[-1]
        assert isinstance(last, Finished)
        assert last.reason is FinishReason.LENGTH
        assert end(events, request) < begin(events, 4)
    assert end(events, 4) < begin(events, 5)
    assert answer_text(of(events, 2)) == answer_text(alone(model, ask(2, "first")))
    assert answer_text(of(events, 5)) == answer_text(alone(other_model, ask(5, "first")))


def test_a_model_is_unloaded_after_the_answers_before(bench: Bench) -> None:
    events = run(bench, ask(2, "first"), after=2, then=((3, Unload()), ask(4, "second")))
    assert end(events, 2) < begin(events, 3)
    last = of(events, 2)[-1]
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.LENGTH
    assert isinstance(of(events, 4)[-1], Failed), "no model is loaded"


def test_tokens_are_counted_between_passes(bench: Bench) -> None:
    events = run(bench, ask(2, "first"), after=2, then=((3, CountTokens("one two three")),))
    assert end(events, 3) < end(events, 2)
    assert sum(isinstance(event, Text) for event in events[end(events, 3) :]) > LONG // 2


def test_adapters_apply_to_the_answers_after_them(
    bench: Bench, model: Path, tmp_path: Path
) -> None:
    use = AdapterUse(tiny_lora.write(tmp_path / "leaf.gguf", model))
    then = ((3, SetAdapters((use,))), ask(4, "first"), ask(5, "first", adapters=()))
    events = run(bench, ask(2, "first"), after=2, then=then)
    assert end(events, 3) < end(events, 2)
    plain = answer_text(alone(model, ask(2, "first")))
    changed = answer_text(alone(model, ask(2, "first", adapters=(use,))))
    assert plain != changed
    found = [answer_text(of(events, request)) for request in (2, 4, 5)]
    assert found == [plain, changed, plain]
    again = run(bench, ask(6, "first"), ask(7, "first", adapters=()))
    for request in (6, 7):
        last = of(again, request)[-1]
        assert isinstance(last, Finished)
        assert last.reused_tokens == last.prompt_tokens - 1, "texts of both stacks stay cached"


def test_a_conversation_is_saved_after_its_answer(bench: Bench) -> None:
    then = ((4, Save("one", AMPLE_BYTES, answer=3)), (5, CountTokens("these words")))
    events = run(bench, ask(3, "hello " * 60, conversation="one"), after=3, then=then)
    saved = of(events, 4)[-1]
    assert isinstance(saved, SnapshotSaved)
    assert saved.tokens > LONG
    assert end(events, 3) < begin(events, 4)
    assert end(events, 5) < end(events, 3), "requests after a save need not wait for it"


def test_a_conversation_is_saved_while_another_is_answered(bench: Bench) -> None:
    run(bench, ask(2, "a first text " * 30, 3, conversation="two"))
    endless = ask(3, "hello", 0, conversation="one")
    then = ((4, Save("two", AMPLE_BYTES, answer=2)),)
    events = run(bench, endless, after=3, then=then, cut=SnapshotSaved)
    assert end(events, 4) < end(events, 3)
    last = of(events, 3)[-1]
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.CANCELLED


def test_a_conversation_is_restored_before_it_is_answered(bench: Bench, model: Path) -> None:
    question = "a text to restore " * 60
    run(bench, ask(2, question, 3, conversation="one"))
    run(bench, (3, Save("one", AMPLE_BYTES, answer=2)))
    run(bench, (4, Load(model)))
    then = (
        (6, Restore(turns_of(question), "one")),
        ask(7, question, 3, conversation="one"),
        (8, CountTokens("words")),
    )
    events = run(bench, ask(5, "hello", 0), after=5, then=then, cut=SnapshotLoaded)
    restored = of(events, 6)[-1]
    assert isinstance(restored, SnapshotLoaded)
    assert restored.restored_tokens > 0
    assert end(events, 6) < begin(events, 7)
    assert end(events, 6) < end(events, 5), "the answer in progress goes on"
    last = of(events, 7)[-1]
    assert isinstance(last, Finished)
    assert last.reused_tokens >= restored.ready_tokens
    text = answer_text(of(events, 5))
    most = sum(isinstance(event, Text) for event in of(events, 5))
    assert text == answer_text(alone(model, ask(5, "hello", most)))


def test_background_answers_come_last(bench: Bench) -> None:
    slow = ask(2, "a long prompt " * 150, 2)
    quick = [ask(request, f"number {request} " * 100, 2) for request in (3, 4)]
    events = run(bench, slow, *quick, background=2)
    assert end(events, 2) > max(end(events, 3), end(events, 4))


def test_the_same_requests_give_the_same_texts_in_any_interleaving(
    bench: Bench, model: Path
) -> None:
    """A conversation answered twice at once, and once more from what is cached."""
    asked: list[Callable[[int], Numbered]] = [
        lambda request: ask(request, "hello there " * 30, 40, sampling=SEEDED)
    ] * 3
    first = run(bench, *(make(2 + at) for at, make in enumerate(asked[:2])))
    third = run(bench, asked[2](4))
    texts = {answer_text(of([*first, *third], request)) for request in (2, 3, 4)}
    assert texts == {answer_text(alone(model, asked[0](9)))}
