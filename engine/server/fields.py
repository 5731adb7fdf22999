"""Fields of a JSON body: typed reading, where a wrong type is one sentence that names the field."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from engine.server.errors import ApiError, bad_field

MOST_DEPTH = 100  # nested arrays and objects
_MOST_VALUES, _BETWEEN = 1_000_000, (b",", b"[", b"{")
_LARGEST = sys.float_info.max  # of a number; infinity is larger

Json = Any  # None, bool, int, float, str, list, dict


def parse(raw: bytes, list_as: str = "") -> Fields:
    """The fields of a body in UTF-8; raises ApiError for anything but an object of JSON.

    Where `list_as` is given, a list is an object with that field.
    """
    if sum(map(raw.count, _BETWEEN)) > _MOST_VALUES:  # no other thread runs while it is parsed
        most = f"{_MOST_VALUES:,} commas and opening brackets"
        raise ApiError(413, f"The body has more than {most}; send fewer or shorter lists.")
    if not raw.strip():
        raise ApiError(400, "The body is empty; it must be a JSON object.")
    try:
        found = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ApiError(400, "The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ApiError(400, f"The body is not JSON: {error.msg} at {where}.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # NaN, or a number with thousands of digits
        raise ApiError(400, f"The body is not JSON: {error}.") from None
    if list_as and isinstance(found, list):
        found = {list_as: found}
    if not isinstance(found, dict):
        raise ApiError(400, f"The body must be a JSON object, not {_kind(found)}.")
    _check(found)
    return Fields(found)


class Fields:
    """The fields of an object; `null` is as good as absent. Unknown fields are never read."""

    def __init__(self, values: Mapping[str, Json], path: str = "") -> None:
        """`path` is the place of the object in the body, as in "messages[0]."."""
        self.values = values
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str) -> Json:
        """A field of any type; None if it is absent."""
        return self.values.get(name)

    def fail(self, name: str, problem: str) -> NoReturn:
        """Raise the error that a field is wrong: `problem` goes on after its name."""
        raise bad_field(f"{self.path}{name}", problem)

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        return self._typed(name, str, "a string", default)

    def required_text(self, name: str) -> str:
        """A string that must be given."""
        if name not in self:
            self.fail(name, "is missing; give a string.")
        return self.text(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        return self._typed(name, bool, "true or false", default)

    def integer(
        self, name: str, default: int, least: int | None = None, most: int | None = None
    ) -> int:
        """A whole number within bounds; 8.0 is one too."""
        value = self._number(name, "a whole number")
        if value is None:
            return default
        if value != int(value):
            self.fail(name, f"must be a whole number, not {value}.")
        self._check_range(name, value, least, most)
        return int(value)

    def number(
        self, name: str, default: float, least: float | None = None, most: float | None = None
    ) -> float:
        """A number within bounds."""
        value = self._number(name, "a number")
        if value is None:
            return default
        self._check_range(name, value, least, most)
        return float(value)

    def items(self, name: str) -> list[Json]:
        """A list; [] if it is absent."""
        return self._typed(name, list, "a list", [])

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, or one string; () if it is absent."""
        value = self.get(name)
        found = [value] if isinstance(value, str) else self.items(name)
        for at, one in enumerate(found):
            if not isinstance(one, str):
                self.fail(f"{name}[{at}]", f"must be a string, not {_kind(one)}.")
        return tuple(found)

    def object(self, name: str) -> Fields | None:
        """An object; None if it is absent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(name, f"must be an object, not {_kind(value)}.")
        return Fields(value, f"{self.path}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; [] if it is absent."""
        found: list[Fields] = []
        for at, one in enumerate(self.items(name)):
            if not isinstance(one, dict):
                self.fail(f"{name}[{at}]", f"must be an object, not {_kind(one)}.")
            found.append(Fields(one, f"{self.path}{name}[{at}]."))
        return found

    def some_objects(self, name: str) -> list[Fields]:
        """A list of objects that must have one at least."""
        if not (found := self.objects(name)):
            self.fail(name, f"is missing or empty; give a list of {name}.")
        return found

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few strings."""
        value = self.text(name, default)
        if value not in (*choices, default):
            self.fail(name, f"must be one of {', '.join(choices)}, not {value[:50]!r}.")
        return value

    def _typed(self, name: str, kind: type, words: str, default: Json) -> Json:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            self.fail(name, f"must be {words}, not {_kind(value)}.")
        return value

    def _number(self, name: str, words: str) -> int | float | None:
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(name, f"must be {words}, not {_kind(value)}.")
        if abs(value) >= 1 << 63:
            self.fail(name, "is too large a number.")
        return value

    def _check_range(
        self, name: str, value: float, least: float | None, most: float | None
    ) -> None:
        if least is not None and value < least:
            self.fail(name, f"must be {least} or more, not {value}.")
        if most is not None and value > most:
            self.fail(name, f"must be {most} or less, not {value}.")


def _check(root: Json) -> None:
    """Raise ApiError for too deep nesting, for text that is no Unicode: lone surrogates, and for
    numbers that no float can hold: 1e999 is infinity to Python's parser.
    """
    level: list[Json] = [root]
    for _ in range(MOST_DEPTH):
        below: list[Json] = []
        for one in level:
            if isinstance(one, dict):
                below += one
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif isinstance(one, str) and not one.isascii():
                try:
                    one.encode()
                except UnicodeEncodeError:
                    message = "The body has half a character: a \\u escape without its other half."
                    raise ApiError(400, message) from None
            elif isinstance(one, int | float) and not -_LARGEST <= one <= _LARGEST:
                raise ApiError(400, "The body has a number that is too large.")
        if not below:
            return
        level = below
    raise _too_deep()


def _too_deep() -> ApiError:
    return ApiError(400, f"The body is nested too deeply: more than {MOST_DEPTH} levels.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _kind(value: Json) -> str:
    """The JSON type of a value in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"
