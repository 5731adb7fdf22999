"""Messages of chats, OpenAI's and Ollama's, as turns of the engine."""

from __future__ import annotations

import json

from engine.messages import ImagePart, ReasoningPart, TextPart, ToolCall, Turn
from engine.server.conversation import (
    Content,
    Conversation,
    call_arguments,
    content,
    content_text,
    joined,
    result,
)
from engine.server.fields import Fields
from engine.server.http import Call

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # the same text, if there are several


def turns(call: Call) -> tuple[Turn, ...]:
    """The turns of `messages`; raises ApiError for one that is wrong."""
    conversation, before, body = Conversation(call.pictures), "", call.body
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
    images = conversation.pictures.of_list(message)
    match message.choice("role", _ROLES, "user"):
        case "system" | "developer":
            _refuse(message, images)
            conversation.system(content_text(message))
        case "user":
            found = content(message, conversation.pictures)
            conversation.user(_with(found, images))
        case "tool" | "function":
            name = message.text("tool_name") or message.text("name")
            found = result(message, conversation.pictures)
            conversation.result(message.text("tool_call_id"), _with(found, images), name)
        case _:
            _refuse(message, images)
            text = content_text(message)
            thoughts = next(filter(None, map(message.text, _THOUGHTS)), "")
            conversation.assistant(ReasoningPart(thoughts))
            conversation.assistant(TextPart(text))
            for call in message.objects("tool_calls"):
                conversation.assistant(_call(call, conversation))
    return role


def _with(content: Content, images: list[ImagePart]) -> Content:
    """A content with Ollama's pictures of the message, which its models read first."""
    parts = [TextPart(content)] if isinstance(content, str) else content
    return joined([*images, *parts]) if images else content


def _refuse(message: Fields, images: list[ImagePart]) -> None:
    """Raise ApiError if there are pictures where only text can be."""
    if images:
        message.fail("images", "has pictures, which only the user and tools may send.")


def _call(call: Fields, conversation: Conversation) -> ToolCall:
    """A call that the client gives back; without an id, as Ollama's older clients do, it gets one."""
    function = call.object("function")
    if function is None:
        call.fail("function", "is missing; give the name and the arguments.")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    id = call.text("id") or f"call{conversation.count_calls:05}"
    return ToolCall(id, function.required_text("name"), call_arguments(text))
