"""Learning a format: calls are rendered by a model's chat template, and the texts around them compared.

What was learned counts only if it reads the rendered calls back; else a table of families is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from engine.frontend.tool_formats.formats import Kind, ToolFormat
from engine.frontend.tool_formats.parser import CallDelta, ToolCallParser
from engine.frontend.tool_formats.tables import FORMATS, GENERIC, HARMONY, KNOWN
from engine.frontend.tool_formats.values import GEMMA_QUOTE
from engine.frontend.tool_messages import (
    QUESTION,
    IdStyle,
    Render,
    ToolStyle,
    definitions,
)
from engine.messages import Tool, ToolCall
from engine.messages.reasoning_markers import Message

_TEXT, _VALUE, _SECOND = "Certainly", "MarkedValue", "7"
# Empty thoughts before the calls of an answer.
_NO_THOUGHTS = re.compile(r"\A\s*(?:<\|START_(\w+)\|>\s*<\|END_\1\|>|<(\w+)>\s*</\2>)")
_KEY, _NEXT_KEY = "marked_key", "second_key"
_FIRST = ToolCall(
    "functions.marked_tool:0", "marked_tool", f'{{"{_KEY}": "{_VALUE}", "{_NEXT_KEY}": {_SECOND}}}'
)
_OTHER = ToolCall(
    "functions.other_tool:1", "other_tool", '{"other_key": "OtherValue", "last_key": 7}'
)


def _probe_tool(call: ToolCall) -> Tool:
    properties = {
        key: {"type": "string" if isinstance(value, str) else "integer", "description": "Key"}
        for key, value in json.loads(call.arguments).items()
    }
    return Tool(call.name, "Tool", json.dumps({"type": "object", "properties": properties}))


_TOOLS = (_probe_tool(_FIRST), _probe_tool(_OTHER))


def find_format(source: str, style: ToolStyle, render: Render) -> ToolFormat:
    """The format of a template with this source."""
    if not style.is_native:
        return GENERIC
    rendered = _Rendered.of(style, render)
    if rendered is not None:
        if "<|channel|>" in rendered.one and f"to=functions.{_FIRST.name}" in rendered.one:
            return HARMONY
        found = _learned(rendered, style)
        if found is not None:
            tag = "<|python_tag|>"
            if found.at_start and tag in source:
                found = replace(found, noise=(tag,))
            if rendered.is_read_by(found):
                return found
    for marker, name in KNOWN:
        if marker in source:
            return FORMATS[name]
    return GENERIC


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Calls as the template writes them, without what is around every answer."""

    one: str
    two: str  # "": the template takes one call only
    lead: str  # white space between a text and the calls

    @classmethod
    def of(cls, style: ToolStyle, render: Render) -> _Rendered | None:
        def written(text: str, calls: Sequence[ToolCall]) -> str:
            answer: Message = {"role": "assistant", "content": text}
            messages = [
                {"role": "user", "content": QUESTION},
                style.with_calls(answer, calls) if calls else answer,
            ]
            options = {"tools": definitions(_TOOLS), "add_generation_prompt": False}
            return (render(messages, options) or "").rpartition(QUESTION)[2]

        before, _, after = written(_TEXT, ()).partition(_TEXT)
        one, two = written("", (_FIRST,)), written("", (_FIRST, _OTHER))
        with_text = written(_TEXT, (_FIRST,))
        if _FIRST.name not in one:
            return None
        said, text, call = with_text.partition(_TEXT)
        lead = ""
        if text and _FIRST.name in call and _FIRST.name not in said:
            lead = call[: len(call) - len(call.lstrip())]
            call = call.removeprefix(lead)
            marker = call[: call.index(_FIRST.name)]
            start = max(one.rfind(marker, 0, one.index(_FIRST.name) + 1), 0) if marker else -1
        else:
            start = -1
        if start < 0:
            start = _tag_start(one, _common(one, before))
        one, two = (_NO_THOUGHTS.sub("", each[start:]).lstrip() for each in (one, two))
        return cls(_without_end(one, after), _without_end(two, after), lead)

    def is_read_by(self, found: ToolFormat) -> bool:
        """Whether a format reads the calls back, and nothing else."""
        pairs = [(self.one, [_FIRST])]
        if self.two:
            pairs.append((self.two, [_FIRST, _OTHER]))
        for text, calls in pairs:
            parser = ToolCallParser(found, _TOOLS)
            deltas = [*parser.push(text), *parser.finish()]
            read = [one for one in deltas if isinstance(one, CallDelta)]
            if len(read) < len(deltas) or [one.name for one in read] != [c.name for c in calls]:
                return False
            wanted = [json.loads(call.arguments) for call in calls]
            if [json.loads(one.arguments) for one in read] != wanted:
                return False
        return True


def _learned(rendered: _Rendered, style: ToolStyle) -> ToolFormat | None:
    text, name = rendered.one, _FIRST.name
    at = text.index(name)
    span = _json_around(text)
    if span is not None and span[0] < at < span[1]:
        return _of_json(rendered, *span, style)
    if span is not None:
        begin, name_end, end = text[:at], text[at + len(name) : span[0]], text[span[1] :]
        id_marker = name_prefix = ""
        if style.ids is IdStyle.NAMED or begin.endswith("functions."):
            name_prefix = "functions."
            begin, name_end = begin.removesuffix(name_prefix), re.sub(r"\A:0", "", name_end)
        identity = style.id(_FIRST.id)
        if identity in name_end:
            id_marker, _, name_end = name_end.partition(identity)
        made = ToolFormat(
            Kind.NAMED,
            begin,
            end,
            lead=rendered.lead,
            name_end=name_end,
            id_marker=id_marker,
            name_prefix=name_prefix,
        )
        return _with_section(made, _between(rendered.two, name_prefix))
    return _of_keys(rendered, at)


def _json_around(text: str) -> tuple[int, int, Any] | None:
    """The first JSON value with the arguments: begin, end, value."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"[\[{]", text):
        try:
            value, end = decoder.raw_decode(text, found.start())
        except ValueError:
            continue
        if _KEY in text[found.start() : end]:
            return found.start(), end, value
    return None


def _of_json(
    rendered: _Rendered, begin: int, end: int, value: Any, style: ToolStyle
) -> ToolFormat | None:
    text, is_list = rendered.one, isinstance(value, list)
    item: Any = cast("list[Any]", value)[0] if is_list else value
    if not isinstance(item, Mapping):
        return None
    given = cast("Mapping[str, Any]", item)
    if isinstance(inner := given.get("function"), Mapping):
        given = cast("Mapping[str, Any]", inner)
    names = [key for key, one in given.items() if one == _FIRST.name]
    keys = [key for key, one in given.items() if _KEY in json.dumps(one)]
    ids = [key for key, one in given.items() if one == style.id(_FIRST.id)]
    if not names or not keys:
        return None
    made = ToolFormat(
        Kind.JSON,
        text[:begin],
        text[end:],
        lead=rendered.lead,
        name_key=names[0],
        arguments_key=keys[0],
        id_key=ids[0] if ids else "",
        is_list=is_list,
        at_start=not text[:begin].strip(),
    )
    if is_list or not rendered.two:
        return made
    spans: list[tuple[int, int]] = []
    decoder, at = json.JSONDecoder(), 0
    while (start := rendered.two.find("{", at)) >= 0:
        try:
            _, at = decoder.raw_decode(rendered.two, start)
        except ValueError:
            return made
        spans.append((start, at))
    if len(spans) != 2:
        return made
    if made.at_start:
        return replace(made, between=rendered.two[spans[0][1] : spans[1][0]])
    return _with_section(made, rendered.two[spans[0][1] : spans[1][0]])


def _of_keys(rendered: _Rendered, at: int) -> ToolFormat | None:
    """A format whose arguments are no JSON: the texts around their names and values."""
    text = rendered.one
    places = [at]
    for part in (_KEY, _VALUE, _NEXT_KEY, _SECOND):
        places.append(text.find(part, places[-1] + 1))
    if -1 in places:
        return None
    name, key, value, other, last = places
    gap = text[name + len(_FIRST.name) : key]
    key_end = text[key + len(_KEY) : value]
    between = text[value + len(_VALUE) : other]
    tail = text[last + len(_SECOND) :]
    begin, lead = text[:name], rendered.lead
    if key_end.endswith(GEMMA_QUOTE):
        return ToolFormat(Kind.GEMMA, begin, tail.lstrip().removeprefix("}"), lead=lead)
    if gap.strip() == "(" and key_end.strip().startswith("="):
        head = begin.rstrip().removesuffix("[")
        rest = tail.lstrip().removeprefix(")").lstrip().removeprefix("]")
        return ToolFormat(Kind.PYTHON, head, rest, lead=lead, at_start=not head.strip())
    key_begin = between[between.rfind("<") :] if "<" in between else ""
    if not key_begin or not gap.endswith(key_begin):
        return None
    value_gap = between.removesuffix(key_begin)
    value_end = value_gap.rstrip()
    if not value_end.strip() or not tail.startswith(value_end):
        return None
    made = ToolFormat(
        Kind.TAGGED,
        begin,
        tail.removeprefix(value_end),
        lead=lead,
        name_end=gap.removesuffix(key_begin),
        key_begin=key_begin,
        key_end=key_end,
        value_end=value_end,
        key_sep=value_gap[len(value_end) :],
    )
    two = rendered.two
    start = two.find(_SECOND + value_end)
    start += len(_SECOND + value_end) if start >= 0 else 0
    made = _with_section(made, two[start : two.find(_OTHER.name)] if start > 0 else "")
    # Markers that one cannot tell apart by their beginning are for a table.
    return None if value_end.strip().startswith(made.end.strip() or "\0") else made


def _between(two: str, name_prefix: str) -> str:
    """What is between the arguments of the first of two calls and the name of the second."""
    span = _json_around(two)
    end = two.find(_OTHER.name)
    return two[span[1] : end].removesuffix(name_prefix) if span and end > span[1] else ""


def _with_section(made: ToolFormat, between: str) -> ToolFormat:
    """The format with the markers around all calls apart, by what is between two of them."""
    if not between.strip():
        return made
    length = _common(between[::-1], made.begin[::-1])
    start = len(made.begin) - length
    starts = [0, *(found.start() for found in re.finditer(r"[<\[]", made.begin))]
    start = next((at for at in sorted(starts) if at >= start), len(made.begin))
    begin = made.begin[start:]
    if not begin.strip():
        return made
    rest = between.removesuffix(begin)
    length = _common(rest, made.end)
    ends = [0, *(found.end() for found in re.finditer(r"[>\]]", made.end)), len(made.end)]
    length = max(at for at in ends if at <= length)
    section = (made.begin[:start], made.end[length:])
    made = replace(made, between=rest[length:])
    if not section[0].strip():
        return made
    return replace(made, begin=begin, end=made.end[:length], section=section)


def _common(one: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _tag_start(text: str, at: int) -> int:
    """The place, or the beginning of the tag that it is in."""
    opened = text.rfind("<", 0, at)
    return opened if opened > text.rfind(">", 0, at) else at


def _without_end(text: str, end: str) -> str:
    """A rendered answer without what ends every answer."""
    if end and text.endswith(end):
        return text.removesuffix(end).rstrip()
    length = _common(text[::-1], end[::-1])
    cut = len(text) - length
    starts = [found.start() for found in re.finditer(r"<|\[", text[cut:])]
    return text[: cut + starts[0]].rstrip() if starts else text.rstrip()
