"""Chunks of a streamed answer: the tokens so far, and the time that they took."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.deltas import AnswerUsage, TextDelta, ThoughtDelta
from app.engines.remote.chunks import ChunkReader
from hostile_server import chunk


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def read(
    *chunks: tuple[float, dict[str, Any]],
) -> tuple[list[TextDelta | ThoughtDelta], AnswerUsage]:
    """The texts, and the usage, of chunks that come so many seconds after the request."""
    clock = Clock()
    reader = ChunkReader(clock.now, clock=clock)
    found: list[Any] = []
    for seconds, value in chunks:
        clock.now = 100.0 + seconds
        found += reader.read(value)
    found += reader.finish()
    (usage,) = (one for one in found if isinstance(one, AnswerUsage))
    return [one for one in found if isinstance(one, TextDelta | ThoughtDelta)], usage


def with_usage(text: str | None, generated: int, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 40, "completion_tokens": generated, **more}
    return {**chunk(text, finish=None if text else "stop"), "usage": usage}


def test_tokens_are_counted_while_they_come_where_the_server_says_so() -> None:
    texts, usage = read(
        (1.0, with_usage("One", 1)), (1.5, with_usage(" two", 3)), (2.0, with_usage(None, 4))
    )
    assert [(one.generated_tokens, one.context_used) for one in texts] == [(1, 41), (3, 43)]
    assert (usage.prompt_tokens, usage.generated_tokens) == (40, 4)
    assert usage.decode_seconds == pytest.approx(1.0)  # with the end token, which has no text
    assert usage.first_token_seconds == pytest.approx(1.0)


def test_the_timings_of_each_token_are_read_too() -> None:
    def timed(text: str, made: int) -> dict[str, Any]:
        timings = {"cache_n": 30, "prompt_n": 10, "predicted_n": made, "predicted_ms": 20.0 * made}
        return {**chunk(text), "timings": timings}

    texts, usage = read(
        (1.0, timed("a", 1)),
        (1.1, timed("b", 2)),
        (1.2, timed("c", 3)),
        (1.2, chunk(finish="stop")),
    )
    assert [one.generated_tokens for one in texts] == [1, 2, 3]
    assert (usage.generated_tokens, usage.prompt_tokens, usage.cached_tokens) == (3, 40, 30)
    assert usage.decode_seconds == pytest.approx(0.06)


def test_without_counts_there_are_none() -> None:
    texts, usage = read((1.0, chunk("One")), (2.0, chunk(finish="stop")))
    assert (texts[0].generated_tokens, texts[0].context_used) == (0, 0)
    assert (usage.prompt_tokens, usage.generated_tokens) == (0, 0)


@pytest.mark.parametrize("sent", [True, False])
def test_thoughts_that_are_not_sent_do_not_make_an_answer_fast(sent: bool) -> None:
    """500 tokens of which the reader saw ten in half a second are not 1,000 tokens/s."""
    hidden = {"completion_tokens_details": {"reasoning_tokens": 490}}
    thought = [(1.0, chunk(reasoning_content="Hm"))] if sent else []
    _, usage = read(*thought, (10.0, chunk("Yes")), (10.5, with_usage(None, 500, **hidden)))
    assert usage.decode_seconds == pytest.approx(9.5 if sent else 10.5)
