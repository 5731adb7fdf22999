"""The symbol of objects: properties in their declared order, then all others.

A name is spelled in one way only, so none of the others is a declared one in disguise.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from engine.frontend.constraints.json_schema import keywords, patterns, scalars
from engine.frontend.constraints.json_schema.context import Context, Part
from engine.frontend.constraints.json_schema.document import Schema, SchemaFault
from engine.frontend.constraints.json_schema.tokens import CLOSE_OBJECT, COLON, COMMA, OPEN_OBJECT

_MOST_PATTERNS = 6  # each combination of them is a kind of names
_STRING: Schema = {"type": "string"}
# What a schema says of names that are not declared.
_OF_OTHERS = (
    "additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """Something of a sequence: its symbols, and whether it must be there."""

    symbols: tuple[str, ...]
    is_required: bool = False


def symbol(context: Context, own: Sequence[Part]) -> str | None:
    """The symbol of the objects that match all parts; None: there are none."""
    document, grammar = context.document, context.grammar
    schemas: list[Schema] = [part.schema for part in own]
    names = dict.fromkeys(
        name for one in schemas for name in keywords.members(document, one, "properties")
    )
    wanted = dict.fromkeys(name for one in schemas for name in keywords.required(document, one))
    names |= dict.fromkeys(wanted)
    known = dict.fromkeys(
        (pattern, scalars.like(context, pattern, one, "patternProperties"))
        for one in schemas
        for pattern in keywords.members(document, one, "patternProperties")
    )
    if len(known) > _MOST_PATTERNS:
        at = next(one for one in schemas if "patternProperties" in one)
        reason = f"more than {_MOST_PATTERNS} patterns of one object are too complex"
        raise context.fault(reason, at, "patternProperties")
    forms = _names(context, own)
    if forms is None:
        return _closed(context, schemas) if not wanted else None
    items: dict[str, Member] = {}
    for name in names:
        literal = scalars.literal_of(context, name)
        matched = {pattern for pattern, like in known if grammar.has(like, patterns.quoted(name))}
        value = context.of(_inner(context, own, name, matched))
        if value is None or not all(grammar.has(form, patterns.quoted(name)) for form in forms):
            if name in wanted:
                at = next(one for one in schemas if name in keywords.required(document, one))
                context.impossible(f"Unsatisfiable: no value for {name!r} matches", at, "required")
                return None
            continue
        items[name] = Member((literal, grammar.regex(COLON), value), name in wanted)
    least, most = _counts(context, schemas)
    others: list[tuple[str, str]] = []
    if most != 0 and not (least <= len(items) and _is_closed(context, own, items)):
        others = _others(context, own, names, [*known], forms)
    if others and least > len(items) + 1 and not context.loose:
        at = next(one for one in schemas if "minProperties" in one)
        reason = "minProperties cannot be enforced for names that are not declared: they may repeat"
        raise context.fault(reason, at, "minProperties")
    opening, closing = grammar.regex(OPEN_OBJECT), grammar.regex(CLOSE_OBJECT)
    other = None
    if others:
        other = grammar.rule(*((key, grammar.regex(COLON), value) for key, value in others))
    inner = sequence(context, [*items.values()], other, least, most, closing)
    return None if inner is None else grammar.rule((opening, inner))


def _is_closed(context: Context, own: Sequence[Part], possible: Collection[str]) -> bool:
    """Whether names are declared, none or some possible ones, and nothing is said of others.

    Then none of these is written. It would be valid, but a model that repeats itself writes names
    without end, and programs that take a value expect the declared names.
    """
    schemas = [part.schema for part in own if keywords.SILENT not in part.schema]
    if context.loose or any(name in schema for schema in schemas for name in _OF_OTHERS):
        return False
    declared = [schema["properties"] for schema in schemas if "properties" in schema]
    return any(not names or any(name in possible for name in names) for names in declared)


def _closed(context: Context, schemas: Sequence[Schema]) -> str | None:
    """The symbol of the object without members."""
    if _counts(context, schemas)[0]:
        return None
    grammar = context.grammar
    return grammar.rule((grammar.regex(OPEN_OBJECT), grammar.regex(CLOSE_OBJECT)))


def _counts(context: Context, schemas: Sequence[Schema]) -> tuple[int, int | None]:
    """The least and the greatest number of members."""
    return limits(context, schemas, "minProperties", "maxProperties")


def limits(
    context: Context, schemas: Sequence[Schema], low: str, high: str
) -> tuple[int, int | None]:
    """The strictest of two counts of schemas."""
    counts = [keywords.count(context.document, one, high) for one in schemas]
    tops = [one for one in counts if one is not None]
    least = max((keywords.count(context.document, one, low) or 0 for one in schemas), default=0)
    if tops and least > min(tops):
        at = next(one for one in schemas if high in one)
        context.impossible(f"{low} is greater than {high}", at, high)
    return least, min(tops, default=None)


def _names(context: Context, own: Sequence[Part]) -> list[str] | None:
    """The terminals that `propertyNames` asks of all names; None: no name matches."""
    found: list[str] = []
    for part in own:
        if "propertyNames" not in part.schema:
            continue
        name = context.of([Part(part.schema["propertyNames"]), Part(_STRING)])
        if name is None:
            return None
        if name[0] != "T":
            raise context.fault("propertyNames refers to itself", part.schema, "propertyNames")
        found.append(name)
    return found


def _inner(
    context: Context, own: Sequence[Part], name: str | None, matched: set[str]
) -> list[Part]:
    """The schemas of a member: of one with this name, or of one with another name."""
    found: list[Part] = []
    evaluated: list[tuple[int, ...]] = []  # the owners of parts that say something about it
    for part in own:
        schema: dict[str, Any] = part.schema
        values: list[Any] = []
        if name is not None and name in schema.get("properties", {}):
            values.append(schema["properties"][name])
        for pattern, inner in schema.get("patternProperties", {}).items():
            if pattern in matched:
                values.append(inner)
        if not values and "additionalProperties" in schema:
            values.append(schema["additionalProperties"])
        if values:
            evaluated.append(part.owners)
        found += map(Part, values)
    for part in sorted(own, key=lambda one: -len(one.owners)):  # inner ones first
        rest = None if context.loose else part.schema.get("unevaluatedProperties")
        if rest is not None and not any(id(part.schema) in owners for owners in evaluated):
            found.append(Part(rest))
            evaluated.append(part.owners)
    return found


def _others(
    context: Context,
    own: Sequence[Part],
    names: dict[str, None],
    known: Sequence[tuple[str, str]],
    forms: list[str],
) -> list[tuple[str, str]]:
    """Names that are not declared, by the patterns that they match, and their values."""
    grammar = context.grammar
    declared = [scalars.literal_of(context, *names)] if names else []
    found: list[tuple[str, str]] = []
    for chosen in product((False, True), repeat=len(known)):
        matched = {pattern for (pattern, _), is_in in zip(known, chosen, strict=True) if is_in}
        inner = _inner(context, own, None, matched)
        if any(part.schema is False for part in inner):
            continue
        wanted = [like for (_, like), is_in in zip(known, chosen, strict=True) if is_in]
        unwanted = [
            scalars.like(context, pattern, own[0].schema, "patternProperties", True)
            for (pattern, _), is_in in zip(known, chosen, strict=True)
            if not is_in
        ]
        key = grammar.both(
            [*wanted, *forms] or [scalars.any_string(context)], [*declared, *unwanted]
        )
        value = None if key is None else context.of(inner)
        if key is not None and value is not None:
            found.append((key, value))
    return found


def sequence(
    context: Context,
    items: Sequence[Member],
    other: str | None,
    least: int,
    most: int | None,
    closing: str,
) -> str | None:
    """The symbol of items in their order, then any number of others, and the closing bracket.

    Others may repeat a name: towards the least count they count as one.
    """
    grammar = context.grammar
    if most is not None and least > most:
        return None
    needed = sum(item.is_required for item in items)
    if needed >= least:
        least = 0
    if most is not None and other is None and most >= len(items):
        most = None
    top = max(least, 1) if most is None else most  # greater counts are not told apart
    comma = grammar.regex(COMMA)

    def after(count: int) -> int:
        return min(count + 1, top)

    # From the end to the beginning: the symbol for what follows so many members.
    follows: list[str | None] = []
    more: list[str | None] = [None] * (top + 1)
    if other is not None:  # after a first one of the others; the least count is reached
        for count in range(top, 0, -1):
            rule = more[count] = grammar.new_rule()
            grammar.add(rule, closing)
            if most is None or count < most:
                grammar.add(rule, comma, other, more[after(count)] or rule)
    for count in range(top + 1):
        rule = grammar.new_rule()
        follows.append(rule)
        if count >= least:
            grammar.add(rule, closing)
        if other is not None and (most is None or count < most) and count + 1 >= least:
            grammar.add(rule, *([comma] if count else []), other, more[after(count)] or "")
    for item in reversed(items):
        earlier: list[str | None] = []
        for count in range(top + 1):
            rule = grammar.new_rule()
            earlier.append(rule)
            if most is None or count < most:
                start = [comma] if count else []
                grammar.add(rule, *start, *item.symbols, follows[after(count)] or "")
            if not item.is_required:
                grammar.add(rule, follows[count] or "")
        follows = earlier
    if len(items) * top > 50_000:
        raise SchemaFault("it is too complex")
    return follows[0]
