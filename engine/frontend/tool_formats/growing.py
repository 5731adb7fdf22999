"""GrowingCalls: tool calls read while their text grows, in the exact form that the grammar writes.

A text that leaves this form is not read on: the whole calls, once read, tell the rest. Arguments
are given out as pieces of the JSON text that the whole call has.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, cast

from engine.frontend.tool_formats.formats import Kind, ToolFormat, marker_tags, open_suffix
from engine.frontend.tool_formats.values import (
    GEMMA_QUOTE,
    Depth,
    Incomplete,
    NotACall,
    dumped,
    gemma_key,
    python_literal,
    read_gemma,
)

_PYTHON_KEY = re.compile(r"(\w+)=(?=.)", re.DOTALL)
_PYTHON_TEXT = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')

Piece = tuple[
    int, str, str
]  # index of the call, its name as written, the next piece of its arguments
Steps = Generator[None]  # waits for more text at every yield


class GrowingCalls:
    """The calls that one text begins with; of most formats it is one call."""

    def __init__(self, tool_format: ToolFormat, schemas: Mapping[str, Any]) -> None:
        self._format, self._schemas = tool_format, schemas
        self.taken = 0  # characters up to the end of the last arguments so far
        self._text, self._at, self._dropped = "", 0, 0
        self._pieces: list[Piece] = []
        self._number, self._name = -1, ""
        self._written = ""  # the name as written, perhaps with an id
        self._steps: Steps | None = self._read()
        next(self._steps)

    def push(self, text: str) -> list[Piece]:
        """Add text; returns what it makes certain, the name of a call with the first piece."""
        if self._steps is None:
            return []
        begin = max(self._at - 1, 0)  # what is before a value may tell what it is
        self._text, self._at = self._text[begin:] + text, self._at - begin
        self._dropped += begin
        try:
            next(self._steps)
        except (StopIteration, NotACall):
            self._steps = None
        pieces, self._pieces = self._pieces, []
        return pieces

    def _give(self, arguments: str) -> None:
        if self._pieces and self._pieces[-1][0] == self._number:
            arguments = self._pieces.pop()[2] + arguments
        self._pieces.append((self._number, self._written, arguments))

    def _rest(self) -> str:
        return self._text[self._at :]

    def _read(self) -> Steps:
        form = self._format
        yield
        is_list = form.is_list or form.kind is Kind.PYTHON
        before = form.begin.lstrip() + ("[" if is_list else "")
        arguments: Callable[[], Steps] = {
            Kind.TAGGED: self._tagged,
            Kind.PYTHON: self._python,
            Kind.GEMMA: self._gemma,
        }.get(form.kind, self._json)
        while True:
            heads = {
                before + written: name
                for name, head in form.heads(self._schemas).items()
                for written in form.spellings(head)
            }
            # A head without an end is told by what follows.
            is_open = form.kind is Kind.TAGGED and not form.name_end
            ends = (form.key_begin.lstrip(), form.end.lstrip()) if is_open else ("",)
            begins = {head + end: head for head in heads for end in ends}
            while (whole := next(filter(self._rest().startswith, begins), None)) is None:
                if not any(one.startswith(self._rest()) for one in begins):
                    return  # another form
                yield
            found = begins[whole]
            self._at += len(found)
            self._number, self._name = self._number + 1, heads[found]
            self._written = self._name
            if form.name_prefix:
                self._written = found.removeprefix(before).removesuffix(form.name_end)
            self._give("")
            yield from arguments()
            self.taken = self._dropped + self._at
            if not is_list:
                return
            before = ("" if form.kind is Kind.PYTHON else "}") + (form.between or ", ")

    # --- arguments ------------------------------------------------------------------------------

    def _json(self) -> Steps:
        depth = Depth("")
        while not self._rest():
            yield
        if self._text[self._at] != "{":
            raise NotACall
        while (end := depth.closing(piece := self._rest())) < 0:
            self._give(piece)
            self._at += len(piece)
            yield
        self._give(piece[:end])
        self._at += end

    def _tagged(self) -> Steps:
        form, schema = self._format, self._schemas.get(self._name)
        given = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
        found: Any = given.get("properties")
        properties = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
        self._give("{")
        seen: set[str] = set()
        last_tag = marker_tags(form.key_end)[-1]
        while True:
            self._at += len(self._rest()) - len(self._rest().lstrip())
            head = form.key.match(self._text, self._at)
            if head is None or not head[0].endswith(last_tag):
                begin, rest = form.key_begin.strip(), self._rest()
                if not (begin.startswith(rest) or rest.startswith(begin)):
                    return  # the call ends
                yield
                continue
            key, attributes = head["key"].strip(), head.groupdict().get("attributes") or ""
            key = html.unescape(key) if attributes else key
            open_keys = properties.keys() - seen
            self._give(f"{', ' if seen else ''}{dumped(key)}: ")
            seen.add(key)
            self._at = head.end()
            if form.is_text(attributes, properties.get(key), given):
                yield from self._tagged_text(open_keys)
                continue
            while (ended := self._value_end(open_keys)) is None:
                yield
            value = form.bare(self._text[self._at : ended[0]])
            self._give(dumped(form.typed(value, attributes, properties.get(key), given)))
            self._at = ended[1]

    def _tagged_text(self, keys: Any) -> Steps:
        """A text without quotes, given out up to what may be a marker."""
        form = self._format
        while not self._rest():
            yield
        if form.key_end.endswith("\n") and self._text[self._at] == "\n":
            self._at += 1
        self._give('"')
        markers = (form.value_end.strip(), form.key_begin.strip())
        while True:
            text = self._rest()
            places = [at for one in markers if (at := text.find(one)) >= 0]
            certain = min(places, default=len(text) - open_suffix(text, markers))
            certain -= text[:certain].endswith("\n")  # which may belong to the marker
            self._give(_quoted(text[:certain]))
            self._at += certain
            if places:
                break
            yield
        while (ended := self._value_end(keys)) is None:
            yield
        value = self._text[self._at : ended[0]]
        if form.value_end.startswith("\n"):
            value = value.removesuffix("\n")
        self._give(_quoted(value) + '"')
        self._at = ended[1]

    def _value_end(self, keys: Any) -> tuple[int, int] | None:
        try:
            return self._format.value_end_in(self._text, self._at, keys, final=False)
        except Incomplete:
            return None

    def _python(self) -> Steps:
        self._give("{")
        is_first = True
        while True:
            rest = self._rest()
            if rest.startswith(")"):
                break
            head = _PYTHON_KEY.match(rest.removeprefix(", "))
            if head is None:
                yield
                continue
            self._give(f"{'' if is_first else ', '}{dumped(head[1])}: ")
            is_first = False
            self._at += len(rest) - len(rest.removeprefix(", ")) + head.end()
            yield from self._python_value()
        self._at += 1
        self._give("}")

    def _python_value(self) -> Steps:
        if self._text[self._at] == '"':
            self._at += 1
            self._give('"')
            while True:
                units = _PYTHON_TEXT.match(self._text, self._at)
                assert units is not None
                self._give(_quoted(python_literal(f'"{units[0]}"')))
                self._at = units.end()
                if self._rest().startswith('"'):
                    break
                yield
            self._at += 1
            self._give('"')
            return
        if self._text[self._at] in "[{":
            depth, seen = Depth(""), 0
            while (end := depth.closing(self._rest()[seen:])) < 0:
                seen = len(self._rest())
                yield
            end += seen
        else:
            while (found := re.search("[,)]", self._rest())) is None:
                yield
            end = found.start()
        self._give(dumped(python_literal(self._rest()[:end])))
        self._at += end

    def _gemma(self) -> Steps:
        self._give("{")
        is_first = True
        while True:
            while not self._rest():
                yield
            if self._text[self._at] == "}":
                break
            begin = self._at + (self._text[self._at] == ",")
            try:
                key, at = gemma_key(self._text, begin)
            except Incomplete:
                yield
                continue
            self._give(f"{'' if is_first else ', '}{dumped(key)}: ")
            self._at, is_first = at, False
            yield from self._gemma_value()
        self._at += 1
        self._give("}")

    def _gemma_value(self) -> Steps:
        while GEMMA_QUOTE.startswith(self._rest()[: len(GEMMA_QUOTE)]):
            if self._rest().startswith(GEMMA_QUOTE):
                yield from self._gemma_text()
                return
            yield
        while True:
            try:
                value, self._at = read_gemma(self._text, self._at)
            except Incomplete:
                yield
                continue
            self._give(dumped(value))
            return

    def _gemma_text(self) -> Steps:
        self._at += len(GEMMA_QUOTE)
        self._give('"')
        while (end := self._rest().find(GEMMA_QUOTE)) < 0:
            text = self._rest()
            certain = len(text) - open_suffix(text, (GEMMA_QUOTE,))
            self._give(_quoted(text[:certain]))
            self._at += certain
            yield
        self._give(_quoted(self._rest()[:end]) + '"')
        self._at += end + len(GEMMA_QUOTE)


def _quoted(text: str) -> str:
    """A part of a text within the quotes of JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
