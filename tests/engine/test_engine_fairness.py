"""Engine: a short question asked while a long text is read is answered first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine import (
    Chat,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    PromptProgress,
    Request,
    Role,
    Sampling,
    Text,
    Turn,
)
from engine.frontend.prompt import PromptBuilder
from engine.machine import background

GREEDY = Sampling(temperature=0)
LONG, SHORT = 2, 3  # requests


def asked(text: str, most: int) -> Chat:
    return Chat((Turn(Role.USER, text),), GREEDY, most)


@pytest.mark.parametrize("seconds_per_token", [1e-4, 10.0], ids=["short chunk", "long chunk"])
def test_a_question_waits_for_one_chunk_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds_per_token: float
) -> None:
    monkeypatch.setattr(background, "_BRIEF_SECONDS", 30.0)  # however busy this machine is
    monkeypatch.setattr(PromptBuilder, "answer", slow(PromptBuilder.answer))
    path = tiny.write(tmp_path / "tiny.gguf", context=4_000)
    events: list[Event] = []
    ended = threading.Event()

    def deliver(event: Event) -> None:
        events.append(event)
        if isinstance(event, ModelLoaded):
            scheduler = engine._loop._residents.main.session._scheduler
            scheduler.runner.chunk = 64
            scheduler._token_seconds = seconds_per_token
            send(LONG, asked("a long text " * 250, 2))
        if isinstance(event, PromptProgress) and event.request == LONG and count(LONG, events) == 2:
            send(SHORT, asked("hello", 3))
        if isinstance(event, Failed) or {LONG, SHORT} == {
            one.request for one in events if isinstance(one, Finished)
        }:
            ended.set()

    def send(number: int, request: Request) -> None:
        engine.submit(request, lambda event: deliver(replace(event, request=number)))

    engine = Engine()
    send(1, Load(path))
    engine.start()
    try:
        assert ended.wait(60)
    finally:
        engine.stop()
    assert not [event for event in events if isinstance(event, Failed)]
    first = next(
        at for at, one in enumerate(events) if isinstance(one, Text) and one.request == SHORT
    )
    assert count(LONG, events[:first]) <= 3, "the two before the question, and one chunk"
    assert count(LONG, events) > 10


def slow(build: Callable[..., Any]) -> Callable[..., Any]:
    """A prompt takes a moment to build, as on a busy machine."""

    def delayed(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.02)
        return build(*arguments, **options)

    return delayed


def count(request: int, events: list[Event]) -> int:
    """Progress events of a prompt: one when it begins, one for each chunk."""
    return sum(isinstance(one, PromptProgress) and one.request == request for one in events)
