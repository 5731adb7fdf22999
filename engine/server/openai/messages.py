"""Messages of chats, OpenAI's and Ollama's, as turns of the engine."""

from __future__ import annotations

import json

from engine.messages import ReasoningPart, TextPart, ToolCall, Turn
from engine.server.conversation import Conversation, call_arguments, content_text, result_text
from engine.server.fields import Fields

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # the same text, if there are several


def turns(body: Fields) -> tuple[Turn, ...]:
    """The turns of `messages`; raises ApiError for one that is wrong."""
    conversation, before = Conversation(), ""
    messages = body.some_objects("messages")
    for message in messages:
        role = _read(message, conversation)
        if message is messages[-1] and role == before == "assistant":
            problem = "ends with two messages of the assistant; only one can be continued."
            body.fail("messages", problem)
        before = role
    return conversation.turns()


def _read(message: Fields, conversation: Conversation) -> str:
    """Add a message; returns its role."""
    role = message.required_text("role")
    is_result = role in ("tool", "function")
    text = result_text(message) if is_result else content_text(message)
    if message.items("images"):
        message.fail("images", "has pictures; the models here read text only.")
    match message.choice("role", _ROLES, "user"):
        case "system" | "developer":
            conversation.system(text)
        case "user":
            conversation.user(text)
        case "tool" | "function":
            name = message.text("tool_name") or message.text("name")
            conversation.result(message.text("tool_call_id"), text, name)
        case _:
            thoughts = next(filter(None, map(message.text, _THOUGHTS)), "")
            conversation.assistant(ReasoningPart(thoughts))
            conversation.assistant(TextPart(text))
            for call in message.objects("tool_calls"):
                conversation.assistant(_call(call, conversation))
    return role


def _call(call: Fields, conversation: Conversation) -> ToolCall:
    """A call that the client gives back; without an id, as Ollama's older clients do, it gets one."""
    function = call.object("function")
    if function is None:
        call.fail("function", "is missing; give the name and the arguments.")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    id = call.text("id") or f"call{conversation.count_calls:05}"
    return ToolCall(id, function.required_text("name"), call_arguments(text))
