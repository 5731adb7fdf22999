"""Arguments of calls as small models write them, and what they are told of wrong ones."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tools import ToolError
from app.tools.arguments import MOST_CHARACTERS, fit, parse

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "first_line": {"type": "integer"},
            "ratio": {"type": "number"},
            "all": {"type": "boolean"},
            "unit": {"type": "string", "enum": ["Celsius", "Fahrenheit"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object"},
            "any": {},
            "maybe": {"type": ["string", "null"]},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
)
OPEN = json.dumps({"type": "object", "properties": {"path": {"type": "string"}}})


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "a.txt", "first_line": 3, "all": true}',
        "{'path': 'a.txt', 'first_line': 3, 'all': True}",
        '{"path": "a.txt", "first_line": "3", "all": "true",}',
        '{path: "a.txt", first_line: 3, all: true}',
        '```json\n{"path": "a.txt", "first_line": 3.0, "all": "yes"}\n```',
        '{"Path": "a.txt", "firstLine": 3, "ALL": true}',
        '{"path": "a.txt", "first-line": 3, "all": true, "reason": "I need it"}',
        '"{\\"path\\": \\"a.txt\\", \\"first_line\\": 3, \\"all\\": true}"',
        '{"name": "read_file", "arguments": {"path": "a.txt", "first_line": 3, "all": true}}',
        '{"parameters": {"path": "a.txt", "first_line": 3, "all": true}}',
        '{"path": "a.txt", // the file\n "first_line": 3, "all": true, "ratio": null, "tags": None}',
    ],
)
def test_what_small_models_write_is_read(text: str) -> None:
    assert parse(text, SCHEMA) == {"path": "a.txt", "first_line": 3, "all": True}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"path": 5}, {"path": "5"}),
        ({"path": "a", "ratio": "1,234.5"}, {"path": "a", "ratio": 1234.5}),
        ({"path": "a", "unit": "celsius"}, {"path": "a", "unit": "Celsius"}),
        ({"path": "a", "tags": "x"}, {"path": "a", "tags": ["x"]}),
        ({"path": "a", "tags": '["x", "y"]'}, {"path": "a", "tags": ["x", "y"]}),
        ({"path": "a", "tags": [1]}, {"path": "a", "tags": ["1"]}),
        ({"path": "a", "more": '{"b": 1}'}, {"path": "a", "more": {"b": 1}}),
        ({"path": {"b": 1}}, {"path": '{"b": 1}'}),
        ({"path": "a", "maybe": None}, {"path": "a", "maybe": None}),
        ({"path": "a", "any": [None, 1]}, {"path": "a", "any": [None, 1]}),
    ],
)
def test_values_get_the_type_of_the_schema(given: dict[str, object], read: object) -> None:
    assert fit(given, SCHEMA) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", 'The argument is missing: "path". Send {"path": "..."}.'),
        (
            '{"path": "a", "first_line": "three"}',
            '"first_line" must be a whole number, not "three"',
        ),
        ('{"path": "a", "first_line": 1.5}', "must be a whole number, not 1.5"),
        ('{"path": "a", "all": "maybe"}', "must be true or false"),
        ('{"path": "a", "unit": "Kelvin"}', 'must be one of "Celsius", "Fahrenheit", not "Kelvin"'),
        ('{"path": "a", "first_line": true}', "must be a whole number, not true"),
        ('{"path": null}', '"path" must be a text'),
        ('{"path": "a', "a text has no closing quote, at character 10"),
        ('{"path": "a" "all": true}', '"," or "}" is missing, at character 14'),
        ('{"path": a.txt}', "texts are written in quotes, not a, at character 10"),
        ('{"path" "a"}', 'a colon is missing behind "path"'),
        ('{"path": "a"} and so on', "something follows the end"),
        (r'{"path": "C:\docs\new"}', "a backslash in a text is written twice, at character 13"),
        ('{"path": "a", "ratio": NaN}', "texts are written in quotes, not NaN"),
        ('{"path": "a", "ratio": 1e999}', "a number is too large"),
        ('{"path": "a", "any": [1e999]}', "a number is too large"),
        ('{"path": "a", "ratio": 1%s}' % ("0" * 400), "must be a number"),
        ('{"path": "a", "lines": 3}', 'There is no argument "lines". The arguments are: "path", '),
        ('{"path": "a", "PATH": "b"}', 'There is no argument "PATH"'),
        ("[" * 100, "nested too deeply"),
        ("{" + "'a':{" * 50, "nested too deeply"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        parse(text, SCHEMA)
    assert said in str(raised.value)


def test_the_only_argument_may_be_written_without_its_name() -> None:
    schema = json.dumps(
        {"properties": {"expression": {"type": "string"}}, "required": ["expression"]}
    )
    assert parse("17.5 % of 2384", schema) == {"expression": "17.5 % of 2384"}
    assert parse('"1 + 1"', schema) == {"expression": "1 + 1"}


def test_a_list_in_place_of_an_object_is_refused() -> None:
    with pytest.raises(ToolError, match="must be a JSON object"):
        parse("[1, 2]", OPEN)


def test_no_arguments_are_an_empty_object() -> None:
    assert parse("", OPEN) == parse("null", OPEN) == parse("  \n", OPEN) == {}


def test_other_arguments_stay_where_the_schema_allows_them() -> None:
    assert parse('{"path": "a", "other": 1}', OPEN) == {"path": "a", "other": 1}
    assert parse('{"path": "a", "other": "", "Reasoning": "It is needed."}', SCHEMA) == {
        "path": "a"
    }


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('{"input": {"path": "a"}}', '{"type": "object"}'),
        ('{"name": "a", "args": {"b": 1}}', '{"properties": {"name": {"type": "string"}}}'),
    ],
)
def test_an_object_among_the_arguments_is_not_taken_for_all_of_them(text: str, schema: str) -> None:
    assert parse(text, schema) == json.loads(text)


def test_a_fence_is_found_in_one_pass() -> None:
    with pytest.raises(ToolError, match="a value is missing"):
        parse("```\n" + " " * 1_000_000 + "!", OPEN)


def test_arguments_beyond_the_limit_are_refused() -> None:
    with pytest.raises(ToolError, match="more than 2,000,000 characters"):
        parse('"' + "a" * MOST_CHARACTERS + '"', OPEN)


def test_known_escapes_are_read_in_other_quotes_too() -> None:
    assert parse(r"""{'path': 'it\'s \"C:\\d\/\n\x41\u0042'}""", OPEN) == {
        "path": "it's \"C:\\d/\nAB"
    }


def test_two_escapes_of_one_character_are_one_and_half_of_it_is_replaced() -> None:
    assert parse("{'path': '\\ud83d\\ude00'}", OPEN) == {"path": "\U0001f600"}
    assert parse("{'path': '\\ud83d!'}", OPEN) == {"path": "\ufffd!"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_json_and_the_same_in_python_are_read_alike(value: dict[str, object]) -> None:
    wrapped = {"any": value, "path": "a"}
    assert parse(json.dumps(wrapped), SCHEMA) == wrapped
    if json.dumps(wrapped).isascii() and "\\" not in repr(wrapped):
        assert parse(repr(wrapped), SCHEMA) == wrapped


@given(st.text(alphabet="{}[]()\"':,\\ /*`abn1.eTN\n", max_size=40))
def test_no_text_raises_anything_but_a_tool_error(text: str) -> None:
    with contextlib.suppress(ToolError):
        assert isinstance(parse(text, SCHEMA), dict)
