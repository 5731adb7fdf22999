"""Engine requests: events are passed on in batches of one request, whatever comes in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.engines.local import local
from app.engines.requests import RequestRouter, batches
from engine import Chat, Event, Finished, FinishReason, PromptProgress, Text, TokensCounted
from fakes import FakeEngine
from stage import reraise


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


def test_a_request_with_several_answers_is_over_with_the_last() -> None:
    made: list[FakeEngine] = []

    def engine(deliver: Callable[[Event], None]) -> FakeEngine:
        made.append(FakeEngine(deliver))
        return made[0]

    link = RequestRouter(local(engine), lambda events: None, reraise)
    request = link.send(Chat((), answers=2))
    made[0].deliver(replace(end(request), answer=1, last=False))
    link.drain()
    assert link.is_outstanding(request)
    made[0].deliver(end(request))
    link.drain()
    assert not link.is_outstanding(request)
    link.deleteLater()


EVENTS = st.lists(
    st.builds(text, st.integers(1, 3), st.text(max_size=2))
    | st.builds(PromptProgress, st.integers(1, 3), st.integers(0, 4), st.just(4), st.just(0))
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
    others = [event for event in events if not isinstance(event, Text | PromptProgress)]
    assert [
        event for event in flat if event in others and not isinstance(event, Text | PromptProgress)
    ] == others
