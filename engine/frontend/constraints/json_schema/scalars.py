"""The symbols of null, booleans, numbers and strings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from engine.frontend.constraints.json_schema import keywords, numbers, patterns
from engine.frontend.constraints.json_schema.context import Context
from engine.frontend.constraints.json_schema.document import Schema, SchemaFault
from engine.frontend.constraints.json_schema.formats import PATTERNS
from engine.frontend.constraints.json_schema.keywords import FRACTION, INTEGER

_FEW = 500  # multiples on each side of 0
_EXACT = 1 << 53  # the library counts with floats
_LARGEST_STEP = 5_000  # the library has a state for each remainder


def symbols(
    context: Context, schemas: Sequence[Schema], types: frozenset[str]
) -> Iterator[str | None]:
    """The symbols of the types that match all schemas, which have no `const` or `enum`."""
    if keywords.NULL in types:
        yield context.grammar.literal("null")
    if keywords.BOOLEAN in types:
        yield context.grammar.literal("true", "false")
    if INTEGER in types or FRACTION in types:
        yield _number(context, schemas, INTEGER in types, FRACTION in types)
    if keywords.STRING in types:
        yield string(context, schemas)


def constants(context: Context, schemas: Sequence[Schema], values: Sequence[Any]) -> str | None:
    """The symbol of those values that are no lists and no objects, and match all schemas."""
    plain, strings = _texts(context, schemas, values)
    found = [context.grammar.literal(*dict.fromkeys(plain))] if plain else []
    if strings:
        literal = context.grammar.literal(*dict.fromkeys(strings))
        wanted, unwanted = _limits(context, schemas)
        found.append(context.grammar.both([literal, *wanted], unwanted) or "")
    return context.grammar.union(filter(None, found))


def texts(context: Context, schemas: Sequence[Schema], values: Sequence[Any]) -> list[str] | None:
    """The JSON texts of those values that match all schemas; None: some are lists or objects."""
    if any(isinstance(one, list | dict) for one in values):
        return None
    plain, strings = _texts(context, schemas, values)
    wanted, unwanted = _limits(context, schemas)
    grammar = context.grammar
    fitting = [one for one in strings if grammar.both([grammar.literal(one), *wanted], unwanted)]
    return [*dict.fromkeys((*plain, *fitting))]


def _texts(
    context: Context, schemas: Sequence[Schema], values: Sequence[Any]
) -> tuple[list[str], list[str]]:
    """The JSON texts of values that are no strings and match all schemas, and of the strings."""
    texts: list[str] = []
    strings: list[str] = []
    bounds, step = _bounds(context, schemas)[0], _step(context, schemas)
    for value in values:
        match value:
            case None:
                texts.append("null")
            case bool():
                texts.append("true" if value else "false")
            case int() | Decimal():
                exact = Fraction(value)
                if bounds.has(exact) and (step is None or (exact / step).denominator == 1):
                    texts.append(keywords.number_text(value))
            case str():
                strings.append(_quoted(value))
            case _:
                pass
    return texts, strings


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SchemaFault("half a character in a string cannot be enforced") from None
    return patterns.quoted(text)


# --- strings ------------------------------------------------------------------------------------


def string(context: Context, schemas: Sequence[Schema]) -> str | None:
    """The terminal of the strings that match all schemas."""
    wanted, unwanted = _limits(context, schemas)
    if not wanted:
        wanted.append(any_string(context))
    found = context.grammar.both(wanted, unwanted)
    if found is None:
        at = next((one for one in schemas if "pattern" in one or "minLength" in one), None)
        if at is not None:
            name = "pattern" if "pattern" in at else "minLength"
            context.impossible("Unsatisfiable: no string matches", at, name)
    return found


def any_string(context: Context) -> str:
    """The terminal of all strings."""
    return context.grammar.regex(f'"{patterns.CHARACTER}*"')


def literal_of(context: Context, *texts: str) -> str:
    """The terminal of some strings."""
    return context.grammar.literal(*map(_quoted, texts))


def _limits(context: Context, schemas: Sequence[Schema]) -> tuple[list[str], list[str]]:
    """The terminals that a string has to match, and those that it must not."""
    document, grammar = context.document, context.grammar
    wanted: list[str] = []
    unwanted: list[str] = []
    least, most = 0, None
    for schema in schemas:
        least = max(least, keywords.count(document, schema, "minLength") or 0)
        longest = keywords.count(document, schema, "maxLength")
        most = longest if most is None else min(most, most if longest is None else longest)
        if most is not None and least > most:
            name = "minLength" if "minLength" in schema else "maxLength"
            context.impossible("minLength is greater than maxLength", schema, name)
        pattern = keywords.text(document, schema, "pattern")
        if pattern is not None:
            wanted.append(like(context, pattern, schema, "pattern"))
        name = keywords.text(document, schema, "format")
        if name in PATTERNS and not context.loose:
            wanted.append(like(context, PATTERNS[name], schema, "format"))
        for other in schema.get(keywords.NOT_PATTERN, ()):
            unwanted.append(like(context, other, schema, "pattern", True))
        if keywords.NOT_STRINGS in schema:
            unwanted.append(literal_of(context, *schema[keywords.NOT_STRINGS]))
    if least or most is not None:
        most_text = "" if most is None else str(max(most, least))
        lengths = f"{{{least},{most_text}}}"
        if most is not None and least > most:
            wanted.append(grammar.regex(r"[^\x00-\x{10ffff}]"))
        wanted.append(grammar.regex(f'"{patterns.CHARACTER}{lengths}"'))
    return wanted, unwanted


def like(
    context: Context, pattern: str, schema: Schema, name: str, is_excluded: bool = False
) -> str:
    """The terminal of the strings in which a pattern is found."""
    try:
        found = patterns.strings_like(pattern, wide=context.loose != is_excluded)
    except patterns.PatternFault as fault:
        path = (*context.document.path(schema), name)
        is_name = name == "patternProperties"
        raise SchemaFault(str(fault), (*path, pattern) if is_name else path) from None
    return _terminal(context, found)


def _terminal(context: Context, expression: patterns.Expression) -> str:
    """The terminal of an expression."""
    if expression.kind == "regex":
        return context.grammar.regex(expression.regex)
    sign = {"row": " ", "any": " | ", "all": " & "}[expression.kind]
    parts = ["~" * part.is_negated + _terminal(context, part) for part in expression.parts]
    return context.grammar.terminal(sign.join(parts))


# --- numbers ------------------------------------------------------------------------------------


def _bounds(
    context: Context, schemas: Sequence[Schema]
) -> tuple[numbers.Range, tuple[Schema, str] | None]:
    """The range of numbers, and the last keyword that narrows it."""
    low = high = None
    above = below = False
    last = None
    for schema in schemas:
        for name, outside in (("minimum", False), ("exclusiveMinimum", True)):
            if isinstance(schema.get(name), bool):  # as in draft 4
                continue
            value = keywords.number(context.document, schema, name)
            outside = outside or schema.get("exclusiveMinimum") is True
            if value is not None and (low is None or (value, outside) > (low, above)):
                low, above, last = value, outside, (schema, name)
        for name, outside in (("maximum", False), ("exclusiveMaximum", True)):
            if isinstance(schema.get(name), bool):
                continue
            value = keywords.number(context.document, schema, name)
            outside = outside or schema.get("exclusiveMaximum") is True
            if value is not None and (high is None or (-value, outside) > (-high, below)):
                high, below, last = value, outside, (schema, name)
    return numbers.Range(low, high, above, below), last


def _step(context: Context, schemas: Sequence[Schema]) -> Fraction | None:
    """What the numbers are multiples of."""
    found: Fraction | None = None
    for schema in schemas:
        step = keywords.number(context.document, schema, "multipleOf")
        if step is None:
            continue
        if step <= 0:
            raise context.fault("multipleOf must be more than 0", schema, "multipleOf")
        found = step if found is None else _common_multiple(found, step)
    return found


def _common_multiple(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(
        math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator)
    )


def _number(
    context: Context, schemas: Sequence[Schema], integers: bool, fractions: bool
) -> str | None:
    """The symbol of the numbers that match all schemas."""
    (bounds, last), step = _bounds(context, schemas), _step(context, schemas)
    if integers and not fractions:
        step = _common_multiple(step or Fraction(1), Fraction(1))
    grammar = context.grammar
    is_whole = step is not None and step.denominator == 1
    low, high = bounds.integers()
    if context.loose:
        return None if _is_empty(bounds, step) else grammar.literal("1")
    found = numbers.integers(low, high) if is_whole else numbers.decimals(bounds)
    if found is None or _is_empty(bounds, step):
        if last is not None:
            reason = "minimum is greater than maximum, or no number lies between"
            context.impossible(reason, *last)
        return None
    if not integers:
        wanted = [grammar.regex(found), grammar.regex(numbers.NO_INTEGER)]
        endings = None if step is None else numbers.multiples(step)
        return grammar.both([*wanted, *([grammar.regex(endings)] if endings else [])])
    if step is None or step == 1:
        return grammar.regex(found)
    if endings := numbers.multiples(step):
        return grammar.both([grammar.regex(found), grammar.regex(endings)])
    return _multiples(context, bounds, step, schemas)


def _is_empty(bounds: numbers.Range, step: Fraction | None) -> bool:
    """Whether a range has no multiple of a number."""
    low, high = bounds.low, bounds.high
    if low is None or high is None:
        return False
    if step is None:
        return low > high or (low == high and (bounds.above or bounds.below))
    first, last = numbers.Range(low / step, high / step, bounds.above, bounds.below).integers()
    return first is not None and last is not None and first > last


def _multiples(
    context: Context, bounds: numbers.Range, step: Fraction, schemas: Sequence[Schema]
) -> str | None:
    """The multiples that their last digits do not show: some of them, or the integers by the library."""
    grammar = context.grammar
    scaled = numbers.Range(
        None if bounds.low is None else bounds.low / step,
        None if bounds.high is None else bounds.high / step,
        bounds.above, bounds.below,
    )  # fmt: skip
    first, last = scaled.integers()
    least = -_FEW if first is None else max(first, -_FEW)
    most = _FEW if last is None else min(last, _FEW)
    values = [step * one for one in range(least, most + 1)]
    few = grammar.literal(*map(keywords.number_text, values)) if values else None
    if (first, last) == (least, most):
        return few
    whole = _common_multiple(step, Fraction(1))
    low, high = bounds.integers()
    low, high = (
        max(-_EXACT if low is None else low, -_EXACT),
        min(_EXACT if high is None else high, _EXACT),
    )
    if whole > _LARGEST_STEP or low > high:
        at = next(one for one in schemas if "multipleOf" in one)
        raise context.fault(
            f"multipleOf cannot be enforced for {whole}: the last digits do not show it",
            at,
            "multipleOf",
        )
    fields = f'"type":"integer","multipleOf":{whole},"minimum":{low},"maximum":{high}'
    every = grammar.rule((f"%json {{{fields}}}",))
    return every if step == whole else grammar.union((few, every))
