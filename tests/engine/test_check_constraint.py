"""CheckConstraint: faults with line and column, with and without a model, beside answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from engine import (
    Chat,
    CheckConstraint,
    Constraint,
    ConstraintChecked,
    ConstraintKind,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    Text,
)
from engine_bench import GREEDY, Bench, turns_of

GOOD = (
    (ConstraintKind.JSON_SCHEMA, '{"type": "object"}'),
    (ConstraintKind.JSON_SCHEMA, '{"type": "string", "format": "password", "title": "([{"}'),
    (ConstraintKind.JSON_SCHEMA, '{"type": "array", "maxItems": 1, "uniqueItems": true}'),
    (ConstraintKind.GBNF, 'root ::= "yes" | "no"'),
    (ConstraintKind.LARK, 'start: "yes" | "no"'),
    (ConstraintKind.REGEX, "[0-9]{3}"),
    (ConstraintKind.CHOICES, '["red", "green"]'),
)
BAD = (
    (ConstraintKind.JSON_SCHEMA, '{"type":\n  "objekt"}', 2),
    (ConstraintKind.JSON_SCHEMA, '{"type":\n  "object"', 2),
    (ConstraintKind.JSON_SCHEMA, '{"type": "array",\n"items": {},\n"uniqueItems": true}', 3),
    (ConstraintKind.JSON_SCHEMA, '{"items": {"anyOf": [{},\n{"pattern": "a\\\\b"}]}}', 2),
    (ConstraintKind.GBNF, 'root ::= a\na ::= "x" (', 2),
    (ConstraintKind.LARK, "start: a\na: (", 2),
    (ConstraintKind.REGEX, "[0-9", 1),
    (ConstraintKind.CHOICES, "[1]", 1),
)
models = pytest.mark.parametrize("loaded", [False, True], ids=["no model", "model"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf")


def check(bench: Bench, request: int, kind: ConstraintKind, text: str) -> ConstraintChecked:
    bench.send(request, CheckConstraint(Constraint(kind, text)))
    found = bench.until(ConstraintChecked, Failed)[-1]
    assert isinstance(found, ConstraintChecked), found
    assert found.request == request
    return found


@models
def test_a_usable_constraint_has_no_fault(bench: Bench, model: Path, loaded: bool) -> None:
    if loaded:
        bench.send(1, Load(model, 128))
        bench.until(ModelLoaded, Failed)
    for number, (kind, text) in enumerate(GOOD, 10):
        assert check(bench, number, kind, text) == ConstraintChecked(number)


@models
def test_a_fault_has_its_line_and_column(bench: Bench, model: Path, loaded: bool) -> None:
    if loaded:
        bench.send(1, Load(model, 128))
        bench.until(ModelLoaded, Failed)
    for number, (kind, text, line) in enumerate(BAD, 10):
        found = check(bench, number, kind, text)
        assert found.line == line, (kind, found)
        assert found.column > 0
        assert f"(line {line}, column {found.column})" in found.message
        assert found.remedy


def test_a_check_does_not_wait_for_an_answer(bench: Bench, model: Path) -> None:
    bench.send(1, Load(model, 256))
    bench.until(ModelLoaded, Failed)
    bench.send(2, Chat(turns_of("hello"), GREEDY, max_tokens=10_000))
    bench.until(Text)
    bench.send(3, CheckConstraint(Constraint(*GOOD[0])))
    seen = bench.until(ConstraintChecked, Failed, Finished)
    assert isinstance(seen[-1], ConstraintChecked)
    bench.cancel(2)
    bench.until(Finished)


def test_a_cancelled_check_has_its_event(bench: Bench) -> None:
    bench.send(3, CheckConstraint(Constraint(*GOOD[0])))
    bench.cancel(3)
    assert isinstance(bench.until(ConstraintChecked)[-1], ConstraintChecked)
