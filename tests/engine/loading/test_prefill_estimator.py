"""The prefill estimator of a loaded model: calibrates, learns from answers, and remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
from engine.core.prefill_time import PrefillShape
from engine.loading.measured import measured_file
from engine.loading.prefill_estimator import PrefillTimer
from engine_bench import Bench, answer_text, run_turns, with_printable_output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return with_printable_output(tiny.write(tmp_path / "tiny.gguf", context=2048))


def test_the_first_estimate_calibrates_and_is_remembered(bench: Bench, model: Path) -> None:
    bench.load(model)
    assert bench.load_snapshot(1, "one two three " * 60).remaining_prefill_seconds > 0
    (costs,) = _rows()
    assert sum(costs) > 0
    again = Bench()
    again.load(model)
    assert again.load_snapshot(1, "three two one " * 60).remaining_prefill_seconds > 0
    again.engine.stop()
    assert _rows() == [costs]


def test_answers_are_learned_from_before_any_estimate(bench: Bench, model: Path) -> None:
    first = Bench()
    first.load(model)
    first.generate(1, "one two three " * 60, max_tokens=2)
    first.engine.stop()  # it learns after the answer has been delivered
    costs, *runs = _rows()
    assert sum(costs) == 0
    assert runs
    bench.load(model)
    assert bench.load_snapshot(2, "three two one " * 60).remaining_prefill_seconds > 0
    costs, *kept = _rows()
    assert sum(costs) > 0
    assert kept == runs


def test_an_estimate_does_not_change_the_answer(bench: Bench, model: Path) -> None:
    bench.load(model)
    texts = run_turns(bench, 3)
    other = Bench()
    other.load(model)
    assert run_turns(other, 3) == texts
    assert other.load_snapshot(4, "entirely different words " * 40).remaining_prefill_seconds > 0
    expected = answer_text(bench.generate(5, *texts, "and then", max_tokens=20))
    assert answer_text(other.generate(5, *texts, "and then", max_tokens=20)) == expected
    other.engine.stop()


def test_damaged_figures_are_measured_again(bench: Bench, model: Path) -> None:
    measured_file().parent.mkdir(parents=True, exist_ok=True)
    measured_file().write_bytes(b"{ damaged")
    bench.load(model)
    assert bench.load_snapshot(1, "one two three " * 60).remaining_prefill_seconds > 0
    assert sum(_rows()[0]) > 0


def test_timer_measures_each_chunk_and_nothing_that_was_cached() -> None:
    timer = PrefillTimer(PrefillShape(128, (0,)))
    for done in (100, 228, 228, 300):
        timer.on_progress(done, 300)
    assert [run.work.tokens for run in timer.runs] == [128, 72]
    assert [run.work.prompts for run in timer.runs] == [0, 1]


def _rows() -> list[list[float]]:
    """The prefill figures; the file may have the measured weights of the model too."""
    found = json.loads(measured_file().read_bytes()).values()
    (rows,) = (rows for rows in found if len(rows[0]) > 1)
    return rows
