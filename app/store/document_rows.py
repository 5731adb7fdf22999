"""Fields of parts that are records in JSON: of documents, and the files that a tool returned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from app.domain.documents import DocumentWarning, PageStart, PageUnit, Passage, Reads, Warned
from app.domain.parts import KeptFile
from app.domain.tool_files import safe_file_name

T = TypeVar("T")
_SHA256 = re.compile("[0-9a-f]{64}")


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
        "files": lambda found: _each(found, _kept_file),
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


def _kept_file(found: Any) -> KeptFile:
    """A file of a result; a field of a wrong type gets its default."""
    values = cast("dict[str, Any]", found)
    kept = {
        field.name: values[field.name]
        for field in fields(KeptFile)[2:]
        if type(values.get(field.name)) is type(field.default)
    }
    if not _SHA256.fullmatch(values["sha256"]):
        raise ValueError("no hash")
    return KeptFile(safe_file_name(values["name"]), values["sha256"], **kept)


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
