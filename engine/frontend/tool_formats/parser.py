"""ToolCallParser: splits the text of an answer into texts and tool calls while it is generated.

A call is given out when it is whole, so that no client ever has part of one. The same text gives
the same texts and calls, whatever the pieces it comes in.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.frontend.tool_formats.formats import Call, Kind, ToolFormat
from engine.frontend.tool_formats.harmony import HarmonyReader
from engine.frontend.tool_formats.values import Incomplete, NotACall
from engine.messages import Tool

_ID_LETTERS = string.ascii_letters + string.digits
_LONG = 1000  # characters of a call that is not read again for every piece
_SURE_MARKER = 3  # characters by which the beginning of a marker is told from text
_SEPARATORS = " \r\n\t;,"  # between calls without markers
_ID_LENGTH = 9  # of an id that the model did not give: as some templates ask for


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text of the answer, or of thoughts."""

    text: str
    is_thought: bool = False


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A tool call began or grew."""

    index: int  # of the call in the answer
    id: str  # in its first delta, as the name
    name: str
    arguments: str  # a piece of a JSON object


Delta = TextDelta | CallDelta


class ToolCallParser:
    """Parses one answer."""

    def __init__(self, tool_format: ToolFormat, tools: Sequence[Tool]) -> None:
        self.calls = 0  # so far
        self._format = tool_format
        self._schemas: dict[str, Any] = {tool.name: _schema(tool.schema) for tool in tools}
        self._held = ""
        self._deltas: list[Delta] = []
        self._has_text = False  # other than white space
        self._in_section = False
        self._is_call = False  # the held text begins with what may be a call
        # Of a long call: whether a piece may end it.
        self._may_end: Callable[[str], bool] | None = None
        self._is_after_call = False  # no text was behind the last call
        self._is_marked = False  # a marker was before the held text, where calls need none
        self._harmony = HarmonyReader() if tool_format.kind is Kind.HARMONY else None

    @property
    def is_reading(self) -> bool:
        """Whether the text so far ends within a call."""
        return self._is_call or self._in_section

    def push(self, text: str) -> list[Delta]:
        """Add a piece of the answer; returns what is certain."""
        self._held += text
        if self._may_end is not None and not self._may_end(text):
            return []
        return self._taken(final=False, cut=False)

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """The rest. `cut`: a limit ended the answer, so that a call it ends in is dropped."""
        deltas = self._taken(final=True, cut=cut)
        self._held = ""
        return deltas

    def _taken(self, *, final: bool, cut: bool) -> list[Delta]:
        self._may_end = None
        if self._harmony is not None:
            self._read_harmony(self._harmony, final=final, cut=cut)
        else:
            while self._step(final=final, cut=cut):
                pass
        deltas, self._deltas = self._deltas, []
        return deltas

    def _read_harmony(self, reader: HarmonyReader, *, final: bool, cut: bool) -> None:
        self._held, found = reader.read(self._held, final=final, cut=cut)
        for one in found:
            if isinstance(one, Call):
                self._add(one)
            else:
                self._deltas.append(TextDelta(*one))

    def _step(self, *, final: bool, cut: bool) -> bool:
        """Take one text or call from the held text; False: it needs more of it."""
        if self._is_call:
            return self._read(final=final, cut=cut)
        if self._in_section:
            return self._skip_noise(final=final)
        return self._find(final=final, cut=cut)

    # --- text -----------------------------------------------------------------------------------

    def _find(self, *, final: bool, cut: bool) -> bool:
        """Give out the text before what may be a call."""
        if self._format.at_start and (self._is_marked or not self._has_text):
            begun = self._held.lstrip(_SEPARATORS if self._is_after_call else None)
            if begun[:1] in ("{", "[") and begun:
                self._held, self._is_call = begun, True
                return True
        places = [
            (at, len(one)) for one in self._format.begins if (at := self._held.find(one)) >= 0
        ]
        if places:
            at, _ = min(places, key=lambda place: (place[0], -place[1]))
            self._give(self._held[:at], before_call=True)
            self._held, self._is_call = self._held[at:], True
            return True
        if final:
            begun = _open_suffix(self._held, self._format.begins)
            if cut and begun >= _SURE_MARKER:  # of a call
                self._held = self._held[:-begun].rstrip()
            spaces = _SEPARATORS if self._format.at_start else None
            is_rest = self._is_after_call and not self._held.strip(spaces)
            self._give("" if is_rest else self._held)
            self._held = ""
            return False
        if self._format.at_start and self._is_after_call and not self._held.strip(_SEPARATORS):
            return False
        certain = len(self._held) - _open_suffix(self._held, self._format.begins)
        certain = len(self._held[:certain].rstrip())
        self._give(self._held[:certain])
        self._held = self._held[certain:]
        return False

    def _give(self, text: str, *, before_call: bool = False) -> None:
        if before_call and (self._format.lead or not (self._has_text or text.strip())):
            text = text.rstrip()
        if text:
            self._deltas.append(TextDelta(text))
            self._has_text = self._has_text or bool(text.strip())
            self._is_marked = self._is_marked and not text.strip()
            self._is_after_call = self._is_after_call and not text.strip()

    def _skip_noise(self, *, final: bool) -> bool:
        """Leave out what is between the calls of a section, and the end of the section."""
        end = self._format.section[1].strip()
        begin = self._format.call_begin
        places = [(at, one) for one in (begin, end) if one and (at := self._held.find(one)) >= 0]
        if not places:
            if final:
                self._held = ""
            return False
        at, found = min(places)
        is_end = found == end and (found != begin)
        self._held = self._held[at + len(found) if is_end else at :]
        self._in_section, self._is_call = not is_end, not is_end
        return True

    # --- calls ----------------------------------------------------------------------------------

    def _read(self, *, final: bool, cut: bool) -> bool:
        form = self._format
        opening = form.section[0].strip()
        if not final and any(one.startswith(self._held) for one in form.noise):
            return False  # it may go on to be one
        for noise in form.noise:
            if self._held.startswith(noise):
                self._held, self._is_call = self._held[len(noise) :], False
                self._is_marked = True
                return True
        if opening and not self._in_section and self._held.startswith(form.begins[0]):
            return self._open_section(opening, final=final, cut=cut)
        try:
            calls, end = form.read(self._held, self._schemas, final=final)
        except Incomplete:
            return self._cut(cut=cut) if final else self._wait()
        except NotACall:
            return self._no_call()
        for call in calls:
            self._add(call)
        self._held, self._is_call = self._held[end:], False
        return True

    def _open_section(self, opening: str, *, final: bool, cut: bool) -> bool:
        parts = opening.split()
        packed = "".join(self._held.split())
        wanted = "".join(parts)
        if not packed.startswith(wanted):
            if wanted.startswith(packed):
                return self._cut(cut=cut) if final else False
            return self._no_call()
        at = count = 0
        while count < len(wanted):
            count += not self._held[at].isspace()
            at += 1
        self._held = self._held[at:]
        self._in_section, self._is_call = True, False
        return True

    def _wait(self) -> bool:
        if len(self._held) > _LONG:
            self._may_end = self._format.waiter(self._held)
        return False

    def _cut(self, *, cut: bool) -> bool:
        """The answer ends within a call."""
        if not cut:
            return self._no_call()
        self._held, self._is_call = "", False
        return False

    def _no_call(self) -> bool:
        """What looked like a call is text, up to where the next one may begin."""
        form = self._format
        begin = max((one for one in form.begins if self._held.startswith(one)), key=len, default="")
        length = len(begin) or 1
        if not self._in_section:
            self._give(self._held[:length])
            self._has_text = True
        self._held, self._is_call = self._held[length:], False
        return True

    def _add(self, call: Call) -> None:
        identity = call.id or "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
        self._deltas.append(CallDelta(self.calls, identity, call.name, call.arguments))
        self.calls += 1
        self._is_after_call = True


def _schema(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _open_suffix(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of a text that may be the beginning of a marker."""
    longest = max(map(len, markers), default=0)
    for length in range(min(len(text), longest), 0, -1):
        if any(one.startswith(text[-length:]) for one in markers):
            return length
    return 0
