"""The text of a JSON schema: exact numbers, references, and the place of each keyword."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

Schema = dict[str, Any]
Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\r\n]*")
_LARGEST_EXPONENT = 400  # a float ends at 308
# Keywords with a schema or a list of them, and with schemas by names.
_HOLDERS = frozenset((
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "contains",
    "additionalItems", "unevaluatedItems", "additionalProperties", "unevaluatedProperties",
    "propertyNames", "contentSchema",
))  # fmt: skip
_MAPS = frozenset((
    "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions",
))  # fmt: skip


class SchemaFault(Exception):
    """A schema that cannot be used: the reason, and the path of the part that is at fault."""

    def __init__(self, reason: str, path: Path = ()) -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path


def parsed(text: str) -> Any:
    """A JSON text; numbers with a point or an exponent are Decimal, the others are integers.

    Raises ValueError and RecursionError as `json.loads` does.
    """
    return json.loads(text, parse_float=_number, parse_constant=_no_constant)


def _number(text: str) -> Decimal:
    value = Decimal(text)
    if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError(f"{text} has too large an exponent")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def offset_of(text: str, path: Path) -> int:
    """Where a JSON text has the member at a path: its name, or its value if that is a string."""
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    value = found = _after_space(text, 0)
    for step in path:
        at, number, value = _after_space(text, value + 1), 0, -1
        while text[at] not in "]}":
            name: str | int = number
            begin = at
            if isinstance(step, str):
                name, at = decoder.raw_decode(text, at)
                at = _after_space(text, _after_space(text, at) + 1)
            if name == step:
                found, value = begin, at
            at = _after_space(text, decoder.raw_decode(text, at)[1])
            number += 1
            if text[at] == ",":
                at = _after_space(text, at + 1)
        if value < 0:
            return found
    return value if text[value] == '"' else found


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


class Document:
    """A parsed schema and what its references name."""

    def __init__(self, root: Schema | bool, path: Path = ()) -> None:
        """`path` is that of the schema in the text that it was read from."""
        self.root = root
        self._paths: dict[int, Path] = {}  # by identity
        self._bases: dict[int, str] = {}  # the URI that references in a schema are relative to
        self._known: dict[str, object] = {"": root}  # by URI, with the fragments that are anchors
        self._index(root, path, "", True)

    def _index(
        self, part: object, path: Path, base: str, is_schema: bool, is_map: bool = False
    ) -> None:
        if isinstance(part, dict):
            fields = cast("Schema", part)
            own = fields.get("$id", fields.get("id")) if is_schema else None
            if isinstance(own, str):
                base = urljoin(base, own)
                self._known.setdefault(base.removesuffix("#"), fields)
            for name in ("$anchor", "$dynamicAnchor"):
                if is_schema and isinstance(fields.get(name), str):
                    self._known.setdefault(f"{base}#{fields[name]}", fields)
            self._paths[id(fields)], self._bases[id(fields)] = path, base
            for name, value in fields.items():
                holds, maps = is_schema and name in _HOLDERS, is_schema and name in _MAPS
                self._index(value, (*path, name), base, holds or is_map, maps)
        elif isinstance(part, list):
            self._paths[id(cast("object", part))] = path
            for number, value in enumerate(cast("list[object]", part)):
                self._index(value, (*path, number), base, is_schema)

    def path(self, part: object) -> Path:
        """The path of a schema or a list of schemas of this document."""
        return self._paths.get(id(part), ())

    def target(self, schema: Schema) -> object:
        """The schema that `$ref` of a schema names. Raises SchemaFault."""
        reference, path = schema["$ref"], (*self.path(schema), "$ref")
        if not isinstance(reference, str):
            raise SchemaFault("$ref must be a string", path)
        base = self._bases.get(id(schema), "")
        uri = urljoin(base, reference)
        if reference.startswith("#"):
            uri = base.removesuffix("#") + reference
        whole, fragment = urldefrag(uri)
        if not fragment.startswith("/") and (found := self._known.get(uri.removesuffix("#"))):
            return found
        if whole not in self._known:
            raise SchemaFault(f"the schema {whole!r} is not present in it", path)
        found = self._known[whole]
        for step in fragment.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            fields = cast("object", found)
            if isinstance(fields, dict) and name in fields:
                found = cast("Schema", fields)[name]
            elif isinstance(fields, list) and name.isdecimal():
                parts = cast("Sequence[object]", fields)
                found = parts[int(name)] if int(name) < len(parts) else None
            else:
                found = None
            if found is None:
                raise SchemaFault(f"'{fragment}' does not exist", path)
        if fragment and not fragment.startswith("/"):
            raise SchemaFault(f"'#{fragment}' does not exist", path)
        return found
