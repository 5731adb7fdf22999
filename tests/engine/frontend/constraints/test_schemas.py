"""JSON schemas: generated documents are valid, and the cases of the JSON Schema Test Suite."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import tiny
from engine.errors import RequestError
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.messages import Constraint, ConstraintKind

SUITE = json.loads(
    (Path(__file__).parents[3] / "golden" / "json_schema_suite.json").read_text(encoding="utf-8")
)["groups"]
NAMES = ("a", "b", "name", "größe", 'quote"d', "x/y~z", "")
PATTERNS = ("^[a-c]{2,4}$", "^(ab|cd)*$", "[0-9]", "^x?y+", r"^\d{3}-\w$", "^é.$")
ORDERS = 120  # of the properties of a document that are tried

# Why schemas of the suite are refused: what no grammar can express here, and what nothing matches.
UNSUPPORTED = {
    "contains cannot be enforced": {
        "contains: contains keyword validation",
        "contains: contains keyword with const keyword",
        "contains: contains keyword with boolean schema true",
        "contains: contains keyword with boolean schema false",
        "contains: items + contains",
        "contains: contains with false if subschema",
        "contains: contains with null instance elements",
        "unevaluatedItems: unevaluatedItems depends on adjacent contains",
        "unevaluatedItems: unevaluatedItems depends on multiple nested contains",
        "unevaluatedItems: unevaluatedItems and contains interact to control item dependency relationship",
    },
    "uniqueItems cannot be enforced": {  # of any items: there is no memory of earlier ones
        "uniqueItems: uniqueItems validation",
        "uniqueItems: uniqueItems with an array of items",
        "uniqueItems: uniqueItems with an array of items and additionalItems=false",
    },
    "$dynamicRef cannot be enforced": {
        "unevaluatedItems: unevaluatedItems with $dynamicRef",
        "unevaluatedProperties: unevaluatedProperties with $dynamicRef",
    },
    # `not`, `if` and overlapping options of `oneOf` need the negation of a schema in keywords.
    "not cannot be enforced": {
        "not: collect annotations inside a 'not', even if collection is disabled",
    },
    "if cannot be enforced": {
        "unevaluatedProperties: unevaluatedProperties can see annotations from if without then and else",
    },
    "of oneOf overlap": {"unevaluatedProperties: dynamic evalation inside nested refs"},
    # Two of them with one name are one property.
    "minProperties cannot be enforced": {
        "dependentSchemas: dependencies with escaped characters",
    },
    "multipleOf cannot be enforced": {"multipleOf: float division = inf"},
    "is not present in it": {"ref: remote ref, containing refs itself"},
    "Unsatisfiable: no value matches it": {
        "boolean_schema: boolean schema 'false'",
        "allOf: allOf with boolean schemas, some false",
        "allOf: allOf with boolean schemas, all false",
        "anyOf: anyOf with boolean schemas, all false",
        "not: forbid everything with empty schema",
        "not: forbid everything with boolean schema true",
        "oneOf: oneOf with boolean schemas, all true",
        "oneOf: oneOf with boolean schemas, more than one true",
        "oneOf: oneOf with boolean schemas, all false",
        "ref: $ref to boolean schema false",
    },
}
# Valid documents that are not allowed. A document may spell an integer as 1.0; the grammar has 1.
MISSING = {
    "const: const with 0 does not match other zero-like types": 0.0,
    "const: const with 1 does not match true": 1.0,
    "const: const with -2.0 matches integer and float types": -2.0,
    "const: float and integers are equal up to 64-bit representation limits": 9007199254740992.0,
    "enum: enum with 0 does not match false": 0.0,
    "enum: enum with [0] does not match [false]": [0.0],
    "enum: enum with 1 does not match true": 1.0,
    "enum: enum with [1] does not match [true]": [1.0],
    "type: integer type matches integers": 1.0,
    # `if` alone asks nothing, and here it says nothing either.
    "unevaluatedItems: unevaluatedItems can see annotations from if without then and else": ["a"],
    # An answer has the properties of one option.
    "unevaluatedProperties: unevaluatedProperties with anyOf": {
        "foo": "foo", "bar": "bar", "baz": "baz",
    },
    # Where names are declared, no others are written unless a schema says that they may be.
    "additionalProperties: additionalProperties are allowed by default": {
        "foo": 1, "bar": 2, "quux": True,
    },
    "anyOf: anyOf complex types": {"foo": "baz", "bar": 2},
    "properties: object properties validation": {"quux": []},
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with GGUFFile.open(path) as file:
        return vocabulary.find(file).tokenizer()


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.size)


def constraint_of(schema: object) -> Constraint:
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))


# --- random schemas -----------------------------------------------------------------------------


def schema_of(chance: random.Random, depth: int = 3) -> dict[str, Any]:
    """A random schema with the supported keywords."""
    kinds = ["string", "number", "integer", "constant", "plain", "text"]
    kinds += ["object", "object", "array", "any of", "all of"] if depth else []
    match chance.choice(kinds):
        case "object":
            names = chance.sample(NAMES, chance.randint(0, 4))
            made: dict[str, Any] = {
                "type": "object",
                "properties": {name: schema_of(chance, depth - 1) for name in names},
                "required": [name for name in names if chance.random() < 0.6],
            }
            if chance.random() < 0.7:
                made["additionalProperties"] = (
                    False if chance.random() < 0.7 else schema_of(chance, 0)
                )
            return made
        case "array":
            made = {"type": "array", "items": schema_of(chance, depth - 1)}
            if chance.random() < 0.3:
                made["prefixItems"] = [schema_of(chance, 0) for _ in range(chance.randint(1, 3))]
            least = chance.randint(0, 3)
            if chance.random() < 0.5:
                made["minItems"] = least
            if chance.random() < 0.7:
                made["maxItems"] = least + chance.randint(0, 3)
            return made
        case "any of":
            return {"anyOf": [schema_of(chance, depth - 1) for _ in range(chance.randint(1, 3))]}
        case "all of":
            return {
                "allOf": [
                    {"type": "object", "properties": {name: schema_of(chance, 0)}}
                    for name in chance.sample(NAMES, 2)
                ]
            }
        case "string":
            least = chance.randint(0, 6)
            return {"type": "string", "minLength": least, "maxLength": least + chance.randint(0, 9)}
        case "text":
            return {"type": "string", "pattern": chance.choice(PATTERNS)}
        case "number":
            low = round(chance.uniform(-50, 50), 2)
            bounds = {chance.choice(["minimum", "exclusiveMinimum"]): low}
            if chance.random() < 0.7:
                high = round(low + chance.uniform(1, 90), 1)
                bounds[chance.choice(["maximum", "exclusiveMaximum"])] = high
            return {"type": "number"} | bounds
        case "integer":
            low = chance.randint(-1200, 1200)
            made = {"type": "integer", "minimum": low, "maximum": low + chance.randint(1, 5000)}
            if chance.random() < 0.3:
                made = {"type": "integer", "minimum": 0, "multipleOf": chance.randint(1, 7)}
            return made
        case "constant":
            values = [chance.choice(NAMES), 3, -1.5, None, True, [1, "x"], {"a": [None]}]
            if chance.random() < 0.3:
                return {"const": chance.choice(values)}
            return {"enum": chance.sample(values, chance.randint(1, 4))}
        case _:
            return {"type": chance.choice(["string", "boolean", "null", "integer", "number"])}


def document(
    grammars: Grammars, tokenizer: Tokenizer, schema: object, chance: random.Random
) -> str | None:
    """A random text that the grammar allows; None if it does not end."""
    matcher = Matcher(grammars.compile(constraint_of(schema)))
    tokens: list[int] = []
    closing = {tokenizer.encode_within(text)[0] for text in '"}],:7'}
    while not matcher.is_finished:
        if matcher.is_complete and (len(tokens) > 40 or chance.random() < 0.1):
            break
        forced = matcher.forced()
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        allowed = [int(one) for one in np.flatnonzero(bits) if one not in tokenizer.end_tokens]
        preferred = [one for one in allowed if one in closing]
        if forced:
            token = forced[0]
            assert allowed == [token]
        else:
            pressed = preferred and len(tokens) > 40
            token = chance.choice(preferred if pressed else allowed)
        matcher.accept(token)
        tokens.append(token)
        if len(tokens) > 1_500:
            return None
    return b"".join(map(tokenizer.piece, tokens)).decode("utf-8")


def check(grammars: Grammars, tokenizer: Tokenizer, seeds: range) -> None:
    """Generate a document for each schema; nearly all must be supported and end."""
    refused = endless = 0
    for seed in seeds:
        chance = random.Random(seed)
        schema = schema_of(chance)
        try:
            text = document(grammars, tokenizer, schema, chance)
        except RequestError:
            refused += 1
            continue
        if text is None:
            endless += 1
            continue
        errors = list(Draft202012Validator(schema).iter_errors(json.loads(text)))
        assert not errors, (seed, schema, text)
    assert not refused
    assert endless <= max(len(seeds) / 50, 1), endless  # random walks


def test_documents_of_random_schemas_are_valid(grammars: Grammars, tokenizer: Tokenizer) -> None:
    check(grammars, tokenizer, range(30))


@pytest.mark.slow
def test_documents_of_a_thousand_random_schemas_are_valid(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    check(grammars, tokenizer, range(1000, 2000))


# --- the test suite -----------------------------------------------------------------------------


def orders(value: object) -> Iterator[object]:
    """The value with its properties in every order, nested ones too."""
    match value:
        case dict():
            for items in itertools.permutations(value.items()):
                for values in itertools.product(*(list(orders(one)) for _, one in items)):
                    yield dict(zip([name for name, _ in items], values, strict=True))
        case list():
            for values in itertools.product(*map(list, map(orders, value))):
                yield list(values)
        case _:
            yield value


def allows(grammars: Grammars, tokenizer: Tokenizer, schema: object, value: object) -> bool:
    """Whether a schema's grammar allows a document, in some order of its properties."""
    grammar = grammars.compile(constraint_of(schema))
    for ordered in itertools.islice(orders(value), ORDERS):
        text = json.dumps(ordered, ensure_ascii=False)
        matcher, tokens = Matcher(grammar), tokenizer.encode_within(text)
        if matcher.allowed(tokens) == len(tokens):
            for token in tokens:
                matcher.accept(token)
            if matcher.is_complete:
                return True
    return False


def test_cases_of_the_schema_suite(grammars: Grammars, tokenizer: Tokenizer) -> None:
    refused: dict[str, str] = {}
    missing: dict[str, object] = {}
    right = wrong = 0
    for group in SUITE:
        name = f"{group['keyword']}: {group['description']}"
        try:
            grammars.compile(constraint_of(group["schema"]))
        except RequestError as error:
            refused[name] = str(error)
            continue
        for value in group["invalid"]:
            assert not allows(grammars, tokenizer, group["schema"], value), (name, value)
            wrong += 1
        for value in group["valid"]:
            if allows(grammars, tokenizer, group["schema"], value):
                right += 1
            else:
                missing[name] = value
    reasons = {name: reason for reason, names in UNSUPPORTED.items() for name in names}
    assert refused.keys() == reasons.keys()
    assert [text for name, text in refused.items() if reasons[name] not in text] == []
    assert missing == MISSING
    assert right > 450
    assert wrong > 350


# --- endless schemas ----------------------------------------------------------------------------


NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}}
LIST = {"type": "array", "items": {"$ref": "#/$defs/list"}, "minItems": 1}


@pytest.mark.parametrize(
    "schema",
    [
        {**NODE, "required": ["next"]},
        {"$ref": "#/$defs/list", "$defs": {"list": LIST}},
        {"$ref": "#/$defs/list", "$defs": {"list": {**LIST, "prefixItems": [{"$ref": "#"}]}}},
        {"allOf": [{"$ref": "#"}], "type": "object"},
        {
            "type": "object",
            "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#/properties/a"}]}},
            "required": ["a"],
        },
    ],
)
def test_schemas_of_endless_documents_are_refused(grammars: Grammars, schema: object) -> None:
    with pytest.raises(RequestError, match="each would contain another"):
        grammars.compile(constraint_of(schema))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (NODE, '{"next": {"next": {}}}'),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, '{"a": 1}'),
        ({"$ref": "#/$defs/list", "$defs": {"list": {**LIST, "minItems": 0}}}, "[[], [[]]]"),
        (
            {
                "type": "object",
                "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                "required": ["a"],
            },
            '{"a": {"a": null}}',
        ),
    ],
)
def test_schemas_that_may_end_are_not(
    grammars: Grammars, tokenizer: Tokenizer, schema: object, text: str
) -> None:
    assert allows(grammars, tokenizer, schema, json.loads(text))
