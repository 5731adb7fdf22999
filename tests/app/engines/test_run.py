"""Runs: the events of each request, in batches, and the coroutines that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    AnswerUsage,
    Delta,
    EndReason,
    PromptProgressDelta,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
)
from app.engines.local import LocalAnswer, LocalClient, batches
from app.engines.run import RequestFailed, Run, Waiting, start
from engine import (
    CacheType,
    Chat,
    CountTokens,
    Event,
    Failed,
    Finished,
    FinishReason,
    Load,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Text,
    Thought,
    TokensCounted,
    Unload,
)
from engine import ToolCallDelta as ToolCallEvent
from fakes import MODEL, FakeEngine
from stage import reraise


class Link:
    """A client of a fake engine."""

    def __init__(self) -> None:
        self.engines: list[FakeEngine] = []
        self.notices: list[Event] = []
        self.client = LocalClient(self._make, self.notices.append)
        self.engine = self.engines[0]
        self.engine.counts = False

    def _make(self, notify: object) -> FakeEngine:
        self.engines.append(FakeEngine(notify))  # type: ignore[arg-type]
        return self.engines[-1]

    def deliver(self, *events: Event) -> None:
        for event in events:
            self.engine.deliver(event)
        self.client.drain()


@pytest.fixture
def link(qapp: object) -> Iterator[Link]:
    made = Link()
    yield made
    made.client.deleteLater()


def text(request: int, words: str) -> Text:
    return Text(request, words, 1, 1)


def end(request: int) -> Finished:
    return Finished(request, FinishReason.END, 1, 0, 1, 0.1, 0.1, 1)


def test_interleaved_text_of_two_requests_is_two_batches() -> None:
    events = [text(1, "a"), text(2, "x"), text(1, "b"), text(2, "y")]
    assert list(batches(events)) == [
        [text(1, "a"), text(1, "b")],
        [text(2, "x"), text(2, "y")],
    ]


def test_final_event_follows_the_text_before_it() -> None:
    events = [text(1, "a"), text(2, "x"), end(2), text(1, "b"), end(1)]
    assert list(batches(events)) == [
        [text(1, "a")],
        [text(2, "x")],
        [end(2)],
        [text(1, "b")],
        [end(1)],
    ]


def test_prompt_progress_and_text_of_one_request_keep_their_order() -> None:
    read = PromptProgress(1, 4, 4, 0)
    events = [read, text(2, "x"), text(1, "a"), text(2, "y")]
    assert list(batches(events)) == [
        [read],
        [text(2, "x"), text(2, "y")],
        [text(1, "a")],
    ]


# --- what comes of a request ----------------------------------------------------------------------


def test_a_coroutine_goes_on_when_its_result_comes(link: Link) -> None:
    counted: list[int] = []

    async def count(text: str) -> None:
        run = link.client.submit(CountTokens(text))
        counted.append((await run.result(TokensCounted)).tokens)

    start(count("one"), reraise)
    start(count("two"), reraise)
    link.deliver(TokensCounted(2, 22))
    assert counted == [22]
    link.deliver(TokensCounted(1, 11))
    assert counted == [22, 11]


def test_a_request_that_fails_raises_where_it_is_awaited(link: Link) -> None:
    failures: list[Failed] = []

    async def count() -> None:
        try:
            await link.client.submit(CountTokens("one")).result(TokensCounted)
        except RequestFailed as failed:
            failures.append(failed.event)

    start(count(), reraise)
    link.deliver(Failed(1, "No.", "Try."))
    assert failures == [Failed(1, "No.", "Try.")]


def test_an_exception_ends_its_coroutine_only(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = []
    counted: list[int] = []

    async def count(*, fails: bool) -> None:
        result = await link.client.submit(CountTokens("one")).result(TokensCounted)
        if fails:
            raise KeyError("words of the user")
        counted.append(result.tokens)

    def end(error: Exception) -> None:
        errors.append(error)
        raise ValueError

    start(count(fails=True), end)
    start(count(fails=False), reraise)
    link.deliver(TokensCounted(1, 1), TokensCounted(2, 2))
    assert [type(error) for error in errors] == [KeyError]
    assert counted == [2]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_what_came_before_it_is_awaited_is_not_lost() -> None:
    waiting, found = Waiting[int](), list[int]()

    async def read() -> None:
        while len(found) < 3:
            found.append(await waiting)

    waiting.put(1)
    start(read(), reraise)
    waiting.put(2)
    assert found == [1, 2]
    waiting.put(3)
    waiting.put(4)
    assert found == [1, 2, 3]


def test_a_run_may_be_waited_for_within_a_step_of_another(link: Link) -> None:
    order: list[str] = []

    async def count(name: str) -> None:
        run = link.client.submit(CountTokens(name))
        await run.result(TokensCounted)
        order.append(name)
        if name == "first":
            link.deliver(TokensCounted(2, 1))  # what a slot does that processes what has come
            order.append("first ends")

    start(count("first"), reraise)
    start(count("second"), reraise)
    link.deliver(TokensCounted(1, 1))
    assert order == ["first", "second", "first ends"]


def test_events_without_a_request_are_notices(link: Link) -> None:
    link.deliver(ModelUnloaded(0))
    assert link.notices == [ModelUnloaded(0)]
    link.deliver(TokensCounted(99, 1))  # of no one
    assert len(link.notices) == 1


def test_a_failing_load_is_not_over_when_the_model_before_it_is_gone(link: Link) -> None:
    events: list[Event] = []
    load = link.client.submit(Load(MODEL, 0, 0, CacheType.F16))

    async def read(run: Run) -> None:
        async for batch in run:
            events.extend(batch)

    start(read(load), reraise)
    link.deliver(ModelUnloaded(1), Failed(1, "No.", ""))
    assert load.is_over
    assert [type(event) for event in events] == [ModelUnloaded, Failed]
    cancelled = link.client.submit(Load(MODEL, 0, 0, CacheType.F16))
    cancelled.cancel()
    link.deliver(ModelUnloaded(2))
    assert cancelled.is_over
    unload = link.client.submit(Unload())
    link.deliver(ModelUnloaded(3))
    assert unload.is_over
    assert not unload.is_cancelled
    unload.cancel()  # too late
    assert not unload.is_cancelled


def test_a_request_with_several_answers_is_over_with_the_last(link: Link) -> None:
    run = link.client.submit(Chat((), answers=2))
    link.deliver(replace(end(1), answer=1, last=False))
    assert not run.is_over
    link.deliver(end(1))
    assert run.is_over


@pytest.mark.usefixtures("caplog")  # faults are logged
def test_a_result_of_another_kind_is_an_error(link: Link) -> None:
    errors: list[Exception] = []

    async def load() -> None:
        await link.client.submit(CountTokens("one")).result(ModelLoaded)

    start(load(), errors.append)
    link.deliver(TokensCounted(1, 1))
    assert [type(error) for error in errors] == [TypeError]


# --- an answer ------------------------------------------------------------------------------------


def read_answer(link: Link) -> tuple[list[Delta], list[AnswerFailed]]:
    """The deltas of an answer that is asked for, and its failure, as they come."""
    deltas: list[Delta] = []
    failures: list[AnswerFailed] = []

    async def read() -> None:
        try:
            async for delta in LocalAnswer(link.client.submit(Chat(()))).deltas():
                deltas.append(delta)
        except AnswerFailed as failed:
            failures.append(failed)

    start(read(), reraise)
    return deltas, failures


def test_text_that_has_come_together_is_one_delta(link: Link) -> None:
    deltas, failures = read_answer(link)
    link.deliver(PromptProgress(1, 2, 4, 0, 3), Text(1, "Be", 1, 41), Text(1, "cause", 2, 42))
    assert deltas == [PromptProgressDelta(2, 4, 3), TextDelta("Because", 2, 42)]
    link.deliver(Text(1, ".", 3, 43), replace(end(1), reason=FinishReason.LENGTH, seed=5))
    assert deltas[2:4] == [
        TextDelta(".", 3, 43),
        AnswerUsage(prompt_tokens=1, generated_tokens=1, prompt_seconds=0.1, decode_seconds=0.1),
    ]
    assert deltas[4:] == [AnswerEnd(EndReason.LENGTH, seed=5)]
    assert not failures


def test_thoughts_and_calls_are_deltas_of_their_own(link: Link) -> None:
    deltas, _ = read_answer(link)
    link.deliver(
        Thought(1, "H", 1, 41),
        Thought(1, "m.", 2, 42),
        Text(1, "Yes.", 3, 43),
        ToolCallEvent(1, 0, "c1", "time", "{", 4, 44),
        ToolCallEvent(1, 0, "", "", "}", 5, 45),
        ToolCallEvent(1, 1, "c2", "add", "{}", 6, 46),
        end(1),
    )
    assert deltas[:4] == [
        ThoughtDelta("Hm.", 2, 42),
        TextDelta("Yes.", 3, 43),
        ToolCallDelta(0, "c1", "time", "{}", 5, 45),  # pieces that have come together are one
        ToolCallDelta(1, "c2", "add", "{}", 6, 46),
    ]
    assert isinstance(deltas[-1], AnswerEnd)


@pytest.mark.parametrize("reason", FinishReason)
def test_every_reason_to_end_has_its_own(link: Link, reason: FinishReason) -> None:
    deltas, _ = read_answer(link)
    link.deliver(replace(end(1), reason=reason))
    wanted = EndReason.END if reason is FinishReason.STOP else EndReason[reason.name]
    assert deltas[-1] == AnswerEnd(wanted)


def test_an_answer_that_fails_keeps_what_came_before(link: Link) -> None:
    deltas, failures = read_answer(link)
    link.deliver(Text(1, "Be", 1, 41), Failed(1, "Full.", "Start anew.", full=True))
    assert deltas == [TextDelta("Be", 1, 41)]
    assert [(one.error.message, one.error.remedy, one.full) for one in failures] == [
        ("Full.", "Start anew.", True)
    ]


# --- batches --------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.builds(text, st.integers(1, 3), st.text(max_size=2))
    | st.builds(PromptProgress, st.integers(1, 3), st.integers(0, 4), st.just(4), st.just(0))
    | st.builds(
        ToolCallEvent, *(st.integers(1, 3),) * 2, *(st.just(""),) * 3, st.just(1), st.just(1)
    )
    | st.builds(end, st.integers(1, 3))
    | st.builds(TokensCounted, st.integers(4, 5), st.just(1))
)


@given(EVENTS)
def test_batches_keep_every_event_and_the_order_of_each_request(events: list[Event]) -> None:
    made = list(batches(events))
    assert all(len({(type(event), event.request) for event in batch}) == 1 for batch in made)
    flat = [event for batch in made for event in batch]
    for request in {event.request for event in events}:
        mine = [event for event in events if event.request == request]
        assert [event for event in flat if event.request == request] == mine
    others = [
        event for event in events if not isinstance(event, Text | PromptProgress | ToolCallEvent)
    ]
    assert [
        event
        for event in flat
        if event in others and not isinstance(event, Text | PromptProgress | ToolCallEvent)
    ] == others
