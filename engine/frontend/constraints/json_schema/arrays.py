"""The symbol of lists: items by position, then all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.frontend.constraints.json_schema import keywords, objects
from engine.frontend.constraints.json_schema.context import Context, Part
from engine.frontend.constraints.json_schema.document import Schema
from engine.frontend.constraints.json_schema.grammar import Repeat
from engine.frontend.constraints.json_schema.objects import Member
from engine.frontend.constraints.json_schema.tokens import CLOSE_ARRAY, COMMA, OPEN_ARRAY

_MOST_ORDERED = 6  # different values that may be in any order: each set of them is a rule
_MOST_POSITIONS = 12


def symbol(context: Context, own: Sequence[Part]) -> str | None:
    """The symbol of the lists that match all parts; None: there are none."""
    grammar = context.grammar
    schemas: list[Schema] = [part.schema for part in own]
    least, most = objects.limits(context, schemas, "minItems", "maxItems")
    first = max((len(_first(context, one)) for one in schemas), default=0)
    if most is not None:
        first = min(first, most)
    items: list[str] = []
    for at in range(first):
        item = context.of(_inner(context, own, at))
        if item is None:
            most = at
            break
        items.append(item)
    rest = None
    if most is None or most > len(items):
        rest = context.of(_inner(context, own, None))
        if rest is None:
            most = len(items)
    if most is not None and least > most:
        at = next((one for one in schemas if "minItems" in one), None)
        if at is not None:
            context.impossible("Unsatisfiable: too few items are possible", at, "minItems")
        return None
    opening, closing = grammar.regex(OPEN_ARRAY), grammar.regex(CLOSE_ARRAY)
    is_unique = any(one.get("uniqueItems") is True for one in schemas)
    if is_unique and (most is None or most > 1) and not context.loose:
        inner = _unique(context, own, len(items), least, most, closing)
        if inner is not None:
            return grammar.rule((opening, inner))
    if most == 0:
        return grammar.rule((opening, closing))
    if not items and rest is not None:
        items.append(rest)
    comma = grammar.regex(COMMA)
    tail: list[str | Repeat] = [closing]
    if rest is not None and (most is None or most > len(items)):
        top = None if most is None else most - len(items)
        tail = [Repeat((comma, rest), max(least - len(items), 0), top), closing]
    for at in range(len(items) - 1, -1, -1):
        alternatives = [[*([comma] if at else []), items[at], *tail]]
        if at >= least:
            alternatives.append([closing])
        tail = [grammar.rule(*alternatives)]
    return grammar.rule((opening, *tail))


def _first(context: Context, schema: Schema) -> list[Any]:
    """The schemas of the first items; older drafts list them in `items`."""
    if isinstance(schema.get("items"), list):
        return schema["items"]
    return keywords.listed(context.document, schema, "prefixItems")


def _inner(context: Context, own: Sequence[Part], at: int | None) -> list[Part]:
    """The schemas of the item at a position; None: of those behind all positions."""
    found: list[Part] = []
    evaluated: list[tuple[int, ...]] = []
    for part in own:
        schema: Schema = part.schema
        first = _first(context, schema)
        rest = "additionalItems" if isinstance(schema.get("items"), list) else "items"
        if at is not None and at < len(first):
            found.append(Part(first[at]))
        elif rest in schema:
            found.append(Part(schema[rest]))
        else:
            continue
        evaluated.append(part.owners)
    for part in sorted(own, key=lambda one: -len(one.owners)):  # inner ones first
        rest = None if context.loose else part.schema.get("unevaluatedItems")
        if rest is not None and not any(id(part.schema) in owners for owners in evaluated):
            found.append(Part(rest))
            evaluated.append(part.owners)
    return found


def _unique(
    context: Context, own: Sequence[Part], first: int, least: int, most: int | None, closing: str
) -> str | None:
    """What follows the bracket of a list without repetition; None: nothing can repeat in it.

    Items of few values may have any order, those of more values have that of the schema.
    """
    grammar = context.grammar
    at = next(part.schema for part in own if part.schema.get("uniqueItems") is True)
    if first == 0:
        texts = context.values(_inner(context, own, None))
        if texts is not None:
            if most is not None and most > len(texts):
                most = None
            if len(texts) > _MOST_ORDERED:
                members = [Member((grammar.literal(one),)) for one in texts]
                return objects.sequence(context, members, None, least, most, closing)
            return _in_any_order(context, texts, least, most, closing)
    if most is not None and most <= _MOST_POSITIONS:
        positions = [_inner(context, own, at if at < first else None) for at in range(most)]
        pairs = ((one, two) for two in range(most) for one in range(two))
        if all(context.are_disjoint([*positions[one], *positions[two]]) for one, two in pairs):
            return None
    reason = (
        "uniqueItems cannot be enforced for items of any value; "
        "list their values in an enum, or leave it out"
    )
    raise context.fault(reason, at, "uniqueItems")


def _in_any_order(
    context: Context, texts: Sequence[str], least: int, most: int | None, closing: str
) -> str:
    """The rest of a list, by the set of values that it has already."""
    grammar = context.grammar
    comma = grammar.regex(COMMA)
    rules = [grammar.new_rule() for _ in range(1 << len(texts))]
    for used, rule in enumerate(rules):
        count = used.bit_count()
        if count >= least:
            grammar.add(rule, closing)
        if most is not None and count >= most:
            continue
        for at, text in enumerate(texts):
            if not used >> at & 1:
                start = [comma] if used else []
                grammar.add(rule, *start, grammar.literal(text), rules[used | 1 << at])
    return rules[0]
