"""Harmony: an answer of messages, each with a channel and perhaps a recipient, as gpt-oss writes it.

The thoughts before the answer are split off before; what comes here is the text of the final
channel, or whole messages with their headers.
"""

from __future__ import annotations

import re

from engine.frontend.tool_formats.formats import HARMONY_BEGINS, Call, open_suffix
from engine.frontend.tool_formats.values import Depth, Incomplete, NotACall, dumped, read_json

_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
_PREFIX = "functions."
_HEADS = ("commentary", "assistant", "analysis")  # before a recipient, by which the grammar begins
_ROLE_FIRST = re.compile(r"\s*to=")
_HEADER = re.compile(
    r"(?:\s*<\|(?:end|call|return)\|>)*\s*(?:<\|start\|>\s*assistant)?(?:\s*to=(?P<role>[^\s<]+))?\s*"
    r"(?:<\|channel\|>\s*(?P<channel>\w*)(?:\s*to=(?P<recipient>[^\s<]+))?[^<]*)?"
    r"(?:<\|channel\|>[^<]*)?"
    r"(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_LONGEST_HEADER = 400  # characters
SURE_MARKER = 3  # characters by which the beginning of a marker is told from text

# A call; a piece of one that grows; or a text, and whether it is a thought.
Found = Call | tuple[int, str, str] | tuple[str, bool]


class HarmonyReader:
    """Reads the messages of one answer.

    `grows`: calls with headers as the grammar has them follow it, and are given out in pieces.
    """

    def __init__(self, *, grows: bool = False) -> None:
        self._grows = grows
        self._is_sure = False  # the grammar has written the header
        self._is_begin = True
        self._is_header = False
        self._channel = "final"
        self._recipient = ""
        self._depth: Depth | None = None  # of the arguments so far
        self._seen = 0  # characters of them

    def read(self, held: str, *, final: bool, cut: bool) -> tuple[str, list[Found]]:
        """What is certain in the held text, and the rest of it."""
        found: list[Found] = []
        while True:
            if self._is_begin:
                step = self._begin(held, final=final)
            elif self._is_header:
                step = self._header(held, final=final)
            elif self._recipient:
                step = self._call(held, found, final=final, cut=cut)
            else:
                step = self._text(held, found, final=final, cut=cut)
            if step is None:
                return held, found
            held = step

    def _begin(self, held: str, *, final: bool) -> str | None:
        """Whether the answer begins with a header whose first tag is in the prompt."""
        rest = held.lstrip()
        if not final and ("to=".startswith(rest) or (rest == "" and not held)):
            return None
        self._is_begin = False
        self._is_header = bool(_ROLE_FIRST.match(held))
        return held

    def _header(self, held: str, *, final: bool) -> str | None:
        found = _HEADER.match(held)
        if found is None:
            end = held.find("<|message|>")
            is_lost = end < 0 and len(held) > _LONGEST_HEADER
            places = (held.find(one, 1) for one in ("<|start|>", "<|channel|>"))
            later = min((at for at in places if at > 0), default=end)
            if later > 0 and (later < end or (end < 0 and is_lost)):
                return held[later:]  # another header begins: this one is none
            if end >= 0:
                self._open("", "")
                return held[end + len("<|message|>") :]
            if is_lost:
                self._open("", "")
                return held[_LONGEST_HEADER:]
            return "" if final and held else None
        recipient = found["role"] or found["recipient"] or ""
        self._is_sure = self._grows and any(f"{one} to={recipient}" in found[0] for one in _HEADS)
        self._open(found["channel"] or "", "" if recipient == "assistant" else recipient)
        return held[found.end() :]

    def _open(self, channel: str, recipient: str) -> None:
        self._depth = None
        self._is_header, self._channel, self._recipient = False, channel, recipient

    def _call(self, held: str, found: list[Found], *, final: bool, cut: bool) -> str | None:
        """The body of a message to a tool; one to another recipient is left out."""
        if self._recipient.startswith(_PREFIX):
            body = held.lstrip()
            if self._depth is None:
                self._depth, self._seen = Depth(""), 0
            begin = max(self._seen, len(held) - len(body))
            end = self._depth.closing(held[begin:])
            is_whole = end >= 0 or (bool(body) and body[0] not in "[{")
            self._seen = len(held)
            self._is_sure = self._is_sure and body[:1] in ("", "{")
            if self._is_sure:
                piece = held[begin : begin + end if end >= 0 else None]
                found.append((0, self._recipient.removeprefix(_PREFIX), piece))
            if not (final or is_whole):
                return None
            try:
                value, raw, end = read_json(body, 0)
                if isinstance(value, list) and len(value) == 1:  # one call in a list of such
                    value, raw = value[0], dumped(value[0])
                if isinstance(value, dict):
                    found.append(Call(self._recipient.removeprefix(_PREFIX), raw))
                    self._recipient, self._channel = "", "none"
                    return body[end:]
            except Incomplete:
                if not final or cut:
                    return "" if final and held else None
            except NotACall:
                pass
        at = _first(held, _ENDS)
        if at is None:
            return "" if final and held else None
        self._recipient, self._channel = "", "none"
        return held[at:]

    def _text(self, held: str, found: list[Found], *, final: bool, cut: bool) -> str | None:
        at, begun = _first(held, HARMONY_BEGINS), open_suffix(held, HARMONY_BEGINS)
        if final and not (cut and begun >= SURE_MARKER):
            begun = 0
        certain = at if at is not None else len(held) - begun
        text, rest = held[:certain], held[certain:]
        if text and self._channel in ("analysis", "final", "commentary"):
            found.append((text, self._channel == "analysis"))
        self._is_header = at is not None
        if self._is_header and not rest.startswith(("<|start|>", "<|channel|>")):
            after = rest.lstrip("".join(set("<|endcallreturn|>")))
            if not after.strip() and final:
                return ""
        return rest if text or self._is_header else None


def _first(text: str, markers: tuple[str, ...]) -> int | None:
    places = [at for one in markers if (at := text.find(one)) >= 0]
    return min(places) if places else None
