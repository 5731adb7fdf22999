"""Forms of servers of tools: fields of a schema, and values that are checked."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.forms import FieldKind, FormField, fields_of, value_of


def field(**about: Any) -> FormField:
    required = ["a"] if about.pop("required", False) else []
    [made] = fields_of({"properties": {"a": about}, "required": required})
    return made


def test_every_kind_of_property_becomes_a_field() -> None:
    titled = [{"const": "r", "title": "Red"}, {"const": "g"}]
    kinds = [
        (field(type="string"), FieldKind.TEXT, ()),
        (field(type="number"), FieldKind.NUMBER, ()),
        (field(type="integer"), FieldKind.INTEGER, ()),
        (field(type="boolean"), FieldKind.SWITCH, ()),
        (field(enum=["x", "y"], enumNames=["X", "Y"]), FieldKind.CHOICE, ("X", "Y")),
        (field(enum=["x", "y"], enumNames=["X"]), FieldKind.CHOICE, ("x", "y")),
        (field(type="string", oneOf=titled), FieldKind.CHOICE, ("Red", "g")),
        (field(type="array", items={"anyOf": titled}), FieldKind.CHOICES, ("Red", "g")),
    ]
    for made, kind, words in kinds:
        assert (made.kind, tuple(word for _, word in made.choices)) == (kind, words)


def test_hidden_characters_of_a_server_are_written_out() -> None:
    made = field(type="string", title="Pay\u202e\nnow", description="one\ntwo\u200b")
    assert (made.title, made.help) == ("Pay\\u202e now", "one\ntwo\\u200b")


@pytest.mark.parametrize(
    ("about", "entered", "value"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, " 7 ", 7),
        ({"type": "integer"}, "7.5", None),
        ({"type": "integer", "maximum": 9}, "10", None),
        ({"type": "number"}, "2,5", 2.5),
        ({"type": "number"}, "nan", None),
        ({"type": "number"}, "1e999", None),
        ({"type": "string", "minLength": 3}, "ab", None),
        ({"type": "string", "format": "email"}, "a@b.org", "a@b.org"),
        ({"type": "string", "format": "email"}, "a b", None),
        ({"type": "string", "format": "uri"}, "https://a.org/b", "https://a.org/b"),
        ({"type": "string", "format": "uri"}, "a.org", None),
        ({"type": "string", "format": "date"}, "2026-13-01", None),
        ({"type": "string", "format": "date-time"}, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ({"type": "string", "required": True}, "", None),
        ({"enum": ["x"], "required": True}, "", None),
        ({"enum": ["x"]}, "x", "x"),
        ({"type": "boolean"}, False, False),
        ({"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1}, [], None),
        ({"type": "array", "items": {"enum": ["x", "y"]}}, ["y"], ["y"]),
        ({"type": "integer"}, "9" * 400, None),
        ({"type": "integer", "minimum": 10**400, "maximum": -(10**400)}, "1", 1),
    ],
)
def test_a_value_is_taken_or_refused_with_a_sentence(
    about: dict[str, Any], entered: object, value: object
) -> None:
    found, wrong = value_of(field(**about), entered)
    assert bool(wrong) == (value is None)
    if not wrong:
        assert found == value
    else:
        assert wrong.endswith(".")


def test_nothing_is_no_value_where_none_is_needed() -> None:
    for kind in ("string", "integer", "number"):
        assert value_of(field(type=kind), "") == (None, "")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": ["a"], "required": "a"},
        {"properties": {"a": "text", "b": {"enum": 3, "oneOf": [1, {}], "minimum": True}}},
        {"properties": {str(number): {} for number in range(1_000)}, "required": [{}, None]},
    ],
)
def test_a_schema_that_makes_no_sense_does_no_harm(schema: dict[str, Any]) -> None:
    fields = fields_of(schema)
    assert len(fields) <= 50
    for each in fields:
        assert value_of(each, "x") == ("x", "")
