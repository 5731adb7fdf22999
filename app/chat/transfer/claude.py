"""Claude's export: a list of chats with their messages; branches by parent where it names them.

Source of the format: descriptions of it; it was not tried with an export of the program.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from app.chat.transfer.imported import UNREADABLE, ImportedChat, Tree, chat_of
from app.chat.transfer.values import a_list, a_text, a_time, an_id, an_object
from app.domain.chat_tree import in_order, node
from app.domain.parts import FilePart, Part, Parts, TextPart, ThoughtPart, ToolCallPart
from app.domain.parts import ToolResultPart as Result
from app.domain.transfer import Dropped
from engine import Role

_ROLES = {"human": Role.USER, "user": Role.USER, "assistant": Role.ASSISTANT}


def is_chat(value: object) -> bool:
    """Whether a value is a chat of this format."""
    return isinstance(an_object(value).get("chat_messages"), list)


def to_chat(value: object) -> ImportedChat:
    """Convert one chat."""
    chat = an_object(value)
    if not is_chat(value):
        return UNREADABLE
    messages: dict[str, Mapping[str, Any]] = {}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for n, each in enumerate(a_list(chat["chat_messages"])):
        message = an_object(each)
        key = an_id(message.get("uuid")) or f"#{n}"
        if key in messages:
            key = f"#{n}"
        named = message.get("parent_message_uuid")
        parent = an_id(named)
        messages[key] = message
        # The first message names a parent that does not exist.
        parents[key] = parent if parent in messages else None if n and parent else before
        before = key
    tree, dropped = Tree(), Counter[Dropped]()
    for key in in_order(parents, {}):
        message = messages[key]
        role = _ROLES.get(a_text(message.get("sender")))
        parts = _parts(message, dropped) if role else ()
        dropped[Dropped.DAMAGED] += role is None
        if role is None or not parts:
            tree.leave_out(key, parents[key])
            continue
        created = a_time(message.get("created_at"))
        tree.add(
            key,
            parents[key],
            lambda number, above, role=role, parts=parts, created=created: node(
                number, above, role, parts, created=created
            ),
        )
    shown = an_id(chat.get("current_leaf_message_uuid")) or before or ""
    number = an_id(chat.get("uuid"))
    made = chat_of(
        tree.messages,
        title=a_text(chat.get("name")),
        created=a_time(chat.get("created_at")),
        updated=a_time(chat.get("updated_at")),
        branch_tip=tree.branch_tip(shown),
        origin=f"claude:{number}" if number else "",
    )
    return ImportedChat(made, dropped)


def _parts(message: Mapping[str, Any], dropped: Counter[Dropped]) -> Parts:
    parts: list[Part] = []
    for each in a_list(message.get("attachments")):
        attachment = an_object(each)
        text = a_text(attachment.get("extracted_content"))
        if text:
            parts.append(FilePart(a_text(attachment.get("file_name")), text))
        else:
            dropped[Dropped.FILES] += 1
    for each in (*a_list(message.get("files")), *a_list(message.get("files_v2"))):
        is_image = an_object(each).get("file_kind") == "image"
        dropped[Dropped.IMAGES if is_image else Dropped.FILES] += 1
    content = a_list(message.get("content"))
    said = [part for block in content if (part := _part(an_object(block), dropped))]
    if not any(isinstance(part, TextPart) for part in said) and a_text(message.get("text")):
        said.append(TextPart(a_text(message.get("text"))))
    return (*parts, *said)


def _part(block: Mapping[str, Any], dropped: Counter[Dropped]) -> Part | None:
    match block.get("type"):
        case "text":
            text = a_text(block.get("text"))
            return TextPart(text) if text else None
        case "thinking":
            thought = a_text(block.get("thinking"))
            return ThoughtPart(thought) if thought else None
        case "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            return ToolCallPart(a_text(block.get("name")), arguments, an_id(block.get("id")))
        case "tool_result":
            failed = block.get("is_error") is True
            call = an_id(block.get("tool_use_id"))
            return Result(a_text(block.get("name")), _result(block.get("content")), call, failed)
        case "image":
            dropped[Dropped.IMAGES] += 1
            return None
        case _:
            return None


def _result(content: object) -> str:
    if isinstance(content, str):
        return content
    texts = [a_text(an_object(each).get("text")) for each in a_list(content)]
    return "\n\n".join(filter(None, texts))
