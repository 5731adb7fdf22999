"""ToolCallStage: the tool calls of one answer, behind the stage that tells thoughts from text."""

from __future__ import annotations

from collections.abc import Sequence

from engine.frontend.tool_formats.formats import Kind, ToolFormat
from engine.frontend.tool_formats.parser import CallDelta, Delta, TextDelta, ToolCallParser
from engine.messages import Tool


class ToolCallStage:
    """Takes thoughts and texts of an answer, and gives out these and the calls among them.

    A call in thoughts is one if the answer ends in these: the model forgot to end them.
    """

    def __init__(self, tool_format: ToolFormat, tools: Sequence[Tool]) -> None:
        self._format, self._tools = tool_format, tools
        self._parser = ToolCallParser(tool_format, tools)
        self._thought = ""  # held: it may begin with a call
        self._holds = False
        own = tool_format.kind is Kind.HARMONY or tool_format.at_start
        self._markers = () if own else tool_format.begins

    @property
    def calls(self) -> int:
        """The calls so far."""
        return self._parser.calls

    def thought(self, text: str) -> list[Delta]:
        """Add a piece of thoughts."""
        self._thought += text
        if self._holds:
            return []
        places = [at for one in self._markers if (at := self._thought.find(one)) >= 0]
        self._holds = bool(places)
        certain = min(places, default=len(self._thought))
        if not places:
            longest = max(map(len, self._markers), default=1) - 1
            for length in range(min(longest, certain), 0, -1):
                if any(one.startswith(self._thought[-length:]) for one in self._markers):
                    certain -= length
                    break
        if self._markers:
            certain = len(self._thought[:certain].rstrip())
        return self._released(certain)

    def text(self, text: str) -> list[Delta]:
        """Add a piece of text: the thoughts have ended."""
        return [*self._released(len(self._thought)), *self._parser.push(text)]

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """The end of the answer. `cut`: by a limit."""
        if not self._holds:
            return [*self._released(len(self._thought)), *self._parser.finish(cut=cut)]
        begun = len(self._thought) - len(self._thought.lstrip())
        held, self._thought = self._thought, ""
        reader = ToolCallParser(self._format, self._tools)
        found = [*reader.push(held[begun:]), *reader.finish(cut=cut)]
        if not reader.calls:
            return [TextDelta(held, is_thought=True)]
        self._parser = reader
        return [
            one if isinstance(one, CallDelta) else TextDelta(one.text, is_thought=True)
            for one in found
        ]

    def _released(self, length: int) -> list[Delta]:
        text, self._thought = self._thought[:length], self._thought[length:]
        self._holds = self._holds and bool(self._thought)
        return [TextDelta(text, is_thought=True)] if text else []
