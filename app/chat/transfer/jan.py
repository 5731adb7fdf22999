"""Jan's chats: a folder each, with thread.json and a message on each line of messages.jsonl.

Source of the format: the specification in the program's documentation; it was not tried with files
of the program.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from app.chat.transfer.imported import UNREADABLE, ImportedChat, chat_of
from app.chat.transfer.values import a_list, a_text, a_time, an_id, an_object
from app.domain.chat_tree import node
from app.domain.message import Message, MessageState
from app.domain.parts import Part, Parts, TextPart, ThoughtPart, ToolCallPart, split
from app.domain.transfer import Dropped
from engine import Role

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}


def is_thread(value: object) -> bool:
    """Whether a value is a thread.json."""
    thread = an_object(value)
    return thread.get("object") == "thread" or (
        "id" in thread and isinstance(thread.get("assistants"), list)
    )


def to_chat(value: object, lines: Iterable[Any]) -> ImportedChat:
    """Convert a thread and the lines of its messages; a line that is not JSON is None."""
    thread = an_object(value)
    if not is_thread(value):
        return UNREADABLE
    dropped = Counter[Dropped]()
    found: list[tuple[float, Role, Parts, bool]] = []
    assistants = [an_object(each) for each in a_list(thread.get("assistants"))]
    system = next((said for each in assistants if (said := a_text(each.get("instructions")))), "")
    model = a_text(an_object(thread.get("model")).get("id"))
    for each in assistants:
        model = model or a_text(an_object(each.get("model")).get("id"))
    for line in lines:
        message = an_object(line)
        role = _ROLES.get(a_text(message.get("role")))
        parts = _parts(message.get("content"), role, dropped) if role else ()
        if message.get("role") == "system":
            system = system or "".join(p.text for p in parts if isinstance(p, TextPart))
        elif role is None:
            dropped[Dropped.DAMAGED] += 1
        elif parts:
            created = a_time(message.get("created_at")) or a_time(message.get("created"))
            found.append((created, role, parts, message.get("status") == "stopped"))
    if all(created for created, *_ in found):  # older versions wrote the newest line first
        found.sort(key=lambda each: each[0])
    messages: list[Message] = []
    for n, (created, role, parts, stopped) in enumerate(found):
        state = MessageState.STOPPED if stopped else MessageState.COMPLETE
        writer = model if role is Role.ASSISTANT else ""
        made = node(n + 1, n or None, role, parts, created=created, model=writer, state=state)
        messages.append(made)
    number = an_id(thread.get("id"))
    tree = chat_of(
        messages,
        title=a_text(thread.get("title")) or a_text(thread.get("summary")),
        created=a_time(thread.get("created")),
        updated=a_time(thread.get("updated")),
        branch_tip=len(messages) or None,
        origin=f"jan:{number}" if number else "",
        instructions=system,
    )
    return ImportedChat(tree, dropped)


def _parts(content: object, role: Role, dropped: Counter[Dropped]) -> Parts:
    pieces = [content] if isinstance(content, str) else a_list(content)
    parts: list[Part] = []
    for each in pieces:
        piece = {"type": "text", "text": each} if isinstance(each, str) else an_object(each)
        inner = piece.get("text")
        text = inner if isinstance(inner, str) else a_text(an_object(inner).get("value"))
        match piece.get("type"):
            case "text" if text:
                parts += split(text) if role is Role.ASSISTANT else [TextPart(text)]
            case "reasoning" if text:
                parts.append(ThoughtPart(text))
            case "tool_call":
                call = an_object(piece.get("tool_call")) or piece
                given = call.get("arguments", call.get("input"))
                arguments = given if isinstance(given, str) else json.dumps(given or {})
                parts.append(
                    ToolCallPart(a_text(call.get("name")), arguments, an_id(call.get("id")))
                )
            case "image_url" | "image" | "image_file":
                dropped[Dropped.IMAGES] += 1
            case "input_audio":
                dropped[Dropped.AUDIO] += 1
            case "file":
                dropped[Dropped.FILES] += 1
            case _:
                pass
    return tuple(parts)
