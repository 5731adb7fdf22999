"""What the symbols of all types need of the compiler: the document, the grammar, other symbols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.frontend.constraints.json_schema.document import Document, Schema, SchemaFault
from engine.frontend.constraints.json_schema.grammar import Grammar


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A schema of a list: the whole of it, its own keywords, or one choice of it."""

    schema: Any
    kind: str = "whole"  # or own, or open (own without const and enum), or the name of a choice
    owners: tuple[int, ...] = ()  # schemas with `unevaluated…` that it is a part of, by identity

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other parts."""
        schema = self.schema
        return schema if isinstance(schema, bool) else id(schema), self.kind, self.owners


class Context(ABC):
    """The compiler of a document, as the modules of the types see it."""

    def __init__(self, document: Document, loose: bool) -> None:
        """`loose` allows more than the schemas do: its empty symbols prove that no value matches."""
        self.document, self.loose = document, loose
        self.grammar = Grammar()
        self.reason: SchemaFault | None = None  # why the first impossible schema is one

    @abstractmethod
    def of(self, parts: Iterable[Part]) -> str | None:
        """The symbol for values that match all parts; None: there are none."""

    @abstractmethod
    def values(self, parts: Iterable[Part]) -> list[str] | None:
        """The JSON texts of the values that match all parts; None: they are not so few.

        Lists and objects have several texts.
        """

    @abstractmethod
    def are_disjoint(self, parts: Sequence[Part]) -> bool:
        """Whether it is certain that no value matches all parts."""

    def impossible(self, reason: str, schema: Schema, name: str) -> None:
        """Note why no value matches."""
        if self.reason is None:
            self.reason = SchemaFault(reason, (*self.document.path(schema), name))

    def fault(self, reason: str, schema: Schema, name: str) -> SchemaFault:
        """The error for a keyword of a schema."""
        return SchemaFault(reason, (*self.document.path(schema), name))
