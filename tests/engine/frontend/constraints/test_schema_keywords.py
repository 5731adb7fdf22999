"""Keywords of JSON schemas: the texts that they allow, and what is refused where."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from engine.errors import RequestError
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.json_schema import numbers, patterns
from engine.frontend.constraints.refusal import RefusedConstraint
from engine.frontend.tokenizer import vocabulary
from engine.gguf.reader import GGUFFile
from engine.messages import Constraint, ConstraintKind
from schema_walks import Walker

Allows = Callable[[Any, str], bool]


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Walker:
    path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with GGUFFile.open(path) as file:
        return Walker(vocabulary.find(file).tokenizer())


@pytest.fixture
def allows(walker: Walker) -> Allows:
    """Whether a schema, as a value or as its text, allows a text."""

    def check(schema: Any, text: str) -> bool:
        return walker.allows(schema if isinstance(schema, str) else json.dumps(schema), text)

    return check


ROLE = {"type": "object", "properties": {"role": {"enum": ["user"]}}, "required": ["role"]}
DIGITS = "1" * 60


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        # An additional name must be allowed, and is never a declared one in disguise.
        (ROLE, ['{"role": "user"}'], ['{"role": "user", "other": 1}']),
        ({"type": "object", "properties": {}}, ["{}"], ['{"a":1}']),
        ({"properties": {"a": False}}, ["{}", '{"b":1}'], ['{"a":1}']),
        ({"properties": {"a": {}}, "minProperties": 2}, ['{"a":1,"b":2}'], ["{}"]),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, ['{"a":1,"b":2}'],
         ['{"c":3}']),
        (ROLE | {"additionalProperties": True}, ['{"role": "user", "other": 1}'], [r'{"role":"user","rol\u0065":"admin"}',
         '{"role":"user","role":"admin"}', r'{"role":"user","x":{},"\u0072ole":1}']),
        ({"properties": {"a\nb": {"type": "null"}}, "additionalProperties": True}, [r'{"a\nb":null}', r'{"a\tb":1}'],
         [r'{"a\u000ab":1}', r'{"a\nb":1}']),
        ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
         ['{"ab":1,"b":"x"}'], [r'{"\u0061b":"x"}', '{"ab":"x"}', '{"b":1,"a":null}']),
        # Numbers end, and are exact.
        ({"type": "integer"}, ["-18446744073709551615", "0"], [DIGITS, "01", "1.0", "1e3"]),
        ({"type": "number"}, ["-1.5e-30", "0.25", "1E9"], [DIGITS, f"0.{DIGITS}", f"1e{DIGITS}"]),
        ({}, ["[1]"], [DIGITS, f"[0.{DIGITS}]"]),
        ({"type": "number", "minimum": 0}, ["0", "0.5", "12345678901234567890"],
         [DIGITS, f"0.{DIGITS}", "-1", "-0.1"]),
        ({"const": 9007199254740993}, ["9007199254740993"], ["9007199254740992"]),
        ({"enum": [1e300, 0.1, 12345678901234567890]}, ["1E+300", "0.1", "12345678901234567890"],
         ["12345678901234567891", "0.10000000000000001"]),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
         ["9223372036854775807", "-9223372036854775808"],
         ["9223372036854775808", "-9223372036854775809"]),
        ({"type": "integer", "exclusiveMinimum": 2**53, "maximum": 2**64 - 1},
         ["9007199254740993", "18446744073709551615"], ["9007199254740992", "18446744073709551616"]),
        ('{"type": "integer", "minimum": 1.0, "maximum": 3e0}', ["1", "3"], ["0", "4"]),
        ({"type": "number", "exclusiveMaximum": 1, "minimum": 0}, ["0.99"], ["1", "0.99999999999999999999"]),
        ('{"type": "number", "maximum": 1.7976931348623157e308}', ["-3.5", "2.25"], [DIGITS]),
        ({"multipleOf": 0.01, "type": "number"}, ["19.99", "7"], ["1.005", "19.999"]),
        ({"multipleOf": 7, "type": "integer"}, ["49", "-7"], ["48"]),
        ({"multipleOf": 7, "type": "integer", "minimum": 43, "maximum": 50}, ["49"], ["42", "56"]),
        # Formats and other annotations.
        ({"type": "string", "format": "uri-reference"}, ['"a b"'], ["1"]),
        ({"type": "string", "format": "password", "minLength": 2}, ['"ab"'], ['"a"']),
        ({"anyOf": [{"type": "string", "minLength": 5, "maxLength": 2}, {"type": "integer"}]},
         ["7"], ['"abcde"', '"ab"']),
        ({"type": "integer", "format": "int64"}, ["5"], ['"5"']),
        ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"2023-13-01"']),
        ({"format": "uuid", "type": "string"}, [], ['"x"']),
        ({"title": "T", "description": "([{", "default": 1, "examples": [2], "$comment": "c",
          "deprecated": True, "readOnly": True, "writeOnly": False, "contentEncoding": "base64",
          "contentMediaType": "text/plain", "contentSchema": {"type": "integer"}, "nullable": True,
          "discriminator": {"propertyName": "x"}, "x-order": 1, "example": "e", "xml": {},
          "type": "string", "enumNames": ["a"], "markdownDescription": "m"}, ['"a"'], ["1"]),
        # Keywords that say nothing.
        ({"type": "array", "maxItems": 1, "uniqueItems": True, "items": {"enum": ["red", "blue"]}},
         ["[]", '["red"]'], ['["red","red"]', '["green"]']),
        ({"type": "array", "uniqueItems": False, "minItems": 0}, ["[1,1]"], ["{}"]),
        ({"type": "object", "minProperties": 0, "additionalProperties": True, "patternProperties": {},
          "propertyNames": True, "dependentRequired": {}, "required": []}, ['{"a":1}'], ["[]"]),
        ({"type": "array", "minContains": 2, "prefixItems": []}, ["[1]"], ["1"]),
        ({"allOf": [{}, True], "anyOf": [{"type": "null"}], "not": False}, ["null"], ["1"]),
        # Lists without repetition.
        ({"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", 3]}},
         ["[]", '["b","a"]', '[3, "a", "b"]'], ['["a","a"]', '["a","b","a"]']),
        ({"type": "array", "uniqueItems": True, "minItems": 2, "items": {"type": "boolean"}},
         ["[false,true]"], ["[true]", "[true,true]"]),
        ({"type": "array", "uniqueItems": True, "items": {"enum": [*"abcdefgh"]}, "maxItems": 3},
         ['["a","c","h"]'], ['["a","a"]', '["a","b","c","d"]']),
        ({"type": "array", "uniqueItems": True, "prefixItems": [{"type": "string"}, {"type": "number"}],
          "maxItems": 2}, ['["a",1]'], ['["a","a"]']),
        # One of several.
        ({"oneOf": [{"type": "string"}, {"type": "null"}, {"const": 3}]}, ["null", "3"], ["4"]),
        ({"oneOf": [{"type": "object", "properties": {"t": {"const": one}, "v": {}}, "required": ["t"]}
                    for one in "ab"]}, ['{"t":"b","v":1}'], ['{"t":"c"}', '{"v":1}']),
        ({"oneOf": [{"type": "object", "properties": {one: {}}, "required": [one],
                     "additionalProperties": False} for one in "ab"]},
         ['{"a":1}'], ['{"a":1,"b":2}', "{}"]),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
         ['{"a":1,"c":2}'], ['{"a":1,"b":2}', "{}"]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["1.5"], ["1"]),
        ({"oneOf": [{"maximum": 3, "type": "integer"}, {"minimum": 5, "type": "integer"}]}, ["3", "5"], ["4"]),
        # Classes of characters as in ECMA 262.
        ({"type": "string", "pattern": r"^\d\w[\d]$"}, ['"1a2"'], ['"١a2"', '"1é2"', '"1a١"']),
        # Conditions.
        ({"not": {"type": ["string", "object"]}}, ["1", "[]", "null"], ['"a"', "{}"]),
        ({"type": "string", "not": {"enum": ["a", "b"]}}, ['"ab"', '""'], ['"a"', '"b"']),
        ({"type": "integer", "not": {"const": 0}}, ["1", "-10"], ["0"]),
        ({"properties": {"k": {"enum": ["n", "s"]}, "v": {}}, "required": ["k", "v"], "type": "object",
          "if": {"properties": {"k": {"const": "n"}}}, "then": {"properties": {"v": {"type": "integer"}}},
          "else": {"properties": {"v": {"type": "string"}}}},
         ['{"k":"n","v":1}', '{"k":"s","v":"x"}'], ['{"k":"n","v":"x"}', '{"k":"s","v":1}']),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, ['{"a":1,"b":2}', "{}"], ['{"a":1}']),
        # References and merged parts.
        ({"$ref": "#/$defs/a%25b~1c", "$defs": {"a%b/c": {"type": "null"}}}, ["null"], ["1"]),
        ({"allOf": [{"$ref": "#/$defs/b"}], "properties": {"y": {"type": "integer"}}, "required": ["y"],
          "$defs": {"b": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}}},
         ['{"x":"a","y":1}'], ['{"y":1}', '{"x":"a"}', '{"x":1,"y":1}']),
        ({"$ref": "#/$defs/b", "description": "d", "unevaluatedProperties": False,
          "$defs": {"b": {"properties": {"x": {}}}}}, ['{"x":1}'], ['{"x":1,"z":1}']),
        # A reference into a list of options, as in a tree whose parts refer to each other.
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a/anyOf/0"}]}},
          "required": ["a"], "type": "object"}, ['{"a":null}'], ['{"a":1}']),
        # Within an object: a length of thousands, and patterns that are found anywhere.
        ({"properties": {"o": {"properties": {"s": {"maxLength": 65535, "type": "string"}}}}},
         ['{"o":{"s":"x"}}'], ['{"o":{"s":1}}']),
        ({"properties": {"o": {"properties": {"s": {"pattern": r"\S", "type": "string"}}}}},
         ['{"o":{"s":" x "}}'], ['{"o":{"s":"  "}}']),
        ({"type": "string", "pattern": r"^hello there indeed\!$"}, ['"hello there indeed!"'], ['"hello"']),
        # Texts with brackets.
        ({"enum": ["(" * 150, "[{(" * 50]}, [json.dumps("(" * 150)], ["1"]),
        ({"type": "string", "pattern": r"^\(+\[{3}$"}, ['"(([[["'], ['"[[["']),
        # Patterns that look ahead.
        ({"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d).{4,}$"}, ['"ab1X"'], ['"ab1x"', '"A1"']),
        ({"type": "string", "pattern": r"^(?!\.)(?!.*\.\.)[a-z.]+$"}, ['"a.b"'], ['".a"', '"a..b"']),
        ({"type": "string", "pattern": r"^P(?:\d+W|(?!.*W)T(?=\d)(\d+H)?)?$"}, ['"P1W"', '"PT1H"'], ['"PT"']),
    ],
)  # fmt: skip
def test_texts_of_keywords(allows: Allows, schema: Any, right: list[str], wrong: list[str]) -> None:
    assert [one for one in right if not allows(schema, one)] == []
    assert [one for one in wrong if allows(schema, one)] == []


def test_properties_have_their_declared_order(walker: Walker, allows: Allows) -> None:
    names = ["zeta", "10", "alpha", "2", "mid"]
    every = {"type": "object", "properties": {name: {"type": "null"} for name in names}}
    base = {"$ref": "#/$defs/base", "properties": {"last": {"type": "null"}}, "required": ["last"]}
    whole = base | {"$defs": {"base": every | {"required": names}}}
    ordered = dict.fromkeys(names)
    assert allows(every, json.dumps(ordered))
    assert allows(whole, json.dumps(ordered | {"last": None}))
    assert not allows(whole, json.dumps({"last": None} | ordered))
    assert not allows(every, json.dumps(dict(reversed(ordered.items()))))


@pytest.mark.parametrize(
    ("schema", "said", "line", "column"),
    [
        ('{"type": "array",\n "items": {"type": "string"}, "uniqueItems": true}', "uniqueItems", 2, 31),
        ('{"type": "array",\n "contains": {}}', "contains cannot be enforced", 2, 2),
        ('{"items": {"$dynamicRef":\n"#a"}}', "$dynamicRef cannot be enforced", 2, 1),
        ('{"oneOf": [\n{"minLength": 1}, {"maxLength": 3, "items": {}, "if": {}}]}', "1 and 2 of oneOf", 1, 2),
        ('{"not":\n {"patternProperties": {"a": {}}}}', "not cannot be enforced", 1, 2),
        ('{"type": "string",\n"pattern": "a\\\\b"}', "\\b in a pattern", 2, 12),
        ('{"type": "string",\n"pattern": "(?<=a)b"}', "looks behind", 2, 12),
        ('{"type": "string",\n"pattern": "(a)\\\\1"}', "back reference", 2, 12),
        ('{"type": "string",\n"pattern": "(?i)a"}', "flags", 2, 12),
        ('{"type": "string",\n"pattern": "^((?!a).)*$"}', "repeated part", 2, 12),
        ('{"patternProperties":\n {"a(": {}}}', "unclosed group", 2, 3),
        ('{"type": "object",\n"minProperties": 3}', "minProperties cannot be enforced", 2, 1),
        ('{"type": "integer",\n"multipleOf": 86400}', "multipleOf cannot be enforced for 86400", 2, 1),
        ('{"type": "string",\n"minLength": 100000}', "more than 10,000", 2, 1),
        ('{"type": "string",\n"minlength": 3}', "minlength is no keyword, minLength is", 2, 1),
        ('{"type": "string",\n"maxLength": -3}', "must be a whole number", 2, 1),
        ('{"properties": {\n"a": {"enum": "x"}}}', "enum must be a list", 2, 15),
        ('{"properties": {\n"a": 3}}', "a schema must be an object", 1, 1),
        ('{"type": "object",\n"required": "a"}', "required must be a list", 2, 13),
        ('{"type": "object", "properties": {"a":\n{"const": 1, "minimum": 2}}, "required": ["a"]}', "Unsatisfiable", 2, 2),
        ('{"properties": {"a": {\n"required": true}}}', "required must be a list", 2, 1),
        ('{"minimum": 1e999999}', "huge number", 1, 1),
        ('{"minimum": NaN}', "huge number", 1, 1),
        ('{"$ref": "#/$defs/a", "$defs": {"a":\n {"type": "text"}}}', "Invalid type: text", 2, 11),
    ],
)  # fmt: skip
def test_faults_have_their_place(
    walker: Walker, schema: str, said: str, line: int, column: int
) -> None:
    with pytest.raises(RefusedConstraint) as caught:
        walker.grammars.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema))
    assert said in caught.value.sentence
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_fault_in_a_tool_has_its_place(walker: Walker) -> None:
    text = json.dumps({"rules": {"start": [[{"schema": 0}]]}, "schemas": [True, True]}, indent=1)
    bad = text[: text.rindex("true")] + '{"type":\n"text"}' + text[text.rindex("true") + 4 :]
    with pytest.raises(RefusedConstraint, match="Invalid type: text") as caught:
        walker.grammars.compile(Constraint(ConstraintKind.TOOLS, bad))
    assert (caught.value.line, caught.value.column) == (14, 1)


def test_brackets_that_are_characters_are_not_nested() -> None:
    grammars = Grammars()
    brackets = "(" * 150
    for kind, text in (
        (ConstraintKind.CHOICES, json.dumps([brackets, "[{"])),
        (ConstraintKind.REGEX, "\\(" * 150 + "[(]" * 120),
        (ConstraintKind.GBNF, f'root ::= "{brackets}" [({{]+'),
        (ConstraintKind.LARK, f'start: "{brackets}" /[({{]+/'),
    ):
        grammars.compile(Constraint(kind, text))
    with pytest.raises(RequestError, match="nested more than 100 deep"):
        grammars.compile(Constraint(ConstraintKind.REGEX, brackets + ")" * 150))


# --- numbers as text ----------------------------------------------------------------------------


@given(
    st.none() | st.integers(-(10**19), 10**19),
    st.none() | st.integers(-(10**19), 10**19),
    st.lists(st.integers(-(10**19), 10**19), max_size=5),
)
def test_integers_of_a_range(low: int | None, high: int | None, others: list[int]) -> None:
    expression = numbers.integers(low, high)
    bounds = [one for one in (low, high) if one is not None]
    for value in {0, *others, *(one + change for one in bounds for change in (-1, 0, 1))}:
        inside = (low is None or value >= low) and (high is None or value <= high)
        found = expression is not None and re.fullmatch(expression, str(value)) is not None
        assert found == inside, (value, expression)


DECIMALS = st.decimals(-(10**6), 10**6, places=4)


@given(
    st.none() | DECIMALS, st.none() | DECIMALS, st.booleans(), st.booleans(),
    st.lists(DECIMALS, max_size=5),
)  # fmt: skip
def test_decimals_of_a_range(
    low: Decimal | None, high: Decimal | None, above: bool, below: bool, others: list[Decimal]
) -> None:
    limits = [None if one is None else Fraction(one) for one in (low, high)]
    bounds = numbers.Range(limits[0], limits[1], above, below)
    expression = numbers.decimals(bounds)
    near = [one + Decimal(change) for one in (low, high) if one is not None
            for change in ("-0.0001", "0", "0.0001")]  # fmt: skip
    for value in {*others, *near}:
        text = format(value or Decimal(0), "f")
        found = expression is not None and re.fullmatch(expression, text) is not None
        assert found == bounds.has(Fraction(value)), (text, expression)


@given(st.integers(1, 400), st.integers(0, 3), st.integers(-10_000, 10_000))
def test_multiples_by_their_last_digits(count: int, places: int, value: int) -> None:
    step = Fraction(count, 10**places)
    expression = numbers.multiples(step)
    if expression is None:
        return
    text = format(Decimal(value).scaleb(-places), "f")
    is_one = (Fraction(text) / step).denominator == 1
    found = re.fullmatch(expression, text) or re.fullmatch(expression, text.split(".")[0])
    if re.fullmatch(expression, text):
        assert is_one, (text, step)
    if is_one and (value or not places):
        assert found, (text, step)


def test_each_string_has_one_spelling() -> None:
    every = re.compile(f'"{patterns.CHARACTER}*"')
    for code in (*range(0x300), 0x2028, 0xFEFF, 0x1F600):
        character = chr(code)
        assert every.fullmatch(patterns.quoted(character)), code
        assert json.loads(patterns.quoted(character)) == character
        others = {json.dumps(character), json.dumps(character, ensure_ascii=False)}
        others |= {f'"\\u{code:04x}"', f'"\\u{code:04X}"'} if code < 0x10000 else set()
        assert not any(map(every.fullmatch, others - {patterns.quoted(character)})), code
