"""Constrained answers through the engine: beside others, after thoughts, continued, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from engine import Constraint, ConstraintKind, Failed, FinishReason, Sampling
from engine_bench import GREEDY, SEEDED, Bench, answer_text, finished

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"first": {"type": "string", "maxLength": 12}, "second": {"enum": [1, 2]}},
        "required": ["first", "second"],
        "additionalProperties": False,
    }
)
OBJECT = Constraint(ConstraintKind.JSON_SCHEMA, SCHEMA)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "one.gguf", context=2048)


@pytest.fixture
def bench(model: Path) -> Iterator[Bench]:
    made = Bench()
    made.load(model)
    yield made
    made.engine.stop()


def is_object(text: str) -> bool:
    return list(json.loads(text)) == ["first", "second"]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_an_answer_matches_its_schema(bench: Bench, sampling: Sampling) -> None:
    events = bench.generate(2, "hello", sampling=sampling, constraint=OBJECT, max_tokens=100)
    assert is_object(answer_text(events))
    assert finished(events).reason is FinishReason.END
    assert not finished(events).incomplete
    assert finished(events).forced_tokens


def test_a_turn_that_is_continued_keeps_its_constraint(bench: Bench) -> None:
    whole = answer_text(bench.generate(2, "hello", constraint=OBJECT, max_tokens=100))
    for request, cut in enumerate((1, 4, 9, len(whole) - 1), 3):
        events = bench.generate(request, "hello", whole[:cut], constraint=OBJECT, max_tokens=100)
        assert is_object(whole[:cut] + answer_text(events))
    begun = bench.generate(20, "hello", constraint=OBJECT, max_tokens=5)
    assert finished(begun).incomplete
    events = bench.generate(
        21, "hello", answer_text(begun), max_tokens=100
    )  # it is known to have one
    assert answer_text(begun) + answer_text(events) == whole


def test_thoughts_that_the_prompt_begins_are_free(bench: Bench, tmp_path: Path) -> None:
    opens = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<think>\\n' }}"
    bench.load(tiny.write(tmp_path / "thinks.gguf", template=opens))
    events = bench.generate(2, "hello", constraint=OBJECT, max_tokens=40)
    text = answer_text(events)
    assert text.startswith("<think>\n")
    assert not text.removeprefix("<think>\n").startswith("{")
    assert finished(events).incomplete  # a tiny model thinks for ever
    # Continued behind its thoughts, the answer is an object.
    continued = answer_text(
        bench.generate(3, "hello", "<think>\nhm</think>", constraint=OBJECT, max_tokens=600)
    )
    assert is_object(continued)


def test_a_bad_grammar_fails_with_its_place(bench: Bench) -> None:
    bad = Constraint(ConstraintKind.GBNF, 'root ::= "a"\n  | b')
    events = bench.generate(2, "hello", constraint=bad)
    assert isinstance(events[-1], Failed)
    assert "there is no rule 'b' (line 2, column 5)" in events[-1].message
    assert is_object(answer_text(bench.generate(3, "hello", constraint=OBJECT, max_tokens=100)))
    events = bench.generate(4, "hello", "no object", constraint=OBJECT)
    assert isinstance(events[-1], Failed)
    assert "does not match the JSON schema" in events[-1].message


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_an_interrupted_answer_continues_in_another_engine(model: Path, sampling: Sampling) -> None:
    first = Bench()
    first.load(model)
    whole = first.generate(2, "hello", sampling=sampling, constraint=OBJECT, max_tokens=100)
    begun = first.generate(3, "hello", sampling=sampling, constraint=OBJECT, max_tokens=9)
    first.save(4)
    first.engine.stop()
    again = Bench()
    again.load(model)
    text = answer_text(begun)
    assert again.load_snapshot(5, "hello", text).restored_tokens
    # The saved answer has the constraint.
    rest = again.generate(6, "hello", text, sampling=sampling, max_tokens=100)
    again.engine.stop()
    assert text + answer_text(rest) == answer_text(whole)
    assert finished(rest).reason is FinishReason.END


def test_a_prompt_that_does_not_fit_is_refused_before_its_grammar_is_compiled(
    bench: Bench,
) -> None:
    broken = Constraint(ConstraintKind.JSON_SCHEMA, "{")
    last = bench.generate(2, "hello", constraint=broken)[-1]
    assert isinstance(last, Failed)
    assert "This chat is full" not in last.message
    last = bench.generate(3, "hello " * 2048, constraint=broken)[-1]
    assert isinstance(last, Failed)
    assert last.message.startswith("This chat is full")
