"""Random schemas of all keywords against jsonschema, and patterns against `re`, on small texts."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer

from engine.frontend.constraints.json_schema import objects
from engine.frontend.constraints.json_schema.compiler import lark_of
from engine.frontend.constraints.json_schema.document import Document, SchemaFault, parsed
from engine.frontend.constraints.json_schema.patterns import quoted

BYTES = LLTokenizer("byte")
PLAIN = [None, True, False, 0, 1, 2, -1, 0.5, 1.5, "a", "b", "ab", ""]
VALUES: list[Any] = [
    *PLAIN, [], [0], ["a"], [0, 1], ["a", "a"], [None, 0, "a"], [[0]], [{"a": 0}], {}, {"a": 0},
    {"a": "a"}, {"b": 1}, {"a": 0, "b": 1}, {"b": 0, "a": "b"}, {"a": {"a": 0}}, {"c": None},
    {"a": 1, "b": 2, "c": 3}, {"ab": 0}, {"a": [0]}, {"b": "ab", "c": 0},
]  # fmt: skip
TYPES = ["string", "integer", "number", "null", "boolean", "array", "object"]
KEYWORDS = [
    "type",
    "type",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "anyOf",
    "oneOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "const",
    "enum",
    "$ref",
]
# Why random schemas are refused, and among them those that no value matches.
REASONS = ("cannot be enforced", "of oneOf overlap")
NOTHING = ("Unsatisfiable", "no text can match", "greater than")


def orders(value: Any) -> Iterator[Any]:
    """The value with its properties in every order."""
    match value:
        case dict():
            for items in itertools.permutations(value.items()):
                for inner in itertools.product(*(list(orders(one)) for _, one in items)):
                    yield dict(zip([name for name, _ in items], inner, strict=True))
        case list():
            yield from map(list, itertools.product(*(list(orders(one)) for one in value)))
        case _:
            yield value


class Texts:
    """The texts of one schema's grammar."""

    def __init__(self, schema: Any) -> None:
        """Raises SchemaFault."""
        lark = lark_of(Document(parsed(json.dumps(schema))))
        source = json.dumps({"grammars": [{"lark_grammar": lark}]})
        self._start = LLMatcher(BYTES, source, log_level=0)
        assert not self._start.get_error()

    def has(self, text: str) -> bool:
        """Whether a text is one of them."""
        matcher, tokens = self._start.deep_copy(), list(text.encode())
        if matcher.validate_tokens(tokens) < len(tokens):
            return False
        return matcher.consume_tokens(tokens) and matcher.is_accepting()


def schema_of(chance: random.Random, depth: int) -> Any:
    """A random schema, which may combine anything."""
    if not depth or chance.random() < 0.1:
        simple = [{"type": chance.choice(TYPES)}, {"const": chance.choice(PLAIN)}]
        return chance.choice([True, False, {}, *simple, {"enum": chance.sample(PLAIN, 2)}])
    made: dict[str, Any] = {}

    def inner() -> Any:
        return schema_of(chance, depth - 1)

    for _ in range(chance.randint(1, 3)):
        match chance.choice(KEYWORDS):
            case "type" as name:
                several = [["string", "null"], ["integer", "array"], ["object", "number"]]
                made[name] = chance.choice([*TYPES, "object", "object", *several])
            case ("minimum" | "maximum" | "exclusiveMinimum") as name:
                made[name] = chance.choice([0, 1, 0.5, -1])
            case "multipleOf" as name:
                made[name] = chance.choice([1, 2, 0.5])
            case ("minLength" | "maxLength" | "minItems" | "maxItems" | "maxProperties") as name:
                made[name] = chance.randint(0, 2)
            case "minProperties" as name:
                made[name] = chance.randint(0, 1)
            case "pattern" as name:
                made[name] = chance.choice(["^a", "b$", "^a$", "a|b"])
            case "prefixItems" as name:
                made[name] = [inner() for _ in range(chance.randint(1, 2))]
            case "uniqueItems" as name:
                made[name] = True
            case "properties" as name:
                made[name] = {key: inner() for key in chance.sample("abc", chance.randint(1, 2))}
            case "required" as name:
                made[name] = chance.sample("abc", chance.randint(1, 2))
            case "patternProperties" as name:
                made[name] = {chance.choice(["^a", "b"]): inner()}
            case ("anyOf" | "oneOf" | "allOf") as name:
                made[name] = [inner() for _ in range(chance.randint(1, 3))]
            case "if":
                made |= {"if": inner(), "then": inner(), "else": inner()}
            case "dependentRequired" as name:
                made[name] = {chance.choice("ab"): [chance.choice("bc")]}
            case "dependentSchemas" as name:
                made[name] = {chance.choice("ab"): inner()}
            case "const" as name:
                made[name] = chance.choice(VALUES)
            case "enum" as name:
                made[name] = chance.sample(VALUES, 2)
            case "$ref" as name:
                made[name] = chance.choice(["#/$defs/x", "#/$defs/y"])
            case name:
                made[name] = inner()
    return made


def check_schemas(seeds: Iterable[int]) -> None:
    """What the grammars allow is exactly what jsonschema calls valid."""
    texts = [(value, [json.dumps(one) for one in orders(value)]) for value in VALUES]
    refused: list[tuple[str, Any]] = []
    compared = 0
    for seed in seeds:
        chance = random.Random(seed)
        schema: Any = schema_of(chance, chance.choice([1, 2, 2, 3]))
        schema = {} if isinstance(schema, bool) else schema
        schema["$defs"] = {"x": schema_of(chance, 1), "y": schema_of(chance, 1)}
        validator = jsonschema.Draft202012Validator(schema)
        try:
            valid = [validator.is_valid(value) for value in VALUES]
        except RecursionError:
            continue  # a schema that refers to itself alone
        try:
            found = Texts(schema)
        except SchemaFault as fault:
            known = REASONS if any(valid) else (*REASONS, *NOTHING)
            if not any(reason in fault.reason for reason in known):
                refused.append((fault.reason, schema))
            continue
        for (value, spellings), is_valid in zip(texts, valid, strict=True):
            assert any(map(found.has, spellings)) == is_valid, (seed, value, schema)
            compared += 1
    assert refused == []
    assert compared > 500


@pytest.fixture
def _open_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are not declared are written too, as they are valid."""
    monkeypatch.setattr(objects, "_is_closed", lambda *_: False)


@pytest.mark.usefixtures("_open_objects")
def test_schemas_mean_what_jsonschema_says() -> None:
    check_schemas(range(20_000, 20_120))


@pytest.mark.sweep
@pytest.mark.usefixtures("_open_objects")
def test_a_thousand_schemas_mean_what_jsonschema_says() -> None:
    check_schemas(range(1_000))


# --- patterns -----------------------------------------------------------------------------------


ATOMS = [
    "a",
    "b",
    "c",
    "1",
    r"\d",
    r"\w",
    ".",
    "[ab]",
    "[^a]",
    "[a-c1]",
    r"\.",
    r"[^\d]",
    r"\s",
    "-",
]


def pattern_of(chance: random.Random, depth: int) -> str:
    """A random pattern."""
    options: list[str] = []
    for _ in range(chance.choice([1, 1, 1, 2])):
        made = "^" * (chance.random() < 0.3)
        for _ in range(chance.randint(0, 3)):
            kind = chance.random() if depth else 1.0
            if kind < 0.1:
                made += chance.choice(["(?=", "(?!"]) + pattern_of(chance, 0) + ")"
                continue
            inner = pattern_of(chance, depth - 1) if kind < 0.4 else ""
            made += chance.choice(["(", "(?:"]) + inner + ")" if inner else chance.choice(ATOMS)
            made += chance.choice(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?"])
        options.append(made + "$" * (chance.random() < 0.3))
    return "|".join(options)


def check_patterns(seeds: Iterable[int]) -> None:
    """What the patterns match is what Python's regular expressions find."""
    compared = 0
    for seed in seeds:
        chance = random.Random(seed)
        pattern = pattern_of(chance, 2)
        try:
            found = Texts({"type": "string", "pattern": pattern})
        except SchemaFault:
            continue
        for _ in range(25):
            text = "".join(chance.choices("abc1.- x", k=chance.randint(0, 5)))
            wanted = re.search(pattern, text) is not None
            assert found.has(quoted(text)) == wanted, (seed, pattern, text)
            compared += 1
    assert compared > 1_000


def test_patterns_match_what_python_finds() -> None:
    check_patterns(range(150))


@pytest.mark.sweep
def test_a_thousand_patterns_match_what_python_finds() -> None:
    check_patterns(range(1_000, 2_000))


NAMES = "ab/\\\"'#%@&~|*+?.^$()[]{}<>-_ \n\t\r\0\x1b\x7f\x85\u2028\u2029éß中😀\ufeff\u0301!,:;`="


def test_any_text_may_be_a_name_and_a_constant() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        names = {"".join(chance.choices(NAMES, k=chance.randint(0, 6))) for _ in range(3)}
        fields = {name: {"const": name + "x"} for name in names}
        found = Texts({"type": "object", "properties": fields, "required": sorted(names)})
        members = [f"{quoted(name)}:{quoted(name + 'x')}" for name in fields]
        assert found.has(f"{{{','.join(members)}}}"), names
        literal = re.sub(r"([\\^$.*+?()\[\]{}|/-])", r"\\\1", min(names))
        assert Texts({"type": "string", "pattern": f"^{literal}$"}).has(quoted(min(names))), names
