"""Scoring a text through the engine's door: beside answers, cancelled, and refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tiny
from engine import (
    Chat,
    ComputeLogits,
    Detokenize,
    Detokenized,
    Failed,
    Finished,
    LogitsComputed,
    MeasureSpeed,
    Role,
    Score,
    Scored,
    SpeedMeasured,
    Text,
    Turn,
)
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


def test_only_the_tokens_from_a_position_on_are_scored(bench: Bench, model: Path) -> None:
    bench.load(model)
    ids = tuple(range(5, 105))
    whole = bench.expect(2, Score(ids, 2), Scored).tokens
    for start in (0, 1, 17, 64, 99):
        assert bench.expect(3, Score(ids, 2, start=start), Scored).tokens == whole[start:]
    plain = bench.expect(4, Score(ids, 0), Scored).tokens
    assert [one.logprob for one in plain] == [one.logprob for one in whole]
    assert {one.top for one in plain} == {()}
    for wrong in (Score(ids, start=100), Score(ids, start=-1), Score(ids, -1)):
        assert "were to be scored" in bench.expect(5, wrong, Failed).message


def test_logits_are_those_that_the_log_probabilities_are_made_of(bench: Bench, model: Path) -> None:
    bench.load(model)
    ids = tuple(range(5, 105))
    scored = bench.expect(2, Score(ids, 4), Scored).tokens
    wanted = ComputeLogits(ids, (70, 3, 98), with_pieces=True)
    rows = bench.expect(3, wanted, LogitsComputed).rows
    for position, row in zip(wanted.positions, rows, strict=True):
        assert sorted(row.ids) == list(range(len(row.ids)))
        assert list(row.logits) == sorted(row.logits, reverse=True)
        after = scored[position + 1]
        assert row.ids[:4] == tuple(one.token for one in after.top)
        total = math.log(math.fsum(map(math.exp, row.logits)))
        assert after.top[0].logprob == pytest.approx(row.logits[0] - total, abs=1e-9)
    few = bench.expect(4, ComputeLogits(ids, (70,), 2), LogitsComputed).rows
    assert (few[0].ids, few[0].logits) == (rows[0].ids[:2], rows[0].logits[:2])
    assert few[0].pieces == ()
    text = bench.expect(5, Detokenize(rows[0].ids[:1]), Detokenized).text
    assert rows[0].pieces[0].strip() == text.strip()
    assert "no position 100" in bench.expect(6, ComputeLogits(ids, (100,)), Failed).message


def test_a_speed_is_measured_and_can_be_cancelled(bench: Bench, model: Path) -> None:
    bench.load(model)
    found = bench.expect(2, MeasureSpeed(32, 8, 16, 2), SpeedMeasured)
    assert min(found.prefill_tokens_per_second, found.decode_tokens_per_second) > 0
    assert found.bytes_per_token > 0
    assert "context" in bench.expect(3, MeasureSpeed(2_000, 8), Failed).message
    assert "at least one" in bench.expect(4, MeasureSpeed(8, 0), Failed).message
    bench.send(5, MeasureSpeed(900, 900, 100, 50))
    bench.cancel(5)
    assert bench.until(SpeedMeasured, Failed)[-1] == SpeedMeasured(5)
    assert bench.generate(6, "hello", max_tokens=2)
