"""Command line: answers constrained by a grammar, a schema, a regular expression or choices."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.cli.commands import main
from engine.core.request import SamplerState
from engine.messages import Constraint, ConstraintKind, Sampling
from engine.state.disk import resume

GREEDY = ("--temp", "0")
SEEDED = ("--temp", "0.8", "--seed", "6")
START = "the quick brown fox"
SCHEMA = {
    "type": "object",
    "properties": {"first": {"type": "string", "maxLength": 20}, "second": {"enum": [1, 2]}},
    "required": ["first", "second"],
    "additionalProperties": False,
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf", context=512))


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([*map(str, arguments)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("command", ["chat", "complete"])
@pytest.mark.parametrize("drawn", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_answers_match_what_is_asked_for(
    command: str,
    drawn: tuple[str, ...],
    model: str,
    schema: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = (command, "-m", model, "-p", START, *drawn)
    made = run(capsys, *options, "--json-schema", schema)
    assert list(json.loads(made["text"])) == ["first", "second"]
    assert made["finish_reason"] == "end"
    assert not made["incomplete"]
    assert made["forced_tokens"] > 0
    assert run(capsys, *options, "--choices", "red,light blue,")["text"] in (
        "red",
        "light blue",
        "",
    )
    assert re.fullmatch("(ab){3,5}!", run(capsys, *options, "--regex", "(ab){3,5}!")["text"])
    for name, text in {
        "a.gbnf": 'root ::= "<" [a-z]{4} ">" # a comment',
        "b.LARK": 'start: "<" /[a-z]{4}/ ">"',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        made = run(capsys, *options, "--grammar", tmp_path / name)
        assert re.fullmatch("<[a-z]{4}>", made["text"])


def test_drafts_change_nothing(
    model: str, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, "-p", START, *SEEDED, "--json-schema", schema)
    assert run(capsys, *options, "--ngram")["token_ids"] == run(capsys, *options)["token_ids"]


def test_an_incomplete_answer_says_so(
    model: str, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, "-p", START, *GREEDY, "--json-schema", str(schema))
    made = run(capsys, *options, "-n", "5")
    assert (made["finish_reason"], made["incomplete"]) == ("length", True)
    assert main([*options, "-n", "5"]) == 0
    assert "length, incomplete]" in capsys.readouterr().err


@pytest.mark.parametrize("drawn", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("pieces", [(1, 1, 3), (2, 7, 4), (9,)])
def test_a_constrained_answer_continues_from_a_session_file(
    drawn: tuple[str, ...],
    pieces: tuple[int, ...],
    model: str,
    schema: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("complete", "-m", model, *drawn)
    whole = run(capsys, *options, "-p", START, "--json-schema", schema)
    session, begin = tmp_path / "talk", ("-p", START, "--json-schema", schema)
    text = ""
    for tokens in pieces:
        more = run(capsys, *options, *begin, "-n", str(tokens), "--session", session)
        assert more["incomplete"]
        text, begin = text + more["text"], ()  # the file has the schema
    more = run(capsys, *options, "--session", session)
    assert text + more["text"] == whole["text"]
    assert (more["finish_reason"], more["incomplete"]) == ("end", False)


def test_bad_options_are_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, "-p", START)
    assert "unclosed group (line 1, column 2)" in refused(capsys, *options, "--regex", "a(")
    bad = tmp_path / "bad.gbnf"
    bad.write_text('root ::= "a"\n  | b', encoding="utf-8")
    said = refused(capsys, *options, "--grammar", bad)
    assert "there is no rule 'b' (line 2, column 5)" in said
    assert "unknown kind" in refused(capsys, *options, "--grammar", "rules.txt")
    assert "cannot be read" in refused(capsys, *options, "--json-schema", tmp_path / "none.json")
    schema = tmp_path / "schema.json"
    schema.write_text('\ufeff{"type": "array",\n "contains": {}}', encoding="utf-8")
    said = refused(capsys, *options, "--json-schema", schema)
    assert "contains cannot be enforced" in said
    assert "(line 2, column 2)" in said
    both = refused(capsys, *options, "--regex", "a", "--choices", "b")
    assert "not allowed with argument" in both
    assert main(["complete", "-m", model, "-p", START, "--regex", ""]) == 0


# --- the record of an interrupted answer --------------------------------------------------------


CONSTRAINT = Constraint(ConstraintKind.TOOLS, '["é\n"]', ("<a>", "b"), required=True)


def recorded(**options: Any) -> dict[str, str]:
    return resume.encoded(SamplerState(Sampling(seed=1), 1, 10.0, **options), [1, 2])


def test_a_record_keeps_the_constraint() -> None:
    for begin in (0, 17, None):
        state = resume.sampler_state(recorded(constraint=CONSTRAINT, begin=begin))
        assert state is not None
        assert (state.constraint, state.begin) == (CONSTRAINT, begin)
    state = resume.sampler_state(recorded())
    assert state is not None
    assert state.constraint is None


@pytest.mark.parametrize(
    "changes",
    [{"kind": "other"}, {"kind": 3}, {"text": None}, {"trigger": [1]}, {"trigger": "a"},
     {"required": 1}, {"begin": -1}, {"begin": "x"}],
)  # fmt: skip
def test_an_invalid_constraint_of_a_record_is_left_out(changes: dict[str, object]) -> None:
    record = recorded(constraint=CONSTRAINT, begin=3)
    record["constraint"] = json.dumps(json.loads(record["constraint"]) | changes)
    state = resume.sampler_state(record)
    assert state is not None
    assert state.constraint is None
    record["constraint"] = "{"
    assert resume.sampler_state(record) is not None
