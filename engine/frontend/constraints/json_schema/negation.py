"""Schemas for what others exclude: `not`, `if`, dependencies, and options of `oneOf` that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

from engine.frontend.constraints.json_schema import keywords
from engine.frontend.constraints.json_schema.document import Document, Schema, SchemaFault
from engine.frontend.constraints.json_schema.keywords import ARRAY, BOOLEAN, NULL, OBJECT, STRING

_DEEPEST = 40  # negated schemas within each other
_OPPOSITES = {
    "minimum": "exclusiveMaximum", "exclusiveMinimum": "maximum",
    "maximum": "exclusiveMinimum", "exclusiveMaximum": "minimum",
}  # fmt: skip
_COUNTS = {
    "minLength": (STRING, "maxLength", -1), "maxLength": (STRING, "minLength", 1),
    "minItems": (ARRAY, "maxItems", -1), "maxItems": (ARRAY, "minItems", 1),
    "minProperties": (OBJECT, "maxProperties", -1), "maxProperties": (OBJECT, "minProperties", 1),
}  # fmt: skip
# They say nothing where they have these values; `format` is an annotation for those who check.
_IDLE = {"additionalProperties": True, "items": True, "uniqueItems": False, "propertyNames": True}


def rewritten(document: Document, schema: Schema, name: str) -> Schema | bool:
    """What a keyword asks, in other keywords. Raises SchemaFault where they cannot say it."""
    match name:
        case "not":
            return _negated(document, schema, name)
        case "if":
            condition = schema["if"]
            yes = {"allOf": [condition, schema.get("then", True)]}
            no = {"allOf": [_negated(document, schema, name), schema.get("else", True)]}
            return {"anyOf": [yes, no]} if "then" in schema or "else" in schema else True
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            found: list[Schema] = []
            for key, asked in keywords.members(document, schema, name).items():
                then = {"required": asked} if isinstance(asked, list) else asked
                silent = {keywords.SILENT: True}
                present = {"properties": {key: True}, "required": [key], "type": OBJECT} | silent
                absent = {"properties": {key: False}} | silent
                found.append({"anyOf": [absent, {"allOf": [present, then]}]})
            return {"allOf": found}
        case _:  # a part of another one, or idle
            return True


def _negated(document: Document, schema: Schema, name: str) -> Schema | bool:
    found = negated(document, schema[name])
    if found is None:
        reason = f"{name} cannot be enforced for this schema, only for simple ones"
        raise SchemaFault(reason, (*document.path(schema), name))
    return found


def negated(document: Document, schema: object, depth: int = 0) -> Schema | bool | None:
    """The schema of all values that do not match one; None: keywords cannot say it."""
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    fields = cast("Schema", schema)
    keywords.check_names(document, fields)
    options: list[Schema | bool] = []
    for name in fields:
        found = _negated_keyword(document, fields, name, depth + 1)
        if found is None:
            return None
        options += found
    return {"anyOf": options, keywords.SILENT: True} if options else False


def _negated_keyword(
    document: Document, schema: Schema, name: str, depth: int
) -> Sequence[Schema | bool] | None:
    """Schemas of the values that do not match a keyword."""
    value: Any = schema[name]
    is_known = name in keywords.OWN or name in keywords.COMBINING
    if not is_known or name == "format" or (name in _IDLE and value is _IDLE[name]):
        return []
    match name:
        case "type":
            asked = keywords.types_of(document, schema)
            names = {keywords.FRACTION: keywords.ONLY_FRACTION}
            rest = [names.get(one, one) for one in keywords.EVERY_TYPE if one not in asked]
            return [{"type": rest}] if rest else []
        case "const":
            return _unequal([value])
        case "enum":
            return _unequal(keywords.listed(document, schema, name))
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            is_draft_4 = any(isinstance(schema.get(one), bool) for one in _OPPOSITES)
            return None if is_draft_4 else [{"type": "number", _OPPOSITES[name]: value}]
        case "pattern":
            return [{"type": STRING, keywords.NOT_PATTERN: [value]}]
        case "required":
            every = keywords.required(document, schema)
            return [{"type": OBJECT, "properties": {one: False}} for one in every]
        case "properties":
            found: list[Schema | bool] = []
            for key, inner in keywords.members(document, schema, name).items():
                without = negated(document, inner, depth)
                if without is None:
                    return None
                if without is not False:
                    fields = {key: without}
                    found.append({"type": OBJECT, "properties": fields, "required": [key]})
            return found
        case "prefixItems":
            every = [
                negated(document, one, depth) for one in keywords.listed(document, schema, name)
            ]
            if None in every:
                return None
            return [
                {"type": ARRAY, "prefixItems": [True] * at + [one], "minItems": at + 1}
                for at, one in enumerate(every)
                if one is not False
            ]
        case "anyOf":
            every = [
                negated(document, one, depth) for one in keywords.listed(document, schema, name)
            ]
            return None if None in every else [{"allOf": every}]
        case "allOf":
            every = [
                negated(document, one, depth) for one in keywords.listed(document, schema, name)
            ]
            return None if None in every else [one for one in every if one is not None]
        case "$ref":
            found_one = negated(document, document.target(schema), depth)
            return None if found_one is None else [found_one]
        case "not":
            return [value]
        case _ if name in _COUNTS:
            kind, opposite, change = _COUNTS[name]
            limit = (keywords.count(document, schema, name) or 0) + change
            return [{"type": kind, opposite: limit}] if limit >= 0 else []
        case _:
            return None


def _unequal(values: Sequence[Any]) -> Sequence[Schema] | None:
    """Schemas of all values but these; None for lists and objects."""
    if any(isinstance(one, list | dict) for one in values):
        return None
    texts = [one for one in values if isinstance(one, str)]
    numbers = [
        one for one in values if isinstance(one, int | Decimal) and not isinstance(one, bool)
    ]
    sides = [{"anyOf": [{"exclusiveMaximum": one}, {"exclusiveMinimum": one}]} for one in numbers]
    found: list[Schema] = [
        {"type": [ARRAY, OBJECT]},
        {"type": STRING, keywords.NOT_STRINGS: texts} if texts else {"type": STRING},
        {"type": "number", "allOf": sides} if sides else {"type": "number"},
        {"type": BOOLEAN, "enum": [one for one in (True, False) if one not in _truths(values)]},
    ]
    return found if None in values else [*found, {"type": NULL}]


def _truths(values: Sequence[Any]) -> list[bool]:
    return [one for one in values if isinstance(one, bool)]
