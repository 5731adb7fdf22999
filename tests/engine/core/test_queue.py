"""Request queue: bounded, first what a person waits for, and never beside what needs a model alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.handle import RequestHandle
from engine.core.queue import Limits, RequestQueue, claims
from engine.errors import Busy
from engine.messages import (
    Chat,
    CountTokens,
    Embed,
    FindDevices,
    Load,
    MeasureSpeed,
    Metrics,
    Priority,
    Request,
    Restore,
    Save,
    SetAdapters,
    SetDraft,
    Unload,
)

MAIN, OTHER, NEW = Path("main.gguf"), Path("other.gguf"), Path("new.gguf")
MODELS = st.sampled_from([None, MAIN, OTHER])
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(Chat, st.just(()), conversation=st.sampled_from(["", "a", "b"]), model=MODELS),
    st.builds(CountTokens, st.just("x"), MODELS),
    st.builds(Embed, st.just(("x",)), model=MODELS),
    st.builds(Restore, st.just(()), st.sampled_from(["a", "b"]), model=MODELS),
    st.builds(Save, st.sampled_from(["a", "b"]), st.just(1), answer=st.just(1), model=MODELS),
    st.builds(SetAdapters, st.just(()), MODELS),
    st.builds(SetDraft, st.none(), model=MODELS),
    st.builds(Unload, MODELS),
    st.builds(Load, st.sampled_from([MAIN, OTHER, NEW]), beside=st.booleans()),
    st.builds(Metrics, MODELS),
    st.builds(MeasureSpeed, st.just(1), st.just(1), model=MODELS),
    st.just(FindDevices()),
)


def handle(
    request: Request,
    priority: Priority = Priority.NORMAL,
    client: str = "",
    deadline: float | None = None,
) -> RequestHandle:
    return RequestHandle(
        request, lambda event: None, priority=priority, client=client, deadline=deadline
    )


def order(queue: RequestQueue, running: list[RequestHandle]) -> RequestHandle | None:
    return queue.next(running, MAIN, [MAIN, OTHER], lambda one: True)


def conflict(one: Request, other: Request) -> bool:
    """Whether two requests may not run beside each other, whichever came first."""
    first, second = claims(one, MAIN, [MAIN, OTHER]), claims(other, MAIN, [MAIN, OTHER])
    return bool(
        first.alone & (second.alone | second.shared) or second.alone & (first.alone | first.shared)
    )


@given(st.lists(st.tuples(REQUESTS, st.sampled_from(Priority)), max_size=12), st.data())
def test_all_begin_and_none_beside_what_it_conflicts_with(
    asked: list[tuple[Request, Priority]], data: st.DataObject
) -> None:
    queue, running, begun = RequestQueue(Limits()), list[RequestHandle](), list[RequestHandle]()
    handles = [handle(request, priority) for request, priority in asked]
    for one in handles:
        queue.add(one)
    while queue.items or running:
        found = order(queue, running)
        if found is None or (running and data.draw(st.booleans())):
            assert running, "something could always begin alone"
            running.pop(data.draw(st.integers(0, len(running) - 1)))
            continue
        assert not any(conflict(found.request, one.request) for one in running)
        for one in handles[: handles.index(found)]:
            if conflict(found.request, one.request):
                assert one in begun, "it came first"
        queue.remove(found)
        running.append(found)
        begun.append(found)
    assert len(begun) == len(handles)


def test_the_window_comes_first_and_the_background_last() -> None:
    queue = RequestQueue(Limits())
    last, middle, first = (
        handle(Chat(()), priority)
        for priority in (Priority.BACKGROUND, Priority.NORMAL, Priority.WINDOW)
    )
    for one in (last, middle, first):
        queue.add(one)
    for wanted in (first, middle, last):
        found = order(queue, [])
        assert found is wanted
        queue.remove(found)


def test_answers_after_adapters_do_not_overtake_them() -> None:
    queue, adapters = RequestQueue(Limits()), handle(SetAdapters(()))
    queue.add(adapters)
    queue.add(handle(Chat(()), Priority.WINDOW))
    assert order(queue, []) is adapters


def test_a_model_beside_others_is_loaded_while_they_answer() -> None:
    queue, load = RequestQueue(Limits()), handle(Load(NEW, beside=True))
    queue.add(load)
    assert order(queue, [handle(Chat(())), handle(Chat((), model=OTHER))]) is load
    asks_it, asks_main = handle(Chat((), model=NEW), Priority.WINDOW), handle(Chat(()))
    queue.remove(load)
    queue.add(asks_it)
    queue.add(asks_main)
    assert order(queue, [load]) is asks_main, "the other one waits for the load"


def test_a_swap_waits_for_the_answers_of_its_model_and_holds_up_those_after_it() -> None:
    queue, swap = RequestQueue(Limits()), handle(Load(NEW))
    queue.add(swap)
    running = [handle(Chat(())), handle(Chat((), model=OTHER))]
    assert order(queue, running) is None
    queue.add(handle(Chat((), model=MAIN), Priority.WINDOW))
    beside = handle(Chat((), model=OTHER))
    queue.add(beside)
    assert order(queue, running) is beside, "it needs neither"
    assert order(queue, running[1:]) is swap


def test_what_was_cancelled_or_is_overdue_ends_though_it_could_not_begin() -> None:
    queue, running = RequestQueue(Limits()), [handle(Load(NEW))]
    waits, late = handle(Chat(())), handle(Chat(()), deadline=0.0)
    queue.add(waits)
    assert order(queue, running) is None
    queue.add(late)
    assert order(queue, running) is late
    queue.remove(late)
    waits.cancel()
    assert order(queue, running) is waits


def test_a_client_is_refused_beyond_its_share_and_all_beyond_the_limit() -> None:
    queue = RequestQueue(Limits(requests=3, per_client=2))
    first = handle(Chat(()), client="a")
    queue.add(first)
    queue.add(handle(Chat(()), client="a"))
    with pytest.raises(Busy, match="This client has 2 requests") as refused:
        queue.add(handle(Chat(()), client="a"))
    assert 1 <= refused.value.retry_after <= 60
    queue.add(handle(Chat(()), client="b"))
    with pytest.raises(Busy, match="3 requests have not ended"):
        queue.add(handle(Chat(()), client="c"))
    queue.add(handle(Chat(())))  # the program itself is not refused
    queue.remove(first)
    with pytest.raises(Busy):
        queue.add(handle(Chat(()), client="c"))
    queue.on_end(first, 3.0)
    queue.add(handle(Chat(()), client="c"))


@given(REQUESTS)
def test_a_measurement_runs_beside_nothing_that_works_on_a_model(other: Request) -> None:
    assert conflict(MeasureSpeed(1, 1), other) or other == FindDevices()
