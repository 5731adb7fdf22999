"""Forms that a server of tools asks the user to fill in: fields of a flat JSON schema, validated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast
from urllib.parse import urlsplit

from app.domain.visible_text import on_one_line, written_out
from app.system.translation import number, tr

_MOST_FIELDS = 50
_MOST_CHOICES = 200
_MOST_TEXT = 20_000  # letters of a value
_LONGEST_NAME, _LONGEST_HELP = 100, 1_000  # letters
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_TIME = re.compile(r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)")


class FieldKind(Enum):
    """What can be entered."""

    TEXT = auto()
    NUMBER = auto()
    INTEGER = auto()
    SWITCH = auto()
    CHOICE = auto()  # one of `choices`
    CHOICES = auto()  # any of them


@dataclass(frozen=True, slots=True)
class FormField:
    """One value that is asked for; its texts are those of a server, which is not trusted."""

    name: str  # key of the value
    title: str
    kind: FieldKind = FieldKind.TEXT
    help: str = ""
    is_required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()  # value, and its words
    least: float | None = None  # of a number, of the letters of a text, or of chosen values
    most: float | None = None
    format: str = ""  # "email", "uri", "date", "date-time"


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """The fields of a flat schema; a property of another kind is a text."""
    properties = _object(schema.get("properties"))
    required = schema.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    return tuple(
        _field(str(name), _object(each), is_required=name in needed)
        for name, each in list(properties.items())[:_MOST_FIELDS]
    )


def value_of(field: FormField, entered: object) -> tuple[Any, str]:
    """The value of what was entered, None for nothing, and what is wrong with it: one sentence.

    `entered` is a text, a truth value for a switch, or a list of values.
    """
    match field.kind:
        case FieldKind.SWITCH:
            return bool(entered), ""
        case FieldKind.CHOICES:
            chosen = [str(each) for each in cast("list[object]", entered)]
            wrong = _out_of_range(len(chosen), field)
            return chosen, wrong and tr("Choose as many as it asks for: {range}.", range=wrong)
        case FieldKind.CHOICE:
            value = str(entered)
            known = any(value == each for each, _ in field.choices)
            return (value, "") if known else (None, _missing(field))
        case FieldKind.NUMBER | FieldKind.INTEGER:
            return _number(field, str(entered).strip())
        case FieldKind.TEXT:
            text = str(entered)[:_MOST_TEXT]
            if not text:
                return None, _missing(field)
            return text, _wrong_text(field, text)


# --- steps --------------------------------------------------------------------------------------


def _field(name: str, about: Mapping[str, Any], *, is_required: bool) -> FormField:
    kind, choices = _kind(about)
    bounds = {
        FieldKind.TEXT: ("minLength", "maxLength"),
        FieldKind.CHOICES: ("minItems", "maxItems"),
    }.get(kind, ("minimum", "maximum"))
    return FormField(
        name,
        on_one_line(str(about.get("title") or name))[:_LONGEST_NAME],
        kind,
        written_out(str(about.get("description") or ""))[:_LONGEST_HELP],
        is_required,
        about.get("default"),
        choices,
        _bound(about.get(bounds[0])),
        _bound(about.get(bounds[1])),
        str(about.get("format") or ""),
    )


def _kind(about: Mapping[str, Any]) -> tuple[FieldKind, tuple[tuple[str, str], ...]]:
    if choices := _choices(about):
        return FieldKind.CHOICE, choices
    items = _object(about.get("items"))
    if about.get("type") == "array" and (choices := _choices(items)):
        return FieldKind.CHOICES, choices
    kinds = {
        "boolean": FieldKind.SWITCH,
        "integer": FieldKind.INTEGER,
        "number": FieldKind.NUMBER,
    }
    return kinds.get(str(about.get("type")), FieldKind.TEXT), ()


def _choices(about: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The values of an enumeration, and their words."""
    listed = about.get("oneOf") or about.get("anyOf")
    if isinstance(listed, list):
        rows = [_object(each) for each in cast("list[object]", listed)[:_MOST_CHOICES]]
        return tuple(
            (str(each["const"]), on_one_line(str(each.get("title") or each["const"])))
            for each in rows
            if "const" in each
        )
    values, names = about.get("enum"), about.get("enumNames")
    if not isinstance(values, list):
        return ()
    values = [str(each) for each in cast("list[object]", values)[:_MOST_CHOICES]]
    words = cast("list[object]", names) if isinstance(names, list) else []
    if len(words) != len(values):
        words = list(values)
    return tuple((each, on_one_line(str(word))) for each, word in zip(values, words, strict=True))


def _number(field: FormField, text: str) -> tuple[Any, str]:
    if not text:
        return None, _missing(field)
    is_whole = field.kind is FieldKind.INTEGER
    try:
        value = int(text) if is_whole else float(text.replace(",", "."))
        is_finite = math.isfinite(value)
    except (ValueError, OverflowError):
        value, is_finite = math.nan, False
    if not is_finite:
        return None, tr("Enter a whole number.") if is_whole else tr("Enter a number.")
    wrong = _out_of_range(value, field)
    return value, wrong and tr("Enter a number: {range}.", range=wrong)


def _wrong_text(field: FormField, text: str) -> str:
    if wrong := _out_of_range(len(text), field):
        return tr("Its number of letters does not fit: {range}.", range=wrong)
    match field.format:
        case "email" if not _EMAIL.fullmatch(text):
            return tr("Enter an e-mail address.")
        case "uri" if not _is_address(text):
            return tr("Enter an address such as https://example.org.")
        case "date" if not _DATE.fullmatch(text):
            return tr("Enter a date such as 2026-01-31.")
        case "date-time" if not (_DATE.fullmatch(text[:10]) and _TIME.fullmatch(text[10:])):
            return tr("Enter a date and time such as 2026-01-31T12:00:00Z.")
        case _:
            return ""


def _is_address(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme) and text.isprintable() and " " not in text
    except ValueError:
        return False


def _out_of_range(value: float, field: FormField) -> str:
    """The range that a value is out of, in words; "": it is not."""
    least, most = field.least, field.most
    if (least is None or value >= least) and (most is None or value <= most):
        return ""
    if least is None or most is None:
        if least is not None:
            return tr("at least {least}", least=number(least))
        return tr("at most {most}", most=number(most or 0))
    return tr("from {least} to {most}", least=number(least), most=number(most))


def _missing(field: FormField) -> str:
    return tr("This is needed.") if field.is_required else ""


def _bound(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
