"""Tools, calls and results in a conversation, as a chat template takes them.

Templates agree on transformers' messages but for a few habits, which are found by rendering a
conversation with a call. One that does not show it is given the tools in the system text, and calls
and results as plain text, in the format that most models have seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from typing import Any

from engine.messages import Role, TextPart, Tool, ToolCall, ToolResult, Turn
from engine.messages.reasoning_markers import Message

# Renders messages; None: the template refuses them.
Render = Callable[[Sequence[Message], Mapping[str, object]], str | None]

GENERIC_BEGIN, GENERIC_END = "<tool_call>", "</tool_call>"
_SHORT_ID = 9  # letters and digits of an id where a template asks for these
_INSTRUCTIONS = """\
# Tools

You may call one or more of these tools. They are described by JSON schemas:
{tools}

To call a tool, write a JSON object with its name and its arguments in this form, and nothing after \
the last call:
<tool_call>
{{"name": "the tool's name", "arguments": {{"an argument's name": "its value"}}}}
</tool_call>
The results come back between <tool_response> and </tool_response>."""

QUESTION = "Well-known"
CALL = ToolCall("call_Marked1", "marked_tool", '{"marked_key": "MarkedValue"}')
_RESULT, _PURPOSE = "MarkedResult", "MarkedPurpose"
PROBE_TOOL = Tool(
    CALL.name,
    _PURPOSE,
    '{"type": "object", "properties": {"marked_key": {"type": "string", "description": "Key"}}, '
    '"required": ["marked_key"]}',
)


class IdStyle(Enum):
    """Which ids of calls a template takes."""

    ANY = "any"
    SHORT = "short"  # nine letters and digits; it refuses others
    NAMED = "named"  # it shows the id in place of the name: `functions.name:0`


@dataclass(frozen=True, slots=True)
class ToolStyle:
    """How a template takes calls and results."""

    is_native: bool = False  # it shows tools, calls and results; else they are plain text
    string_arguments: bool = False  # the arguments of a call are JSON text, not an object
    no_text: str | None = ""  # content of a message that has calls only
    ids: IdStyle = IdStyle.ANY
    # A message has results in a field: those of its calls, behind them.
    results_field: str = ""

    def call(self, call: ToolCall, index: int) -> Message:
        """A call in a message, the one of this index in the conversation."""
        arguments = call.arguments if self.string_arguments else loaded(call.arguments)
        function = {"name": call.name, "arguments": arguments}
        identity = self.id(call.id)
        if self.ids is IdStyle.NAMED and not call.id.startswith(f"functions.{call.name}"):
            identity = f"functions.{call.name}:{index}"
        return {"type": "function", "id": identity, "function": function}

    def id(self, text: str) -> str:
        """An id that the template takes."""
        is_short = len(text) == _SHORT_ID and text.isascii() and text.isalnum()
        if self.ids is not IdStyle.SHORT or is_short:
            return text
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_SHORT_ID]

    def with_calls(self, message: Message, calls: Sequence[ToolCall], index: int = 0) -> Message:
        """An answer's message with its calls, the first of which has this index."""
        content = message["content"] or self.no_text
        made = [self.call(one, at) for at, one in enumerate(calls, index)]
        return {**message, "content": content, "tool_calls": made}

    def arranged(self, messages: Sequence[Message]) -> list[Message]:
        """The messages, results where the template looks for them."""
        if not self.results_field:
            return list(messages)
        made: list[Message] = []
        for message in messages:
            if message["role"] != Role.TOOL.value or not made or "tool_calls" not in made[-1]:
                made.append(message)
                continue
            given = {"name": message["name"], "response": message["content"]}
            before = made[-1].get(self.results_field, [])
            made[-1] = {**made[-1], self.results_field: [*before, given]}
        return made

    def result(self, result: ToolResult, name: str) -> Message:
        """The message of a result; `name` is that of the call."""
        return {
            "role": Role.TOOL.value,
            "content": result.text,
            "name": name,
            "tool_call_id": self.id(result.call_id),
        }


def find_tool_style(source: str, render: Render) -> ToolStyle:
    """The style that shows the tool, the call and the result of a conversation."""
    fields = ("tool_responses", "") if "tool_responses" in source else ("",)
    for field, ids, no_text, is_string in product(fields, IdStyle, ("", None), (False, True)):
        style = ToolStyle(True, is_string, no_text, ids, field)
        if _shows(render(probe(style), {"tools": definitions([PROBE_TOOL])})):
            return style
    return ToolStyle()


def probe(style: ToolStyle) -> list[Message]:
    """A conversation with a call and its result."""
    answer: Message = {"role": "assistant", "content": ""}
    result = style.result(ToolResult(CALL.id, CALL.name, _RESULT), CALL.name)
    question = {"role": "user", "content": QUESTION}
    return style.arranged([question, style.with_calls(answer, (CALL,)), result])


def _shows(prompt: str | None) -> bool:
    if prompt is None:
        return False
    call = prompt.rpartition(QUESTION)[2]
    is_repr = "'marked_key'" in call or '\\"marked_key' in call
    shown = (CALL.name, "marked_key", "MarkedValue", _RESULT)
    return not is_repr and _PURPOSE in prompt and all(one in call for one in shown)


def definitions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as templates take them."""
    made: list[dict[str, Any]] = []
    for tool in tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": loaded(tool.schema),
        }
        made.append({"type": "function", "function": function})
    return made


def loaded(text: str) -> Any:
    """The value of a JSON text; the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def call_names(turns: Sequence[Turn]) -> dict[str, str]:
    """The tools that calls in a conversation name, by the id of the call."""
    return {call.id: call.name for turn in turns for call in turn.calls}


# --- templates that do not know tools -----------------------------------------------------------


def as_text(turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
    """The conversation with tools, calls and results in its texts."""
    names = call_names(turns)
    made: list[Turn] = []
    for turn in turns:
        if turn.role is Role.TOOL:
            turn = Turn(Role.USER, "\n".join(_written_results(turn, names)))
        elif turn.calls:
            turn = replace(turn, content=tuple(_written_calls(turn)))
        if made and turn.role is made[-1].role is Role.USER:  # a question behind results
            turn = Turn(Role.USER, f"{made.pop().text}\n\n{turn.text}")
        made.append(turn)
    if not tools:
        return made
    described = "\n".join(
        json.dumps(one["function"], ensure_ascii=False) for one in definitions(tools)
    )
    text = _INSTRUCTIONS.format(tools=described)
    if made and made[0].role is Role.SYSTEM:
        return [Turn(Role.SYSTEM, f"{made[0].text}\n\n{text}"), *made[1:]]
    return [Turn(Role.SYSTEM, text), *made]


def _written_calls(turn: Turn) -> Iterator[Any]:
    is_first = True
    for part in turn.content:
        if isinstance(part, ToolCall):
            value = {"name": part.name, "arguments": loaded(part.arguments)}
            text = json.dumps(value, ensure_ascii=False)
            lead = "" if is_first else "\n"
            yield TextPart(f"{lead}{GENERIC_BEGIN}\n{text}\n{GENERIC_END}")
        else:
            yield part
        is_first = is_first and isinstance(part, TextPart) and not part.text


def _written_results(turn: Turn, names: Mapping[str, str]) -> Iterator[str]:
    for result in turn.results or (ToolResult("", "", turn.text),):
        name = result.name or names.get(result.call_id, "")
        value = {"name": name, "content": loaded(result.text)}
        yield f"<tool_response>\n{json.dumps(value, ensure_ascii=False)}\n</tool_response>"
