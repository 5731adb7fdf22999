"""Rows of the table `part`: each part of a message as its kind, JSON, and text."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, cast

from app.domain.documents import TABLE_FAULTS, SearchFault
from app.domain.growing import plain
from app.domain.parts import (
    MOST_IMAGE_TOKENS,
    ErrorPart,
    FilePart,
    ImagePart,
    Part,
    PassagesPart,
    SectionPart,
    TablePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
)
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.store.document_rows import with_records
from engine import Detail, Fault, FaultKind

_NO_CODE = Fault()
_KINDS: dict[str, type[Part]] = {
    "text": TextPart,
    "thought": ThoughtPart,
    "tool call": ToolCallPart,
    "tool result": ToolResultPart,
    "file": FilePart,
    "passages": PassagesPart,
    "section": SectionPart,
    "table": TablePart,
    "image": ImagePart,
    "error": ErrorPart,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_LONG = {
    "tool call": "arguments",
    "image": "",
    "passages": "",
    "error": "",
}  # field in the text column, if not `text`


Row = tuple[str, str, str]  # kind, JSON with its other fields, text


def to_row(part: Part) -> Row:
    """The columns of a part."""
    part = plain(part)
    if type(part) is TextPart:  # most of them, by far
        return _NAMES[TextPart], "", part.text
    kind = _NAMES[type(part)]
    values = asdict(part)
    text = str(values.pop(_LONG.get(kind, "text"), ""))
    defaults = {field.name: field.default for field in fields(type(part))}
    kept = {name: value for name, value in values.items() if value != defaults[name]}
    if isinstance(part, ImagePart) and isinstance(part.detail, Detail) and "detail" in kept:
        kept["detail"] = part.detail.value
    if isinstance(part, ErrorPart):
        kept["fault"] = values["fault"]
    return kind, json.dumps(kept, ensure_ascii=False) if kept else "", text


def from_row(kind: str, data: str, text: str) -> Part:
    """The part of a row; an unknown kind is a text, and a field of a wrong type gets its default."""
    made = _KINDS.get(kind)
    if made is None or made is TextPart:
        return TextPart(text)
    if made is ThoughtPart and not data:
        return ThoughtPart(text)
    values = _object(data)
    if made is ErrorPart:
        values["fault"] = _fault(values.get("fault"))
    elif made in (FilePart, PassagesPart, TablePart, ToolResultPart):
        values = with_records(values)
    if long := _LONG.get(kind, "text"):
        values[long] = text
    fitting: dict[str, Any] = {"detail": _detail(values.get("detail"))} if made is ImagePart else {}
    for field in fields(made):
        default = cast("type[object]", type(field.default))
        wanted = str if field.name in ("name", "text") else default
        if type(value := values.get(field.name)) is wanted or isinstance(
            value, RemoteFault | SearchFault
        ):
            fitting[field.name] = value
        elif field.name == "name":
            fitting["name"] = ""
    return made(**fitting)


def _object(data: str) -> dict[str, Any]:
    """A JSON object; an empty one for another text."""
    try:
        found: object = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _detail(stored: object) -> Detail | int:
    """The stored detail of a picture; one of another version is the standard one."""
    if type(stored) is int and 0 < stored <= MOST_IMAGE_TOKENS:
        return stored
    return next((each for each in Detail if each.value == stored), Detail.STANDARD)


def _fault(stored: object) -> Fault | RemoteFault | SearchFault:
    """The fault of a stored error; one of another version has no code."""
    if not isinstance(stored, dict):
        return _NO_CODE
    try:
        values = {**cast("dict[str, Any]", stored)}
        if (kind := values.get("kind")) in (SearchFault().kind, *TABLE_FAULTS):
            return SearchFault(str(values.get("about", "")), str(kind))
        if "server" in values:
            return RemoteFault(RemoteFaultKind(values.pop("kind")), **values)
        return Fault(FaultKind(values.pop("kind")), **values)
    except (ValueError, TypeError, KeyError):
        return _NO_CODE


def error_of_text(text: str) -> ErrorPart:
    """The error of a text stored before there were parts: JSON with a code, or a sentence."""
    stored = _object(text) if text.startswith("{") else {}
    if "fault" not in stored:
        return ErrorPart(message=text)
    part = from_row("error", text, "")
    return part if isinstance(part, ErrorPart) else ErrorPart(message=text)
