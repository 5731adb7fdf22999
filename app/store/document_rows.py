"""Fields of a document's part as they are in JSON: enumerations, pages, warnings and passages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from app.domain.documents import DocumentWarning, PageStart, PageUnit, Passage, Reads, Warned

T = TypeVar("T")


def with_records(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with their values; one that cannot be read is left out."""
    read: dict[str, Callable[[Any], Any]] = {
        "unit": PageUnit,
        "reads": Reads,
        "pages": lambda found: _each(found, _page),
        "columns": lambda found: _each(found, str),
        "chosen": lambda found: _each(found, int),
        "warnings": lambda found: _each(found, _warned),
        "passages": lambda found: _each(found, _passage),
    }
    made = dict(values)
    for name in made.keys() & read.keys():
        try:
            made[name] = read[name](made[name])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            del made[name]
    return made


def _each(found: Any, make: Callable[[Any], T]) -> tuple[T, ...]:
    return tuple(make(each) for each in found)


def _page(found: Any) -> PageStart:
    return PageStart(str(found["label"]), int(found["start"]))


def _warned(found: Any) -> Warned:
    return Warned(DocumentWarning(found["warning"]), tuple(map(str, found["pages"])))


def _passage(found: Any) -> Passage:
    """A passage; a field of a wrong type gets its default."""
    values = cast("dict[str, Any]", found)
    kept: dict[str, Any] = {
        "number": int(values["number"]),
        "name": str(values["name"]),
        "text": str(values["text"]),
    }
    for field in fields(Passage)[3:]:
        value = values.get(field.name)
        value = PageUnit(value or "") if field.name == "unit" else value
        if type(value) is type(field.default):
            kept[field.name] = value
    return Passage(**kept)
