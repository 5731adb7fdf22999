"""Schemas as pydantic, zod and schemars write them: each is enforced as a whole, or refused.

Documents are random and hostile walks through the masks, without a model.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for

import tiny
from engine.errors import RequestError
from engine.frontend.tokenizer import vocabulary
from engine.gguf.reader import GGUFFile
from schema_makers import pydantic_schema, schemars_schema, text_of
from schema_walks import TASTES, Walker

ZOD: list[Any] = json.loads(
    (Path(__file__).parents[3] / "golden" / "zod_schemas.json").read_text(encoding="utf-8")
)["schemas"]
# Formats that both sides check; all others are annotations for one of them.
FORMATS = jsonschema.FormatChecker(["date", "email", "ipv4", "ipv6", "uuid"])
# Why valid schemas are refused, of all keywords that these three write.
REASONS = {
    # pydantic's set[str] and schemars' HashSet<String>: a grammar has no memory of earlier items.
    "uniqueItems cannot be enforced",
}
Make = Callable[[int], str]


def zod_schema(number: int) -> str:
    return json.dumps(ZOD[number % len(ZOD)], ensure_ascii=False)


MAKERS: dict[str, tuple[Make, int]] = {
    "pydantic": (lambda number: text_of(pydantic_schema(random.Random(number))), 500),
    "zod": (zod_schema, len(ZOD)),
    "schemars": (lambda number: text_of(schemars_schema(random.Random(number))), 250),
}


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Walker:
    path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with GGUFFile.open(path) as file:
        return Walker(vocabulary.find(file).tokenizer())


def checked(schema: Any) -> Any:
    """A schema without the patterns that Python's regular expressions cannot read."""
    match schema:
        case dict():
            return {
                name: checked(value)
                for name, value in schema.items()
                if name != "pattern" or "\\p{" not in str(value)
            }
        case list():
            return [checked(one) for one in schema]
        case _:
            return schema


def faults(schema: str, document: str) -> list[str]:
    """What jsonschema says of a document; its numbers are exact, as those of the schema are."""
    read = json.loads(schema, parse_float=Decimal)
    usual = jsonschema.Draft202012Validator
    if re.search('"exclusiveM..imum": ?true', schema):  # OpenAPI 3.0 has the booleans of draft 4
        usual = jsonschema.Draft4Validator
    kind = validator_for(read, default=usual)
    validator = kind(checked(read), format_checker=FORMATS)
    value = json.loads(document, parse_float=Decimal)
    return [error.message for error in validator.iter_errors(value)]


def changed(value: Any, chance: random.Random) -> Any:
    """A document that differs in one place, and is often no longer valid."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        match chance.randrange(4):
            case 0:
                return {key: one for key, one in value.items() if key != name}
            case 1:
                return value | {
                    chance.choice(["x", name + "x", "0"]): chance.choice([1, "a", None])
                }
            case _:
                return value | {name: changed(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        match chance.randrange(4):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case _:
                return [*value[:at], changed(value[at], chance), *value[at + 1 :]]
    if isinstance(value, str) and chance.random() < 0.7:
        return chance.choice([value + "x", value[:-1], value.upper(), "x" * 40, ""])
    if isinstance(value, int) and chance.random() < 0.7:
        return chance.choice([value + 1, value - 1, -value, value * 1_000, value + 0.5])
    return chance.choice([None, True, False, 0, 1, -1, 0.5, "a", "", [], {}, 10**19, [1], {"a": 1}])


def check(walker: Walker, make: Make, numbers: Iterable[int]) -> None:
    """Documents of many schemas; what is refused, is for a reason that is written down."""
    ended = endless = rejected = 0
    refused: list[tuple[str, str]] = []
    for number in numbers:
        schema, chance = make(number), random.Random(number)
        try:
            text = walker.document(schema, chance, TASTES[number % len(TASTES)])
        except RequestError as error:
            refused.append((str(error), schema))
            continue
        if text is None:
            endless += 1
            continue
        ended += 1
        assert not faults(schema, text), (number, text, schema)
        other = json.dumps(changed(json.loads(text), chance), ensure_ascii=False)
        if faults(schema, other):
            rejected += 1
            assert not walker.allows(schema, other), (number, other, schema)
    assert [one for one in refused if not any(reason in one[0] for reason in REASONS)] == []
    assert endless < ended / 5  # a walk does not find the end of "includes" and "ends with"
    assert rejected > ended / 5


@pytest.mark.parametrize("name", MAKERS)
def test_documents_of_schemas_that_programs_send(walker: Walker, name: str) -> None:
    check(walker, MAKERS[name][0], range(5_000, 5_030))


@pytest.mark.sweep
@pytest.mark.parametrize("name", MAKERS)
def test_documents_of_many_schemas(walker: Walker, name: str) -> None:
    make, count = MAKERS[name]
    check(walker, make, range(count))
