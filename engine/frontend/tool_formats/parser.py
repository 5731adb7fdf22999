"""ToolCallParser: splits the text of an answer into texts and tool calls while it is generated.

A call that a grammar guarantees is given out while it grows; any other when it is whole, since
until then it may turn out to be text. The same text gives the same texts and calls, whatever the
pieces it comes in.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.frontend.tool_formats.formats import Call, Kind, ToolFormat, open_suffix
from engine.frontend.tool_formats.growing import GrowingCalls, Piece
from engine.frontend.tool_formats.harmony import SURE_MARKER, HarmonyReader
from engine.frontend.tool_formats.values import Incomplete, NotACall
from engine.messages import Tool

_ID_LETTERS = string.ascii_letters + string.digits
_LONG = 1000  # characters of a call that is not read again for every piece
_SEPARATORS = " \r\n\t;,"  # between calls without markers
_LINE = re.compile(r"\s*\n[ \t]*(?=[\[{])")  # before one that follows text
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
    """Parses one answer.

    `constrained`: behind the marker that begins calls, the text has the form that the grammar of
    these tools writes.
    """

    def __init__(
        self, tool_format: ToolFormat, tools: Sequence[Tool], *, constrained: bool = False
    ) -> None:
        self.calls = 0  # whole ones so far
        self._begun: list[CallDelta] = []  # calls in part, each with its arguments so far
        self._is_constrained = constrained
        self._is_sure = False  # the held call began with the marker that the grammar waits for
        self._growing: GrowingCalls | None = None
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
        is_harmony = tool_format.kind is Kind.HARMONY
        self._harmony = HarmonyReader(grows=constrained) if is_harmony else None

    @property
    def ends_in_call(self) -> bool:
        """Whether the text so far ends within a call of which a part was given out."""
        return bool(self._begun)

    @property
    def is_reading(self) -> bool:
        """Whether the text so far ends within a call."""
        return self._is_call or self._in_section

    def push(self, text: str) -> list[Delta]:
        """Add a piece of the answer; returns what is certain."""
        self._held += text
        if self._growing is not None:
            self._grow(self._growing, text)
        if self._may_end is not None and not self._may_end(text):
            return self._given()
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
        return self._given()

    def _given(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _read_harmony(self, reader: HarmonyReader, *, final: bool, cut: bool) -> None:
        self._held, found = reader.read(self._held, final=final, cut=cut)
        for one in found:
            if isinstance(one, Call):
                self._add(one)
            elif len(one) == 3:
                self._add_piece(one)
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

    @property
    def _is_late(self) -> bool:
        """Whether a call would follow text without a marker.

        It is one on lines of its own, with nothing but calls behind it: else it is an example.
        """
        return self._format.at_start and self._has_text and not self._is_marked

    def _find(self, *, final: bool, cut: bool) -> bool:
        """Give out the text before what may be a call."""
        if self._format.at_start:
            begun = self._held.lstrip(_SEPARATORS if self._is_after_call else None)
            if begun.startswith(("{", "[")) and not self._is_late:
                self._held, self._is_call = begun, True
                return True
        places = [
            (at, len(one)) for one in self._format.begins if (at := self._held.find(one)) >= 0
        ]
        if self._format.at_start and (line := _LINE.search(self._held)):
            places.append((line.start(), 0))
        if places:
            at, _ = min(places, key=lambda place: (place[0], -place[1]))
            self._give(self._held[:at], before_call=True)
            self._held, self._is_call = self._held[at:], True
            return True
        if final:
            begun = open_suffix(self._held, self._format.begins)
            if cut and begun >= SURE_MARKER:  # of a call
                self._held = self._held[:-begun].rstrip()
            spaces = _SEPARATORS if self._format.at_start else None
            is_rest = self._is_after_call and not self._held.strip(spaces)
            self._give("" if is_rest else self._held)
            self._held = ""
            return False
        if self._format.at_start and self._is_after_call and not self._held.strip(_SEPARATORS):
            return False
        certain = len(self._held) - open_suffix(self._held, self._format.begins)
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
        if self._is_constrained and self._growing is None and not self._is_late:
            self._begin_growing()
        try:
            calls, end = self._whole_calls(final=final)
        except Incomplete:
            return self._cut(cut=cut) if final else self._wait()
        except NotACall:
            return self._no_call()
        for call in calls:
            self._add(call)
        self._end_call(end)
        return True

    def _whole_calls(self, *, final: bool) -> tuple[list[Call], int]:
        """The calls that the held text begins with, and their end."""
        calls, end = self._format.read(self._held, self._schemas, final=final)
        while self._is_late:
            rest = self._held[end:].lstrip(_SEPARATORS)
            if not rest and final:
                break
            if not rest:
                raise Incomplete
            more, length = self._format.read(rest, self._schemas, final=final)
            calls, end = calls + more, len(self._held) - len(rest) + length
        return calls, end

    def _end_call(self, end: int) -> None:
        self._held, self._is_call, self._growing = self._held[end:], False, None

    def _begin_growing(self) -> None:
        """Read the held text as a call that grows, if the grammar has written its beginning."""
        form = self._format
        marker = "" if form.at_start or self._in_section else form.begins[0]
        is_sure = self._is_sure if self._in_section else not form.section[0].strip()
        self._growing = GrowingCalls(form, self._schemas)
        if is_sure and self._held.startswith(marker):
            self._grow(self._growing, self._held)

    def _grow(self, growing: GrowingCalls, text: str) -> None:
        for piece in growing.push(text):
            self._add_piece(piece)

    def _open_section(self, opening: str, *, final: bool, cut: bool) -> bool:
        parts = opening.split()
        packed = "".join(self._held.split())
        wanted = "".join(parts)
        if not packed.startswith(wanted):
            if wanted.startswith(packed):
                return self._cut(cut=cut) if final else False
            return self._no_call()
        self._is_sure = self._held.startswith(opening)
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
        if not cut and not self._begun:
            return self._no_call()
        self._end_call(len(self._held))
        return False

    def _no_call(self) -> bool:
        """What looked like a call is text, up to where the next one may begin."""
        form = self._format
        if self._begun and self._growing is not None:  # what was given out stays a call
            end = self._growing.taken
            if end:
                self.calls, self._begun = self.calls + len(self._begun), []
            rest = self._held[end:].lstrip("]})") if end else ""
            self._end_call(len(self._held) - len(rest))
            return bool(rest)
        begin = max((one for one in form.begins if self._held.startswith(one)), key=len, default="")
        length = len(begin) or 1
        if not self._in_section:
            self._give(self._held[:length])
            self._has_text = True
        self._end_call(length)
        return True

    def _add(self, call: Call) -> None:
        if self._begun:  # what is missing of it
            begun = self._begun.pop(0)
            rest = call.arguments.removeprefix(begun.arguments)
            if rest and rest != call.arguments:
                self._deltas.append(CallDelta(begun.index, "", "", rest))
        else:
            self._deltas.append(self._first(self.calls, call.name, call.id, call.arguments))
        self.calls += 1
        self._is_after_call = True

    def _first(self, index: int, name: str, identity: str, arguments: str) -> CallDelta:
        identity = identity or "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
        return CallDelta(index, identity, name, arguments)

    def _add_piece(self, piece: Piece) -> None:
        number, name, arguments = piece
        if number == len(self._begun):
            name, identity = self._format.named(name, self._schemas)
            delta = self._first(self.calls + number, name, identity, arguments)
            self._begun.append(delta)
            self._deltas.append(delta)
        elif arguments:
            begun = self._begun[number]
            self._begun[number] = replace(begun, arguments=begun.arguments + arguments)
            self._deltas.append(CallDelta(begun.index, "", "", arguments))


def _schema(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}
