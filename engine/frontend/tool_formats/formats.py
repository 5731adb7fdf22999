"""Formats of tool calls: the markers that a family of models writes around calls and their parts.

White space between the parts of a marker may be any. A call is read as a whole, so that one that is
cut is never given out, and so that markers within a text argument do not end it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, cast

from engine.frontend.tool_formats.values import (
    Depth,
    Incomplete,
    NotACall,
    balanced_end,
    dumped,
    python_calls,
    read_gemma,
    read_json,
    typed,
    types_of,
)

_NAME = r"[^\s<>\[\](){}\"'`,]{1,200}"
HARMONY_BEGINS = ("<|start|>", "<|channel|>", "<|end|>", "<|call|>", "<|return|>")  # of headers
_KEYS = ("name", "type", "function", "parameters", "arguments", "id", "tool_name", "tool_call_id")
_FIRST_KEY = re.compile(r"""[\[\s]*\{\s*(["'])([^"'\\]*)\1\s*:""")
_BEFORE_KEY = re.compile(r"""[\[\s]*(?:\{\s*(?:["'][^"'\\]*(?:["']\s*)?)?)?""")
_TEXT_VALUE = re.compile(r"""\s*(["'])([^"'\\]*)\1""")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_TAG = re.compile(r"<[^<>]*>|\[[A-Z_/]+\]|[^<\[]+|.", re.DOTALL)


class Kind(Enum):
    """What a call consists of."""

    JSON = "JSON"  # an object with the name and the arguments, or an array of such
    NAMED = "named"  # the name in markers, and the arguments as a JSON object
    TAGGED = "tagged"  # the name and each argument in markers, texts without quotes
    PYTHON = "Python"  # a list of calls in Python's syntax
    GEMMA = "Gemma"  # the name, and the arguments in a syntax of its own
    HARMONY = "Harmony"  # a message to the tool on a channel


@dataclass(frozen=True, slots=True)
class Call:
    """A whole tool call."""

    name: str
    arguments: str  # a JSON object
    id: str = ""  # if the model wrote one


@dataclass(frozen=True)
class ToolFormat:
    """How the calls of an answer are written."""

    kind: Kind
    begin: str = ""  # before a call, up to its name or its JSON
    end: str = ""  # after a call
    section: tuple[str, str] = ("", "")  # around all calls
    lead: str = ""  # white space between text and the first call
    name_end: str = ""  # NAMED, TAGGED: between the name and what follows
    key_begin: str = ""  # TAGGED: before the name of an argument
    key_end: str = ""  # TAGGED: between it and the value
    value_end: str = ""  # TAGGED: after the value
    key_sep: str = ""  # TAGGED: white space before another argument
    between: str = ""  # between two calls
    name_key: str = "name"  # JSON: of the object
    arguments_key: str = "arguments"
    id_key: str = ""  # JSON: where the template writes the call's id
    is_list: bool = False  # JSON: the calls are an array
    at_start: bool = False  # calls without a marker begin the answer
    id_marker: str = ""  # NAMED: after the name, before an id
    noise: tuple[str, ...] = ()  # markers that are no text
    name_prefix: str = ""  # NAMED: before the name, no part of it

    @cached_property
    def begins(self) -> tuple[str, ...]:
        """The texts that begin a call or all calls."""
        if self.kind is Kind.HARMONY:
            return HARMONY_BEGINS
        found = [_first_part(self.section[0]), self.call_begin]
        if self.kind is Kind.TAGGED:  # the call's own marker, where the one around it is missing
            found.append(marker_tags(self.begin)[-1].strip())
        found += self.noise
        return tuple(dict.fromkeys(one for one in found if one))

    @cached_property
    def call_begin(self) -> str:
        """The text that a call begins with."""
        return _first_part(self.begin)

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """The texts of all markers, which may be control tokens."""
        if self.kind is Kind.HARMONY:
            return (*self.begins, "<|message|>", "<|constrain|>")
        texts = (*self.section, self.begin, self.end, self.name_end, self.key_begin, self.key_end)
        more = (self.value_end, self.id_marker, *self.noise)
        if self.kind is Kind.GEMMA:
            more = (*more, '<|"|>')
        tags = [
            tag for text in (*texts, *more) for tag in re.findall(r"<[^<>]*>|\[[^\[\]]*\]", text)
        ]
        return tuple(dict.fromkeys(tags))

    @property
    def has_messages(self) -> bool:
        """Whether a call is a message of its own beside thoughts and answer."""
        return self.kind is Kind.HARMONY

    def waiter(self, text: str) -> Callable[[str], bool]:
        """Tells of each piece behind a text, which ends in a call, whether the call may be whole."""
        if self.kind in (Kind.JSON, Kind.NAMED, Kind.PYTHON):
            return Depth(text, python=self.kind is Kind.PYTHON).push
        marker, tail = (marker_tags(self.end) or [">"])[0].strip(), [text[-40:]]

        def push(piece: str) -> bool:
            tail[0] = (tail[0] + piece)[-len(marker) - len(piece) :]
            return marker in tail[0]

        return push

    def heads(self, names: Iterable[str]) -> dict[str, str]:
        """By the names of tools, what a call that the grammar writes has before its arguments.

        Without the marker before every call.
        """
        made: dict[str, str] = {}
        index = ":0" if self.name_prefix else ""
        for name in names:
            match self.kind:
                case Kind.JSON:
                    made[name] = (
                        f'{{"{self.name_key}": {json.dumps(name)}, "{self.arguments_key}": '
                    )
                case Kind.NAMED:
                    made[name] = f"{self.name_prefix}{name}{index}{self.name_end}"
                case Kind.TAGGED:
                    made[name] = name + self.name_end
                case Kind.PYTHON:
                    made[name] = f"{name}("
                case Kind.GEMMA:
                    made[name] = f"{name}{{"
                case Kind.HARMONY:
                    made[name] = name
        return made

    def spellings(self, head: str) -> tuple[str, ...]:
        """How models write what a call of this head begins with, the usual way first."""
        if self.kind is Kind.JSON and self.at_start:
            return head, head.replace("{", '{"type": "function", ', 1)
        return (head,)

    # --- patterns -------------------------------------------------------------------------------

    @cached_property
    def head(self) -> re.Pattern[str]:
        """Of a NAMED or TAGGED call: up to the end of its name."""
        begin = f"(?:{_loose(self.begin)})"
        if self.kind is Kind.TAGGED and len(tags := marker_tags(self.begin)) > 1:
            begin = f"(?:{_loose(self.begin)}|{_loose(tags[-1])})"
        given = f"(?:{_loose(self.id_marker)}(?P<id>[\\w-]+)\\s*)?" if self.id_marker else ""
        return re.compile(
            f"{begin}\\s*(?P<name>{_NAME})\\s*{given}{_with_attributes(self.name_end)}"
        )

    @cached_property
    def key(self) -> re.Pattern[str]:
        """Of a TAGGED call: an argument up to its value."""
        key = r"(?P<key>[^\n\"]+?)" if self.key_end.startswith('"') else r"(?P<key>[^<>\n]+?)"
        tags = marker_tags(self.key_end)
        if len(tags) > 1:  # models leave out the tag that opens the value
            end = rf"{_loose(''.join(tags[:-1]))}(?:\s*{_loose(tags[-1])})?"
        else:
            end = _with_attributes(self.key_end)
        return re.compile(f"{_loose(self.key_begin)}{key}{end}")

    @cached_property
    def tail(self) -> re.Pattern[str]:
        """What ends a call; only its first marker must be there."""
        first, *rest = marker_tags(self.end) or [""]
        return re.compile(
            r"\s*" + _loose(first) + "".join(rf"(?:\s*{_loose(one)})?" for one in rest)
        )

    # --- reading --------------------------------------------------------------------------------

    def read(self, text: str, schemas: Mapping[str, Any], *, final: bool) -> tuple[list[Call], int]:
        """The calls that a text begins with, and their end.

        `final`: no text follows, so that a missing end marker is forgiven where the call is whole.
        Raises Incomplete and NotACall.
        """
        match self.kind:
            case Kind.JSON:
                return self._read_json(text, schemas, final=final)
            case Kind.NAMED:
                return self._read_named(text, schemas, final=final)
            case Kind.TAGGED:
                return self._read_tagged(text, schemas, final=final)
            case Kind.PYTHON:
                return self._read_python(text, schemas, final=final)
            case Kind.GEMMA:
                return self._read_gemma(text)
            case Kind.HARMONY:
                raise NotACall

    def _read_json(
        self, text: str, schemas: Mapping[str, Any], *, final: bool
    ) -> tuple[list[Call], int]:
        at = self._after(text, self.begin)
        if not self._may_be_json(text, at, schemas):
            raise NotACall
        value, raw, end = read_json(text, at)
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        calls, place = [self._object_call(one) for one in items], 0
        for number, call in enumerate(calls):  # the arguments as they are written
            calls[number], place = self._with_source(call, raw, place)
        if not calls or (self.at_start and not all(call.name in schemas for call in calls)):
            raise NotACall
        return calls, self._after_end(text, end, final=final)

    def _may_be_json(self, text: str, at: int, schemas: Mapping[str, Any]) -> bool:
        """Whether the first key of an object or a list may be one of a call.

        Where calls have no marker, also its value: of a known tool.
        """
        key = _FIRST_KEY.match(text, at)
        if key is None:
            return not self.at_start or _BEFORE_KEY.fullmatch(text, at) is not None
        name = key[2]
        if name not in (*_KEYS, self.name_key, self.arguments_key):
            return False
        if not self.at_start:
            return True
        value = _TEXT_VALUE.match(text, key.end())
        if value is None or name == self.id_key:
            return not name.endswith("id") or name == self.id_key
        return value[2] == "function" if name == "type" else value[2] in schemas

    def _object_call(self, item: Any) -> Call:
        if not isinstance(item, Mapping):
            raise NotACall
        given = cast("Mapping[str, Any]", item)
        if isinstance(inner := given.get("function"), Mapping):
            given = {**given, **cast("Mapping[str, Any]", inner)}
        names = (self.name_key, "name", "tool_name", "function")
        name = next((given[one] for one in names if isinstance(given.get(one), str)), "")
        keys = (self.arguments_key, "arguments", "parameters")
        found = next((given[one] for one in keys if one in given), None)
        if isinstance(found, str):  # encoded twice
            found = read_json(found, 0)[0] if found.strip() else {}
        if not name or not isinstance(found, Mapping):
            raise NotACall
        identity = given.get(self.id_key) if self.id_key else None
        return Call(name, dumped(found), identity if isinstance(identity, str) else "")

    def _with_source(self, call: Call, raw: str, at: int) -> tuple[Call, int]:
        """The call with its arguments as the model wrote them behind `at`, and their end.

        As it is, if the text does not show where they are.
        """
        for found in re.compile(r'"(?:arguments|parameters)"\s*:\s*(?=\{)').finditer(raw, at):
            end = balanced_end(raw, found.end())
            source = raw[found.end() : end]
            try:
                if dumped(read_json(source, 0)[0]) == call.arguments:
                    return Call(call.name, read_json(source, 0)[1], call.id), end
            except (Incomplete, NotACall):
                continue
        return call, at

    def _read_named(
        self, text: str, schemas: Mapping[str, Any], *, final: bool
    ) -> tuple[list[Call], int]:
        head = self.head.match(text)
        if head is None:
            raise _undecided(text, 400 + len(self.begin) + len(self.name_end))
        at = _spaces(text, head.end())
        value, raw, end = read_json(text, at)
        if not isinstance(value, dict):
            raise NotACall
        name, identity = self.named(head["name"], schemas)
        end = self._after_end(text, end, final=final)
        return [Call(name, raw, head.groupdict().get("id") or identity)], end

    def named(self, name: str, schemas: Mapping[str, Any]) -> tuple[str, str]:
        """The tool's name and the call's id in a name as written: `functions.name:0`."""
        if not self.name_prefix or name in schemas:
            return name, ""
        short = name.removeprefix(self.name_prefix)
        return re.sub(r":\d+\Z", "", short), name

    def _read_tagged(
        self, text: str, schemas: Mapping[str, Any], *, final: bool
    ) -> tuple[list[Call], int]:
        head = self.head.match(text)
        if head is None:
            raise _undecided(text, 400 + len(self.begin) + len(self.name_end))
        name, at = head["name"], head.end()
        if head.groupdict().get("closed"):
            return [Call(name, "{}")], self._after_end(text, at, final=True)
        schema = schemas.get(name)
        given = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
        properties: Any = given.get("properties")
        properties = (
            cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}
        )
        arguments: dict[str, Any] = {}
        while True:
            at = _spaces(text, at)
            tail = self.tail.match(text, at)
            if tail is not None:
                rest, end = "".join(marker_tags(self.end)[1:]), tail.end()
                if _may_begin(text[end:], rest) and not tail[0].endswith(rest):
                    if not final:
                        raise Incomplete
                    end = len(text)  # the answer ends within the marker
                return [Call(name, dumped(arguments))], end
            found = self.key.match(text, at)
            if found is None:
                raise _undecided(text[at:], 400 + len(self.key_begin) + len(self.key_end))
            key, attributes = found["key"].strip(), found.groupdict().get("attributes") or ""
            if attributes:
                key = html.unescape(key)
            value, at = self._value(text, found.end(), properties.keys() - arguments.keys(), final)
            arguments[key] = self.typed(value, attributes, properties.get(key), given)

    def _value(self, text: str, at: int, keys: Any, final: bool) -> tuple[str, int]:
        """The value at `at`, and where the next argument or the call's end begins."""
        end, after = self.value_end_in(text, at, keys, final=final)
        return self.bare(text[at:end]), after

    def value_end_in(self, text: str, begin: int, keys: Any, *, final: bool) -> tuple[int, int]:
        """The end of the value at `begin`, and where the next argument or the call's end begins.

        `keys`: of the arguments that may follow. Raises Incomplete.
        """
        place, marker = begin, self.value_end.strip()
        while (end := text.find(marker, place)) >= 0:
            after = end + len(marker)
            if early := self._next_key(text, begin, end, keys):
                return early, early
            rest = text[after:].lstrip()
            if self.tail.match(rest) or self.key.match(rest):
                return end, after
            if not final and _may_begin(rest, (marker_tags(self.end) or [""])[0], self.key_begin):
                raise Incomplete
            place = after
        if not final:
            raise Incomplete
        # The marker after the last value is missing: the call's end ends it.
        found = re.compile(_loose((marker_tags(self.end) or [""])[0])).search(text, begin)
        if found is None or not self.end:
            raise Incomplete
        return found.start(), found.start()

    def _next_key(self, text: str, begin: int, end: int, keys: Any) -> int:
        """Where a line within a value begins another argument of the tool; 0: nowhere."""
        for found in self.key.finditer(text, begin, end):
            if found["key"].strip() in keys and text[: found.start()].endswith("\n"):
                return found.start()
        return 0

    def bare(self, value: str) -> str:
        """A value without the line ends that belong to its markers."""
        if self.key_end.endswith("\n"):
            value = value.removeprefix("\n")
        return value.removesuffix("\n") if self.value_end.startswith("\n") else value

    def typed(self, value: str, attributes: str, schema: Any, root: Any) -> Any:
        """The value of an argument that is written as a text, with the attributes of its marker."""
        if self.is_text(attributes, schema, root):
            return value
        if _ATTRIBUTE.search(attributes):
            return typed(value, {"type": ["null", "boolean", "number", "array", "object"]})
        return typed(value, schema, root)

    def is_text(self, attributes: str, schema: Any, root: Any) -> bool:
        """Whether an argument is a text, whatever is written."""
        given = dict(_ATTRIBUTE.findall(attributes))
        if given:
            return "true" in (given.get("string"), str(given.get("type") == "string").lower())
        return types_of(schema, root) == {"string"}

    def _read_python(
        self, text: str, schemas: Mapping[str, Any], *, final: bool
    ) -> tuple[list[Call], int]:
        at = self._after(text, self.begin)
        if at >= len(text):
            raise Incomplete
        if text[at] != "[":
            raise NotACall
        if self.at_start and (found := re.compile(r"\[\s*([\w.]*)(.?)", re.DOTALL).match(text, at)):
            known = any(one.startswith(found[1]) for one in schemas)
            if not known or (found[2] and (found[1] not in schemas or found[2] != "(")):
                raise NotACall
        end = balanced_end(text, at, python=True)
        calls = [Call(name, dumped(given)) for name, given in python_calls(text[at:end])]
        if self.at_start and not all(call.name in schemas for call in calls):
            raise NotACall
        return calls, self._after_end(text, end, final=final)

    def _read_gemma(self, text: str) -> tuple[list[Call], int]:
        found = re.compile(rf"{_loose(self.begin)}\s*([^\s{{}}<>]+)\s*(.?)", re.DOTALL).match(text)
        if found is None:
            raise _undecided(text, len(self.begin) + 4)
        if not found[2]:
            raise Incomplete
        if found[2] != "{":
            raise NotACall
        value, at = read_gemma(text, found.start(2))
        tail = re.compile(r"\s*" + _loose(self.end)).match(text, at)
        if tail is None:
            raise _undecided(text[at:], len(self.end) + 8)
        return [Call(found[1], dumped(value))], tail.end()

    def _after(self, text: str, marker: str) -> int:
        """The place behind the marker that a text begins with, if it does."""
        found = re.compile(_loose(marker)).match(text) if marker else None
        return _spaces(text, found.end() if found else 0)

    def _after_end(self, text: str, at: int, *, final: bool) -> int:
        """The place behind the end marker, or `at` where the call has none."""
        if not self.end.strip():
            return at
        found = re.compile(r"\s*" + _loose(self.end)).match(text, at)
        if found:
            return found.end()
        if "".join(self.end.split()).startswith("".join(text[at:].split())):
            if not final:
                raise Incomplete
            return len(text)
        return at


def _spaces(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _undecided(text: str, most: int) -> Exception:
    """Incomplete for a text so short that it may go on to be a marker, else NotACall."""
    return Incomplete() if len(text) < most and _is_open(text) else NotACall()


def _is_open(text: str) -> bool:
    """Whether what is missing of a marker may follow: the text has no line of something else."""
    return "\n\n" not in text.strip()


def _may_begin(rest: str, *markers: str) -> bool:
    """Whether a text may go on to begin with one of these markers."""
    packed = "".join(rest.split())
    for marker in filter(None, markers):
        wanted = "".join(marker.split())
        if wanted.startswith(packed) or (packed.startswith(wanted) and len(rest) < 400):
            return True
    return False


def marker_tags(marker: str) -> list[str]:
    """The tags of a marker, each with what is behind it."""
    return [
        one for one in re.split(r"(?<=>)\s*(?=<)|(?<=>)\s+|(?<=\])\s*(?=\[)", marker.strip()) if one
    ]


def open_suffix(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of a text that may be the beginning of a marker."""
    longest = max(map(len, markers), default=0)
    for length in range(min(len(text), longest), 0, -1):
        if any(one.startswith(text[-length:]) for one in markers):
            return length
    return 0


def _first_part(marker: str) -> str:
    """The first tag of a marker, or all of it."""
    stripped = marker.strip()
    found = re.match(r"<[^<>\s]*[>\s=]|\[[^\[\]]*\]|<[^<>]*\Z", stripped)
    return found[0].rstrip() if found else stripped


def _loose(marker: str) -> str:
    """A pattern for a marker with any white space, or none, where it has some."""
    return r"\s*".join(map(re.escape, re.split(r"\s+|(?<=>)(?=<)", marker.strip())))


def _with_attributes(marker: str) -> str:
    """A pattern for a marker that ends a name; one in quotes may be followed by attributes."""
    stripped = marker.strip()
    if not stripped.startswith('"'):
        return _loose(marker)
    tail = stripped.rpartition('"')[2]
    attributes = r'(?P<attributes>(?:\s+[\w-]+="[^"]*")*)'
    closed = r"(?P<closed>/)?" if tail.startswith(">") else ""
    return f'"{attributes}\\s*{closed}{_loose(tail)}'
