"""Answer options: their JSON, what damage leaves of it, and what they tell the engine."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from app.domain.chat_settings import (
    NO_SETTINGS,
    WITH_TEXT,
    AnswerFormat,
    ChatSettings,
    settings_of,
    settings_text,
)
from app.settings.samplers import SAMPLERS, Thinking
from engine import Constraint, ConstraintKind, Sampling

CHANGED = (
    NO_SETTINGS.with_value("temperature", 0.2)
    .with_value("mirostat", 2)
    .with_value("seed", 7)
    .with_format(AnswerFormat.REGEX, "[a-z]+")
    .with_format(AnswerFormat.CHOICES, "yes\nno")
)


def test_options_come_back_from_their_text() -> None:
    assert settings_of(settings_text(CHANGED)) == CHANGED
    assert settings_text(NO_SETTINGS) == ""
    assert settings_of("") == NO_SETTINGS
    assert settings_text(CHANGED.with_value("seed", None)) != settings_text(CHANGED)


def test_a_text_stays_while_another_format_is_used() -> None:
    kept = settings_of(settings_text(CHANGED.with_format(AnswerFormat.FREE)))
    assert kept.constraint is None
    assert kept.with_format(AnswerFormat.REGEX).text == "[a-z]+"


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "1", "null", "[" * 5_000, '{"sampling": 1, "format": 2, "texts": 3}',
        '{"sampling": {"temperature": "hot", "top_k": 1.5, "seed": true, "min_p": 9}}',
        '{"sampling": {"temperature": NaN, "mirostat": 3, "unknown": 1}}',
        '{"format": "essay", "texts": {"regex": 1, "free": "x"}}',
    ],
)  # fmt: skip
def test_damaged_options_are_as_usual(text: str) -> None:
    assert settings_of(text) == NO_SETTINGS


def test_one_damaged_value_leaves_the_others() -> None:
    stored = json.loads(settings_text(CHANGED))
    stored["sampling"]["temperature"] = "hot"
    stored["format"] = "essay"
    found = settings_of(json.dumps(stored))
    assert dict(found.sampling) == {"mirostat": 2, "seed": 7}
    assert found.format is AnswerFormat.FREE
    assert found.texts == CHANGED.texts


def test_every_sampler_is_a_parameter_of_the_engine() -> None:
    usual = Sampling()
    assert set(SAMPLERS) <= {field.name for field in fields(Sampling)}
    for name, setting in SAMPLERS.items():
        value = getattr(usual, name)
        assert setting.label
        assert setting.help
        if setting.choices:
            assert str(value) in setting.choices
        else:
            assert setting.low <= value <= setting.high, name


def test_changed_values_replace_the_usual_ones() -> None:
    usual = Sampling(temperature=0.9, top_k=7, typical_p=0.5)
    used = CHANGED.applied(usual)
    assert (used.temperature, used.mirostat, used.seed) == (0.2, 2, 7)
    assert (used.top_k, used.typical_p) == (7, 0.5)
    assert NO_SETTINGS.applied(usual) == usual


@pytest.mark.parametrize(
    ("format", "text", "wanted"),
    [
        (AnswerFormat.SCHEMA, '{"type": "null"}', (ConstraintKind.JSON_SCHEMA, '{"type": "null"}')),
        (AnswerFormat.CHOICES, " yes \n\nno\nyes\n", (ConstraintKind.CHOICES, '["yes", "no"]')),
        (AnswerFormat.REGEX, "[a ]+ \n", (ConstraintKind.REGEX, "[a ]+ ")),
        (AnswerFormat.GRAMMAR, 'root ::= "a"', (ConstraintKind.GBNF, 'root ::= "a"')),
        (AnswerFormat.GRAMMAR, 'start: "a"', (ConstraintKind.LARK, 'start: "a"')),
    ],
)
def test_a_described_format_is_a_constraint(
    format: AnswerFormat, text: str, wanted: tuple[ConstraintKind, str]
) -> None:
    assert NO_SETTINGS.with_format(format, text).constraint == Constraint(*wanted)


@pytest.mark.parametrize("format", [AnswerFormat.FREE, *WITH_TEXT])
def test_nothing_described_is_no_constraint(format: AnswerFormat) -> None:
    assert ChatSettings(format=format).constraint is None
    assert NO_SETTINGS.with_format(format, " \n ").constraint is None


def test_json_needs_no_description() -> None:
    constraint = NO_SETTINGS.with_format(AnswerFormat.JSON).constraint
    assert constraint is not None
    assert constraint.kind is ConstraintKind.JSON_SCHEMA


def test_thinking_comes_back_from_its_text() -> None:
    for options in (
        replace(NO_SETTINGS, thinking=Thinking.OFF),
        replace(CHANGED, thinking=Thinking.BUDGET, thinking_budget=200),
        replace(NO_SETTINGS, thinking_budget=64),  # not in use, but kept
    ):
        assert settings_of(settings_text(options)) == options
    stored = {"thinking": "deep", "thinking_budget": 0}
    assert settings_of(json.dumps(stored)) == NO_SETTINGS
    assert settings_of('{"thinking": 1, "thinking_budget": "9"}') == NO_SETTINGS


@pytest.mark.parametrize("usual", [None, True, False])
def test_a_chat_may_think_otherwise_than_the_settings(usual: bool | None) -> None:
    options = replace(NO_SETTINGS, thinking_budget=200)
    found = {
        way: (one.thinks(usual), one.budget)
        for way in Thinking
        for one in [replace(options, thinking=way)]
    }
    assert found == {
        Thinking.USUAL: (usual, None),
        Thinking.ON: (True, None),
        Thinking.OFF: (False, None),
        Thinking.BUDGET: (True, 200),
    }
