"""Keywords of JSON schemas: those that describe values, and those that cannot be enforced."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from engine.frontend.constraints.json_schema.document import Document, Schema, SchemaFault

NULL, BOOLEAN, INTEGER, FRACTION = "null", "boolean", "integer", "fraction"
STRING, ARRAY, OBJECT = "string", "array", "object"
EVERY_TYPE = (NULL, BOOLEAN, INTEGER, FRACTION, STRING, ARRAY, OBJECT)
ONLY_FRACTION = "\0fraction"  # a type of schemas that stand for negated ones
NOT_PATTERN, NOT_STRINGS = "\0pattern", "\0strings"  # and keywords of them
SILENT = "\0silent"  # marks those whose properties are none that `unevaluated…` knows
_TYPES = {
    **{name: frozenset((name,)) for name in (NULL, BOOLEAN, INTEGER, STRING, ARRAY, OBJECT)},
    "number": frozenset((INTEGER, FRACTION)),
    ONLY_FRACTION: frozenset((FRACTION,)),
}
# Of the value itself, without those that combine schemas.
OWN = frozenset((
    "type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "pattern", "format", "items", "prefixItems",
    "additionalItems", "minItems", "maxItems", "uniqueItems", "properties", "required",
    "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
    "unevaluatedProperties", "unevaluatedItems",
))  # fmt: skip
COMBINING = frozenset((
    "$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired",
    "dependentSchemas", "dependencies", "contains", "minContains", "maxContains",
))  # fmt: skip
# Those that no grammar can enforce here, and why.
REFUSED = {
    "contains": "whether some item matches shows only at the end of a list",
    "minContains": "whether some item matches shows only at the end of a list",
    "maxContains": "whether some item matches shows only at the end of a list",
    "$dynamicRef": "what it names depends on the schema that refers to it",
    "$recursiveRef": "what it names depends on the schema that refers to it",
}
_MOST, _MOST_AT_ALL = 10_000, 1_000_000  # of a least count, and of any
_SPELLINGS = {name.lower(): name for name in OWN | COMBINING}


def check_names(document: Document, schema: Schema) -> None:
    """Raise SchemaFault for a keyword that cannot be enforced; unknown ones are annotations."""
    path = document.path(schema)
    contains = [name for name in ("contains", "minContains", "maxContains") if name in schema]
    # Without `contains` the counts say nothing; no item has to match where the least count is 0.
    is_idle = "contains" not in schema or (
        schema.get("minContains") == 0 and "maxContains" not in schema
    )
    for name in schema:
        if name in REFUSED and not (is_idle and name in contains):
            raise SchemaFault(f"{name} cannot be enforced: {REFUSED[name]}", (*path, name))
        meant = _SPELLINGS.get(name.lower().replace("_", ""))
        if meant is not None and meant != name and not name.startswith("$"):
            raise SchemaFault(f"{name} is no keyword, {meant} is", (*path, name))


def types_of(document: Document, schema: Schema) -> frozenset[str]:
    """The types that a schema allows."""
    asked = schema.get("type", list(_TYPES))
    names = cast("list[object]", asked) if isinstance(asked, list) else [asked]
    found = frozenset[str]()
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise SchemaFault(f"Invalid type: {name}", (*document.path(schema), "type"))
        found |= _TYPES[name]
    return found


def count(document: Document, schema: Schema, name: str) -> int | None:
    """A count that is not negative; None: the schema has none."""
    value = schema.get(name)
    if value is None and name not in schema:
        return None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = Fraction(value)
        if number > _MOST and name.startswith("min"):
            raise SchemaFault(f"{name} is more than {_MOST:,}", (*document.path(schema), name))
        if number >= 0 and number.denominator == 1:
            return min(int(number), _MOST_AT_ALL)
    raise SchemaFault(f"{name} must be a whole number", (*document.path(schema), name))


def number(document: Document, schema: Schema, name: str) -> Fraction | None:
    """A number, exactly; None: the schema has none."""
    value = schema.get(name)
    if value is None and name not in schema:
        return None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Fraction(value)
    raise SchemaFault(f"{name} must be a number", (*document.path(schema), name))


def text(document: Document, schema: Schema, name: str) -> str | None:
    """A string; None: the schema has none."""
    value = schema.get(name)
    if value is None and name not in schema:
        return None
    if not isinstance(value, str):
        raise SchemaFault(f"{name} must be a string", (*document.path(schema), name))
    return value


def members(document: Document, schema: Schema, name: str) -> dict[str, Any]:
    """An object of schemas by names; empty: the schema has none."""
    value = schema.get(name, {})
    if not isinstance(value, dict):
        raise SchemaFault(f"{name} must be an object", (*document.path(schema), name))
    return cast("dict[str, Any]", value)


def listed(document: Document, schema: Schema, name: str) -> list[Any]:
    """A list; empty: the schema has none."""
    value = schema.get(name, [])
    if not isinstance(value, list):
        raise SchemaFault(f"{name} must be a list", (*document.path(schema), name))
    return cast("list[Any]", value)


def required(document: Document, schema: Schema) -> list[str]:
    """The names of `required`."""
    found = listed(document, schema, "required")
    if not all(isinstance(one, str) for one in found):
        raise SchemaFault(
            "required must be a list of strings", (*document.path(schema), "required")
        )
    return found


def are_equal(one: object, other: object) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | Decimal) and isinstance(other, int | Decimal):
        return Fraction(one) == Fraction(other)
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("Schema", one), cast("Schema", other)
        return left.keys() == right.keys() and all(are_equal(left[k], right[k]) for k in left)
    if isinstance(one, list) and isinstance(other, list):
        first, second = cast("list[object]", one), cast("list[object]", other)
        return len(first) == len(second) and all(map(are_equal, first, second))
    return type(one) is type(other) and one == other


def type_of(value: object) -> str:
    """The type of a JSON value."""
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case Decimal():
            return INTEGER if Fraction(value).denominator == 1 else FRACTION
        case str():
            return STRING
        case list():
            return ARRAY
        case _:
            return OBJECT


def number_text(value: int | Decimal | Fraction) -> str:
    """A number as JSON, without a point where it is an integer."""
    exact = Fraction(value)
    if exact.denominator == 1 and abs(exact) < 10**30:
        return str(int(exact))
    if isinstance(value, Decimal) and (abs(value) >= 10**30 or abs(value) < Decimal("1e-30")):
        return str(value.normalize())
    places = 0
    while 10**places % exact.denominator:
        places += 1
    whole, rest = divmod(abs(exact.numerator) * 10**places // exact.denominator, 10**places)
    fraction = f".{rest:0{places}d}" if places else ""
    return f"{'-' if exact < 0 else ''}{whole}{fraction}"
