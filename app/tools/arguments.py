"""Arguments of a call: the JSON that a model wrote, read leniently and fitted to the tool's schema.

Small models write JSON with single quotes, trailing commas, Python's `None`, or in a fence, and
numbers as texts. What can mean one thing only is read as that; the rest is an error that says what
to send. Nothing is evaluated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

from app.domain.tools import ToolError

MOST_CHARACTERS = 2_000_000  # of the arguments of a call
_DEEPEST = 40  # objects and lists within each other
_LONGEST_SHOWN = 60  # characters of a wrong value in an error
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_$][\w$-]*")
_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_ESCAPED = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": "",
    **{each: each for each in "\"'\\/"},
}  # fmt: skip
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "None", "undefined", "nil"), None),
}
_WRAPPERS = ("arguments", "parameters", "args", "input")
_ASIDE = ("reason", "reasoning", "explanation", "thought", "comment")  # what changes no call
_YES, _NO = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
_Object = dict[str, Any]


def parse(text: str, schema: str) -> _Object:
    """The arguments in a text, fitted to a tool's schema; raises ToolError."""
    return fit(_object(text, _loaded(schema)), schema)


def fit(arguments: Mapping[str, Any], schema: str) -> _Object:
    """Arguments with the names and types of a schema, where it is clear what is meant.

    Raises ToolError for a missing or a wrong one. Rules beside type and enumeration are left to the
    tool, as are parts of a schema that are more than plain types.
    """
    form = _loaded(schema)
    known = _mapping(form.get("properties"))
    wanted = cast("list[Any]", form.get("required") or ())
    made: _Object = {}
    for name, value in arguments.items():
        key = _key(name, known, arguments)
        if key is None:
            if form.get("additionalProperties", True) is not False:
                made[name] = value
            elif value not in (None, "", False, [], {}) and _plain(name) not in _ASIDE:
                names = ", ".join(f'"{each}"' for each in known) or "none"
                raise ToolError(f'There is no argument "{name[:60]}". The arguments are: {names}.')
            continue
        if value is None and key not in wanted and not _allows(known[key], "null"):
            continue  # an optional one that is left out in words
        made[key] = _fitted(value, _mapping(known[key]), key)
    missing = [str(name) for name in wanted if name not in made]
    if missing:
        names = " and ".join(f'"{name}"' for name in missing)
        are = "s are" if len(missing) > 1 else " is"
        raise ToolError(f"The argument{are} missing: {names}. Send {_example(known, wanted)}.")
    return made


def _key(name: str, known: _Object, arguments: Mapping[str, Any]) -> str | None:
    """The name of an argument in the schema, where the model wrote it another way."""
    if name in known:
        return name
    found = [each for each in known if _plain(each) == _plain(name) and each not in arguments]
    return found[0] if len(found) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _example(known: _Object, wanted: list[Any]) -> str:
    """How the arguments look that must be there."""
    samples: _Object = {"string": "...", "integer": 1, "number": 1, "boolean": True, "array": []}
    made: _Object = {
        str(name): samples.get(str(_mapping(known.get(name)).get("type")), "...") for name in wanted
    }
    return json.dumps(made)


# --- types ----------------------------------------------------------------------------------------


def _fitted(value: Any, form: _Object, name: str) -> Any:
    """A value of the type that a schema has for it; raises ToolError."""
    kind = form.get("type")
    if isinstance(kind, list):
        kinds = [each for each in cast("list[Any]", kind) if each != "null"]
        if value is None or len(kinds) != 1:
            return value
        kind = kinds[0]
    match kind:
        case "string":
            value = _as_text(value, name)
        case "integer":
            value = _as_integer(value, name)
        case "number":
            value = _as_number(value, name)
        case "boolean":
            value = _as_boolean(value, name)
        case "array":
            value = _as_list(value, _mapping(form.get("items")), name)
        case "object":
            if isinstance(value, str):
                value = _object(value, {})
            if not isinstance(value, dict):
                raise _wrong(name, value, "an object")
        case _:
            return value
    return _chosen(value, form.get("enum"), name)


def _as_text(value: Any, name: str) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _digits(value)
        case [str(single)]:
            return single
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)  # the content of a JSON file
        case _:
            raise _wrong(name, value, "a text")


def _digits(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # an integer with thousands of digits
        raise ToolError("A number in the arguments has too many digits.") from None


def _as_integer(value: Any, name: str) -> int:
    number = _as_number(value, name, "a whole number")
    if number != int(number):
        raise _wrong(name, value, "a whole number")
    return int(number)


def _as_number(value: Any, name: str, wanted: str = "a number") -> int | float:
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        if re.fullmatch(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
            text = text.replace(",", "")
        if _NUMBER.fullmatch(text) is None or len(text) > 400:
            raise _wrong(name, value, wanted)
        value = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return value
    except OverflowError:  # an integer with hundreds of digits
        pass
    raise _wrong(name, value, wanted)


def _as_boolean(value: Any, name: str) -> bool:
    word = str(value).strip().casefold() if isinstance(value, str | int) else ""
    if word in _YES or word in _NO:
        return word in _YES
    raise _wrong(name, value, "true or false")


def _as_list(value: Any, items: _Object, name: str) -> list[Any]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = _value_of(value)
        except ToolError:
            value = [value]
    rows = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [_fitted(each, items, name) for each in rows]


def _chosen(value: Any, choices: Any, name: str) -> Any:
    """One of the values of an enumeration."""
    if not isinstance(choices, list) or value in choices:
        return value
    rows = cast("list[Any]", choices)
    found = [each for each in rows if _plain(str(each)) == _plain(str(value))]
    if len(found) == 1:
        return found[0]
    raise _wrong(name, value, "one of " + ", ".join(json.dumps(each) for each in rows))


def _wrong(name: str, value: Any, wanted: str) -> ToolError:
    """The error of a value of another type."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = type(value).__name__
    text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
    return ToolError(f'The argument "{name}" must be {wanted}, not {text}.')


def _allows(form: Any, kind: str) -> bool:
    """Whether a schema names a type."""
    found = _mapping(form).get("type")
    return found == kind or (isinstance(found, list) and kind in found)


def _mapping(value: Any) -> _Object:
    return cast("_Object", value) if isinstance(value, dict) else {}


def _loaded(schema: str) -> _Object:
    """The schema; one that is none has no rules."""
    try:
        return _mapping(json.loads(schema))
    except (ValueError, RecursionError):
        return {}


# --- text -----------------------------------------------------------------------------------------


def _object(text: str, form: _Object) -> _Object:
    """The object in a text; raises ToolError."""
    if len(text) > MOST_CHARACTERS:
        raise ToolError(f"The arguments have more than {MOST_CHARACTERS:,} characters.")
    if not text.strip():
        return {}
    known, single = _mapping(form.get("properties")), _single(form)
    try:
        value = _value_of(text)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _value_of(value)  # JSON within JSON
    except ToolError:
        if single and not text.lstrip().startswith(("{", "[", "`", '"', "'")):
            return {single: text.strip()}
        raise
    if isinstance(value, dict):
        return _unwrapped(cast("_Object", value), known)
    if value is None:
        return {}
    if single:
        return {single: value}
    raise ToolError('The arguments must be a JSON object, such as {"name": "value"}.')


def _single(form: _Object) -> str:
    """The one argument that a tool must be given; "": none or several."""
    wanted = form.get("required")
    match wanted:
        case [str(name)]:
            return name
        case _:
            return ""


def _unwrapped(value: _Object, known: _Object) -> _Object:
    """The arguments of a call that was written in full: `{"name": ..., "arguments": {...}}`."""
    for wrapper in _WRAPPERS:
        inner = value.get(wrapper)
        others = set(value) - {wrapper, *({"name", "type", "id", "function"} - known.keys())}
        if not known or wrapper in known or others or not isinstance(inner, dict | str):
            continue
        if isinstance(inner, str):
            inner = _value_of(inner) if inner.lstrip().startswith("{") else None
        if isinstance(inner, dict):
            return cast("_Object", inner)
    return value


def _value_of(text: str) -> Any:
    """The value of a text of JSON or something like it; raises ToolError."""
    text = text.strip()
    if (fence := _FENCE.match(text)) and text.endswith("```"):
        text = text[fence.end() : -3]
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return _Reader(text).whole()


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(digits: str) -> float:
    if math.isfinite(value := float(digits)):
        return value
    raise ValueError(digits)


class _Reader:
    """Reads one value of a text that is nearly JSON."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self) -> Any:
        """The value, behind which there is nothing."""
        value = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._error("something follows the end of the arguments")
        return value

    def _value(self, depth: int) -> Any:
        self._skip()
        if depth > _DEEPEST:
            raise self._error("the arguments are nested too deeply")
        mark = self._peek()
        if mark == "{":
            return self._mapping(depth)
        if mark in ("[", "("):
            return self._list(depth, "]" if mark == "[" else ")")
        if mark in ('"', "'"):
            return self._string(mark)
        if found := _NUMBER.match(self._text, self._at):
            return self._number(found)
        if found := _WORD.match(self._text, self._at):
            if found[0] not in _WORDS:
                raise self._error(f"texts are written in quotes, not {found[0][:40]}")
            self._at = found.end()
            return _WORDS[found[0]]
        raise self._error("a value is missing")

    def _number(self, found: re.Match[str]) -> int | float:
        text = found[0]
        if len(text) > 400:
            raise self._error("a number has too many digits")
        self._at = found.end()
        value = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        if not math.isfinite(value):
            raise self._error("a number is too large")
        return value

    def _mapping(self, depth: int) -> _Object:
        self._at += 1
        made: _Object = {}
        while not self._ends("}"):
            key = self._name()
            self._skip()
            if self._peek() not in (":", "="):
                raise self._error(f'a colon is missing behind "{key[:40]}"')
            self._at += 1
            made[key] = self._value(depth + 1)
            self._comma("}")
        return made

    def _name(self) -> str:
        mark = self._peek()
        if mark in ('"', "'"):
            return self._string(mark)
        found = _WORD.match(self._text, self._at)
        if found is None:
            raise self._error("the name of an argument is missing")
        self._at = found.end()
        return found[0]

    def _list(self, depth: int, end: str) -> list[Any]:
        self._at += 1
        made: list[Any] = []
        while not self._ends(end):
            made.append(self._value(depth + 1))
            self._comma(end)
        return made

    def _ends(self, end: str) -> bool:
        self._skip()
        if self._peek() != end:
            return False
        self._at += 1
        return True

    def _comma(self, end: str) -> None:
        self._skip()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != end:
            raise self._error(f'"," or "{end}" is missing')

    def _string(self, quote: str) -> str:
        made: list[str] = []
        start = self._at
        self._at += 1
        while True:
            letter = self._peek()
            if not letter:
                self._at = start
                raise self._error("a text has no closing quote")
            self._at += 1
            if letter == quote:  # two escapes may be one character
                joined = "".join(made).encode("utf-16-le", "surrogatepass")
                return joined.decode("utf-16-le", "replace")
            made.append(self._escape() if letter == "\\" else letter)

    def _escape(self) -> str:
        letter = self._peek()
        self._at += 1
        if letter in ("u", "x"):
            digits = self._text[self._at : self._at + (4 if letter == "u" else 2)]
            if re.fullmatch(r"[0-9a-fA-F]{2}(?:[0-9a-fA-F]{2})?", digits) is None:
                raise self._error("an escape is not complete")
            self._at += len(digits)
            return chr(int(digits, 16))
        if letter not in _ESCAPED:  # of "C:\docs" or an expression, others of which may be known
            self._at -= 2
            raise self._error("a backslash in a text is written twice")
        return _ESCAPED[letter]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        if found := _SPACE.match(self._text, self._at):
            self._at = found.end()

    def _error(self, what: str) -> ToolError:
        return ToolError(
            f"The arguments are not valid JSON: {what}, at character {self._at + 1}. "
            'Write one object, such as {"name": "value"}.'
        )
