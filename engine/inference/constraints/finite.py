"""JSON schemas that only endless documents match, such as an object that requires itself."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote

Schema = dict[str, Any]
_MOST_STEPS = 100_000
_DEEPEST = 200  # schemas within each other


def is_endless(schema: Schema) -> bool:
    """Whether every document of a schema contains another of the same schema.

    False where that is not certain: other types than objects and arrays, unresolved references.
    """
    return _Search(schema).is_endless(schema, frozenset())


class _Search:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._ended: set[int] = set()  # schemas with a finite document, by identity
        self._steps = 0

    def is_endless(self, schema: object, within: frozenset[int]) -> bool:
        """Whether the schema needs itself or one of those that it is in, all of them inside it."""
        if not isinstance(schema, dict) or id(schema) in self._ended:
            return False
        if id(schema) in within:
            return True
        self._steps += 1
        if self._steps > _MOST_STEPS or len(within) > _DEEPEST:
            return False
        fields, inside = cast("Schema", schema), within | {id(schema)}
        found = any(self.is_endless(one, inside) for one in self._needed(fields))
        for name in ("anyOf", "oneOf"):
            choices = fields.get(name)
            if isinstance(choices, list) and choices:
                found = found or all(
                    self.is_endless(one, inside) for one in cast("list[object]", choices)
                )
        if not found:
            self._ended.add(id(schema))
        return found

    def _needed(self, fields: Schema) -> list[object]:
        """The schemas of parts that every document of a schema has."""
        found = [self._target(fields["$ref"])] if isinstance(fields.get("$ref"), str) else []
        if isinstance(all_of := fields.get("allOf"), list):
            found += cast("list[object]", all_of)
        properties, required = fields.get("properties"), fields.get("required")
        if fields.get("type") == "object" and isinstance(required, list):
            known = cast("Schema", properties) if isinstance(properties, dict) else {}
            names = [name for name in cast("list[object]", required) if isinstance(name, str)]
            found += [known[name] for name in names if name in known]
        least = fields.get("minItems")
        if fields.get("type") == "array" and isinstance(least, int) and least > 0:
            first = fields.get("prefixItems")
            parts = cast("list[object]", first)[:least] if isinstance(first, list) else []
            found += parts if len(parts) == least else [*parts, fields.get("items")]
        return found

    def _target(self, reference: str) -> object:
        """The schema that a reference within the document names."""
        found: object = self._root
        if not reference.startswith("#"):
            return None
        for step in filter(None, reference[1:].split("/")):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = cast("Schema", found).get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = cast("list[object]", found)[int(name)]
            else:
                return None
        return found
