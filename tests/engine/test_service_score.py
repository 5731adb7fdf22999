"""Scoring a text through the engine's door: beside answers, cancelled, and refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tiny
from engine import Chat, Failed, Finished, Role, Score, Scored, Text, Turn
from engine_bench import GREEDY, Bench, with_printable_output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return with_printable_output(tiny.write(tmp_path / "tiny.gguf", context=1024))


def test_the_scores_of_an_answer_are_its_log_probabilities(bench: Bench, model: Path) -> None:
    bench.load(model)
    turns = (Turn(Role.USER, "hello"),)
    bench.send(2, Chat(turns, GREEDY, max_tokens=20, logprobs=3))
    events = bench.until(Finished, Failed)
    drawn = [one for event in events if isinstance(event, Text) for one in event.logprobs]
    prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    scored = bench.expect(3, Score(prompt, 3), Scored).tokens
    ids = tuple(one.token for one in (*scored, *drawn))
    again = bench.expect(4, Score(ids, 3), Scored).tokens
    assert again[len(scored) :] == tuple(drawn)


def test_without_a_model_or_text_it_fails(bench: Bench, model: Path) -> None:
    bench.send(1, Score("hello"))
    assert isinstance(bench.until(Scored, Failed)[-1], Failed)
    bench.load(model, 2)
    bench.send(3, Score(()))
    assert isinstance(bench.until(Scored, Failed)[-1], Failed)
    assert math.isfinite(bench.expect(4, Score((3, 4)), Scored).tokens[1].logprob)


def test_a_cancelled_one_has_no_tokens(bench: Bench, model: Path) -> None:
    bench.load(model)
    bench.send(2, Score("hello " * 150))
    bench.cancel(2)
    assert bench.until(Scored, Failed)[-1] == Scored(2, ())
