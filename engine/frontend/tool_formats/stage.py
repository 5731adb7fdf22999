"""ToolCallStage: the tool calls of one answer, behind the stage that tells thoughts from text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from engine.frontend.tool_formats.formats import ToolFormat, open_suffix
from engine.frontend.tool_formats.parser import CallDelta, Delta, TextDelta, ToolCallParser
from engine.messages import Finished, FinishReason, Text, Thought, Tool, ToolCallDelta


class ToolCallStage:
    """Takes thoughts and texts of an answer, and gives out these and the calls among them.

    A call in thoughts is one if the answer ends in these: the model forgot to end them.
    `constrained`: a grammar guarantees the form of calls in the text.
    """

    def __init__(
        self, tool_format: ToolFormat, tools: Sequence[Tool], *, constrained: bool = False
    ) -> None:
        self._format, self._tools = tool_format, tools
        self._parser = ToolCallParser(tool_format, tools, constrained=constrained)
        self._thought = ""  # held: it may begin with a call
        self._holds = False
        self._is_begin = True  # of the text: the white space that templates write after thoughts
        own = tool_format.has_messages or tool_format.at_start
        self._markers = () if own else tool_format.begins

    @property
    def ends_with_calls(self) -> bool:
        """Whether there are calls, and all of them are whole."""
        return bool(self._parser.calls) and not self._parser.ends_in_call

    def thought(self, text: str) -> list[Delta]:
        """Add a piece of thoughts."""
        self._thought += text
        if self._holds:
            return []
        places = [at for one in self._markers if (at := self._thought.find(one)) >= 0]
        self._holds = bool(places)
        certain = min(places, default=len(self._thought))
        if not places:
            certain -= open_suffix(self._thought, self._markers)
        if self._markers:
            certain = len(self._thought[:certain].rstrip())
        return self._released(certain)

    def text(self, text: str) -> list[Delta]:
        """Add a piece of text: the thoughts have ended."""
        text = text.lstrip("\n") if self._is_begin else text
        self._is_begin = self._is_begin and not text
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


class ToolCallEvents:
    """The events of a request with tools: those of calls in place of their text.

    `constrained`: a grammar guarantees the form of calls, which are given out while they grow.
    """

    def __init__(
        self, tool_format: ToolFormat, tools: Sequence[Tool], *, constrained: bool = False
    ) -> None:
        self._new_stage = partial(ToolCallStage, tool_format, tools, constrained=constrained)
        self._stages: dict[int, ToolCallStage] = {}  # by the number of the answer

    def of(
        self, event: Text | Thought | Finished
    ) -> Iterator[Text | Thought | ToolCallDelta | Finished]:
        """What an event of the answer becomes; an answer that ends with calls says so."""
        stage = self._stages.get(event.answer)
        if stage is None:
            stage = self._stages[event.answer] = self._new_stage()
        if isinstance(event, Finished):
            is_whole = event.reason is FinishReason.END
            for delta in stage.finish(cut=not is_whole):
                yield _event(delta, event)
            ends = event.reason in (FinishReason.END, FinishReason.STOP)
            reason = FinishReason.TOOL_CALLS if ends and stage.ends_with_calls else event.reason
            yield replace(event, reason=reason)
            return
        is_thought = isinstance(event, Thought)
        deltas = stage.thought(event.text) if is_thought else stage.text(event.text)
        if not deltas or not isinstance(deltas[0], TextDelta):  # what belongs to the tokens
            yield replace(event, text="")
        elif event.logprobs:
            yield replace(_event(deltas.pop(0), event), logprobs=event.logprobs)
        for delta in deltas:
            yield _event(delta, event)


def _event(delta: Delta, event: Text | Thought | Finished) -> Text | Thought | ToolCallDelta:
    """The event of a delta beside the one that it came with."""
    counts = (event.generated_tokens, event.context_used, event.answer)
    if isinstance(delta, CallDelta):
        call = (delta.index, delta.id, delta.name, delta.arguments)
        return ToolCallDelta(event.request, *call, *counts)
    return (Thought if delta.is_thought else Text)(event.request, delta.text, *counts)
