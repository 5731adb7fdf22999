"""Schemas that must hold together, compiled to one symbol of a grammar.

A symbol stands for a list of schemas, all of which a value matches. References and `allOf` add to
the list; `anyOf` and `oneOf` give one list for each of their options. Equal lists are one symbol,
so a schema may refer to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from engine.frontend.constraints.json_schema import arrays, keywords, negation, objects, scalars
from engine.frontend.constraints.json_schema.context import Context, Part
from engine.frontend.constraints.json_schema.document import Document, Schema, SchemaFault
from engine.frontend.constraints.json_schema.keywords import ARRAY, OBJECT

_MOST_STEPS = 50_000
_MOST_PAIRS = 2_000
_MOST_OVERLAPS = 2_000  # symbols of a compiler that proves schemas disjoint
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


@dataclass(frozen=True, slots=True)
class _Flat:
    own: list[Part]
    choices: list[tuple[int, Part]]  # with the number of own parts before it


class Compiler(Context):
    """Compiles the schemas of one document."""

    def __init__(self, document: Document, loose: bool = False) -> None:
        super().__init__(document, loose)
        self.is_endless = False  # whether a schema asks for itself
        self._symbols: dict[tuple[object, ...], str | None] = {}
        self._pending: set[str] = set()
        self._called: set[str] = set()  # rules that are used before they are done
        self._made: dict[object, Any] = {}  # schemas that stand for others
        self._checked: set[int] = set()
        self._steps = 0
        self._overlap: Compiler | None = None
        self._pairs = 0  # of schemas that were compared

    # --- one symbol -----------------------------------------------------------------------------

    def of(self, parts: Iterable[Part]) -> str | None:
        flat = self._flat(parts)
        if flat is None:
            return None
        key = (
            *(part.key for part in flat.own),
            *((place, choice.key) for place, choice in flat.choices),
        )
        if key in self._symbols:
            found = self._symbols[key]
            if found in self._pending:
                self._called.add(cast("str", found))
            return found
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise SchemaFault("it is too complex")
        rule = self._symbols[key] = self.grammar.new_rule()
        self._pending.add(rule)
        found = (
            self.grammar.union(map(self.of, self._options(flat)))
            if flat.choices
            else self._typed(flat.own)
        )
        self._pending.discard(rule)
        if found is not None and rule in self._called:
            self.grammar.add(rule, found)
        self._symbols[key] = found
        return found

    def values(self, parts: Iterable[Part]) -> list[str] | None:
        flat = self._flat(parts)
        if flat is None:
            return []
        if flat.choices:
            found: dict[str, None] = {}
            for some in map(self.values, self._options(flat)):
                if some is None:
                    return None
                found |= dict.fromkeys(some)
            return [*found]
        values, types = self._values(flat.own), self._types(flat.own)
        if values is None:
            if not types <= {keywords.NULL, keywords.BOOLEAN}:
                return None
            values = [None, True, False]
        fitting = [one for one in values if keywords.type_of(one) in types]
        schemas = [part.schema for part in flat.own]
        return scalars.texts(self, schemas, fitting)

    def made(self, key: object, schema: Any) -> Any:
        """A schema that stands for another, the same one for the same key."""
        return self._made.setdefault(key, schema)

    def are_disjoint(self, parts: Sequence[Part]) -> bool:
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            raise SchemaFault("it is too complex")
        if self._overlap is None or self._overlap._steps > _MOST_OVERLAPS:
            self._overlap = Compiler(self.document, loose=True)
        return not self._overlap.grammar.has_text(self._overlap.of(parts))

    # --- lists of schemas -----------------------------------------------------------------------

    def _flat(self, parts: Iterable[Part]) -> _Flat | None:
        """The own keywords and the choices of schemas; None: one matches nothing."""
        flat = _Flat([], [])
        seen: set[tuple[object, ...]] = set()
        within: set[int] = set()

        def add(part: Part) -> bool:
            if part.key in seen:
                is_within = part.kind == "whole" and id(part.schema) in within
                self.is_endless |= is_within
                return not is_within
            seen.add(part.key)
            if part.kind in ("own", "open"):
                flat.own.append(part)
                return True
            if part.kind != "whole":
                flat.choices.append((len(flat.own), part))
                return True
            if isinstance(part.schema, bool):
                return part.schema
            within.add(id(part.schema))
            possible = all(map(add, self._parts_of(part)))
            within.discard(id(part.schema))
            return possible

        return flat if all(map(add, parts)) else None

    def _parts_of(self, part: Part) -> list[Part]:
        """The parts that a schema consists of, in the order of its keywords."""
        document, schema, owners = self.document, part.schema, part.owners
        if not isinstance(schema, dict):
            raise SchemaFault("a schema must be an object, true or false", document.path(schema))
        fields = cast("Schema", schema)
        if id(fields) not in self._checked:
            keywords.check_names(document, fields)
            self._checked.add(id(fields))
        if keywords.SILENT in fields:
            owners = ()
        if any(name in fields for name in _UNEVALUATED):
            owners = (*owners, id(fields))
        found: list[Part] = []
        has_own = False
        for name in fields:
            if name in keywords.OWN:
                if not has_own:
                    found.append(Part(fields, "own", owners))
                has_own = True
            elif name == "$ref":
                found.append(Part(document.target(fields), "whole", owners))
            elif name == "allOf":
                every = keywords.listed(document, fields, name)
                found += [Part(one, "whole", owners) for one in every]
            elif name in ("anyOf", "oneOf"):
                options = keywords.listed(document, fields, name)
                only = len(options) == 1
                found.append(
                    Part(options[0], "whole", owners) if only else Part(fields, name, owners)
                )
            elif name in keywords.COMBINING and not self.loose:
                made = self.made((id(fields), name), negation.rewritten(document, fields, name))
                found.append(Part(made, "whole", owners))
        return found

    def _options(self, flat: _Flat) -> list[list[Part]]:
        """The lists that the options of the first choice give."""
        (place, choice), *others = flat.choices
        before, after = flat.own[:place], flat.own[place:]
        rest = [part for _, part in others]
        options = [
            Part(one, "whole", choice.owners)
            for one in keywords.listed(self.document, choice.schema, choice.kind)
        ]
        if not options:
            self.impossible("Unsatisfiable: it has no options", choice.schema, choice.kind)
        if choice.kind == "oneOf" and not self.loose:
            options = self._exclusive(choice, options, flat.own)
        return [[*before, option, *after, *rest] for option in options]

    def _exclusive(self, choice: Part, options: list[Part], own: list[Part]) -> list[Part]:
        """The options of `oneOf`, each without the values of others. Raises SchemaFault."""
        found: list[Part] = []
        overlapping: list[list[int]] = [[] for _ in options]
        tags = [self._tags(option) for option in options]
        for at, one in enumerate(options):
            for other in range(at + 1, len(options)):
                if not (
                    _differ(tags[at], tags[other]) or self.are_disjoint([*own, one, options[other]])
                ):
                    overlapping[at].append(other)
                    overlapping[other].append(at)
        for at, one in enumerate(options):
            schema = one.schema
            others = [options[other].schema for other in overlapping[at]]
            if others:
                without = [negation.negated(self.document, other) for other in others]
                if None in without:
                    other = overlapping[at][without.index(None)]
                    raise self.fault(
                        f"the options {min(at, other) + 1} and {max(at, other) + 1} of oneOf "
                        "overlap, and that exactly one matches cannot be enforced; "
                        "use anyOf, or make them differ in a required constant",
                        choice.schema, "oneOf",
                    )  # fmt: skip
                schema = self.made((id(choice.schema), at), {"allOf": [schema, *without]})
            found.append(Part(schema, "whole", one.owners))
        return found

    def _tags(self, option: Part) -> dict[str, frozenset[str]]:
        """The texts that a schema asks of properties that its values have, by their names."""
        flat = self._flat([option])
        schemas = [] if flat is None else [part.schema for part in flat.own]
        if not any(schema.get("type") == OBJECT for schema in schemas):
            return {}
        names = {name for one in schemas for name in keywords.required(self.document, one)}
        found: dict[str, frozenset[str]] = {}
        for schema in schemas:
            for name, inner in keywords.members(self.document, schema, "properties").items():
                if name in names and isinstance(inner, dict):
                    fields = cast("Schema", inner)
                    values = fields.get("enum", [fields["const"]] if "const" in fields else None)
                    if isinstance(values, list) and all(isinstance(one, str) for one in values):
                        found[name] = frozenset(cast("list[str]", values))
        return found

    # --- values ---------------------------------------------------------------------------------

    def _types(self, own: list[Part]) -> frozenset[str]:
        """The types that are left."""
        types = frozenset(keywords.EVERY_TYPE)
        for part in own:
            asked = types & keywords.types_of(self.document, part.schema)
            if types and not asked:
                self.impossible("Unsatisfiable: no type is left", part.schema, "type")
            types = asked
        return types

    def _typed(self, own: list[Part]) -> str | None:
        """The symbol for a list without choices."""
        values, types = self._values(own), self._types(own)
        schemas = [part.schema for part in own]
        if values is not None:
            fitting = [one for one in values if keywords.type_of(one) in types]
            found = [scalars.constants(self, schemas, fitting)]
            free = [Part(part.schema, "open", part.owners) for part in own]
            for one in fitting:
                if isinstance(one, list | dict):
                    found.append(self.of([Part(self._constant(one)), *free]))
            symbol = self.grammar.union(found)
            if symbol is None:
                name = "const" if "const" in schemas[-1] else "enum"
                at = next((one for one in schemas if name in one), schemas[-1])
                self.impossible("Unsatisfiable: no value is left", at, name)
            return symbol
        return self.grammar.union(
            (
                *scalars.symbols(self, schemas, types),
                arrays.symbol(self, own) if ARRAY in types else None,
                objects.symbol(self, own) if OBJECT in types else None,
            )
        )

    def _values(self, own: list[Part]) -> list[Any] | None:
        """The values that `const` and `enum` leave; None: there are no such keywords."""
        found: list[Any] | None = None
        for part in own:
            if part.kind == "open":
                continue
            lists: list[list[Any]] = []
            if "const" in part.schema:
                lists.append([part.schema["const"]])
            if "enum" in part.schema:
                lists.append(keywords.listed(self.document, part.schema, "enum"))
            for some in lists:
                found = some if found is None else [
                    one for one in found if any(keywords.are_equal(one, other) for other in some)
                ]  # fmt: skip
        return found

    def _constant(self, value: list[Any] | dict[str, Any]) -> Schema:
        """The schema of one list or object, which lists its parts."""
        if isinstance(value, list):
            inner = [{"const": one} for one in value]
            made = {"type": ARRAY, "prefixItems": inner, "items": False, "minItems": len(value)}
            return self.made(("constant", id(value)), made)
        fields = {name: {"const": one} for name, one in value.items()}
        made = {"type": OBJECT, "properties": fields, "required": [*value]}
        return self.made(("constant", id(value)), made | {"additionalProperties": False})


def _differ(one: dict[str, frozenset[str]], other: dict[str, frozenset[str]]) -> bool:
    """Whether two kinds of objects differ in a property that both have."""
    return any(name in other and texts.isdisjoint(other[name]) for name, texts in one.items())


def lark_of(document: Document) -> str:
    """The Lark grammar of a schema. Raises SchemaFault."""
    compiler = Compiler(document)
    try:
        start = compiler.of([Part(document.root)])
        if start is not None and compiler.grammar.has_text(start):
            return compiler.grammar.lark(start)
    except RecursionError:
        raise SchemaFault("it is nested too deeply") from None
    if compiler.reason is not None:
        raise compiler.reason
    if start is None and not compiler.is_endless:
        raise SchemaFault("Unsatisfiable: no value matches it")
    raise SchemaFault("no text can match it, for each would contain another")
