"""LM Studio's chats: a JSON file each, whose messages have versions, which become branches.

Source of the format: descriptions of it; it was not tried with a file of the program.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from app.chat.transfer.imported import UNREADABLE, ImportedChat, chat_of
from app.chat.transfer.values import a_list, a_number, a_text, a_time, an_id, an_object
from app.domain.chat_tree import node
from app.domain.message import Message
from app.domain.parts import Part, Parts, TextPart, ThoughtPart, ToolCallPart, ToolResultPart, split
from app.domain.transfer import Dropped
from engine import Role

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.ASSISTANT}


def is_chat(value: object) -> bool:
    """Whether a value is a chat of this format."""
    chat = an_object(value)
    messages = a_list(chat.get("messages"))
    if not messages:
        return isinstance(chat.get("messages"), list) and "systemPrompt" in chat
    return isinstance(an_object(messages[0]).get("versions"), list)


def to_chat(value: object, name: str = "") -> ImportedChat:
    """Convert one chat; `name` is that of its file, which is its id."""
    chat = an_object(value)
    if not is_chat(value):
        return UNREADABLE
    messages: list[Message] = []
    dropped = Counter[Dropped]()
    parent: int | None = None
    system = _system(chat)
    for each in a_list(chat["messages"]):
        entry = an_object(each)
        versions = [an_object(version) for version in a_list(entry.get("versions"))]
        chosen = int(min(max(a_number(entry.get("currentlySelected")), 0), len(versions)))
        shown = parent
        for n, version in enumerate(versions):
            role = _ROLES.get(a_text(version.get("role")) or "assistant")
            parts, model = _parts(version, dropped)
            if version.get("role") == "system":
                system = system or "".join(p.text for p in parts if isinstance(p, TextPart))
                continue
            if role is None or not parts:
                dropped[Dropped.DAMAGED] += role is None
                continue
            number = len(messages) + 1
            messages.append(node(number, parent, role, parts, model=model))
            if n == chosen or shown == parent:
                shown = number
        parent = shown
    made = chat_of(
        messages,
        title=a_text(chat.get("name")),
        created=a_time(chat.get("createdAt")),
        updated=max(a_time(chat.get("userLastMessagedAt")),
                    a_time(chat.get("assistantLastMessagedAt"))),
        branch_tip=parent,
        origin=f"lmstudio:{name or an_id(chat.get('createdAt'))}",
        instructions=system,
        pinned=chat.get("pinned") is True,
    )  # fmt: skip
    return ImportedChat(made, dropped)


def _system(chat: Mapping[str, Any]) -> str:
    """The system prompt, which newer versions store among the settings of the chat."""
    for each in a_list(an_object(chat.get("perChatPredictionConfig")).get("fields")):
        field = an_object(each)
        if field.get("key") == "llm.prediction.systemPrompt" and a_text(field.get("value")):
            return a_text(field.get("value"))
    return a_text(chat.get("systemPrompt"))


def _parts(version: Mapping[str, Any], dropped: Counter[Dropped]) -> tuple[Parts, str]:
    """The parts of a version, and the model that wrote it."""
    if version.get("type") != "multiStep":
        texts = tuple(_pieces(a_list(version.get("content")), dropped))
        is_answer = version.get("role") == "assistant"
        return tuple(_split(texts) if is_answer else texts), ""
    parts: list[Part] = []
    model = a_text(an_object(version.get("senderInfo")).get("senderName"))
    for each in a_list(version.get("steps")):
        step = an_object(each)
        if step.get("type") != "contentBlock":
            continue  # what the program says about itself
        pieces = tuple(_pieces(a_list(step.get("content")), dropped))
        used = a_text(an_object(step.get("genInfo")).get("indexedModelIdentifier"))
        model = model or used.rpartition("/")[2]
        if an_object(step.get("style")).get("type") == "thinking":
            text = "".join(piece.text for piece in pieces if isinstance(piece, TextPart))
            bare = text.strip().removeprefix("<think>").removesuffix("</think>").strip("\n")
            parts += [ThoughtPart(bare)] if bare.strip() else []
        else:
            parts += _split(pieces)
    return tuple(parts), model


def _pieces(content: list[Any], dropped: Counter[Dropped]) -> Iterator[Part]:
    for each in content:
        piece = an_object(each)
        match piece.get("type"):
            case "text":
                if text := a_text(piece.get("text")):
                    yield TextPart(text)
            case "toolCallRequest":
                arguments = piece.get("parameters", piece.get("arguments"))
                text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
                call = an_id(piece.get("callId")) or an_id(piece.get("toolCallRequestId"))
                yield ToolCallPart(a_text(piece.get("name")), text, call)
            case "toolCallResult":
                result = piece.get("content")
                text = result if isinstance(result, str) else json.dumps(result)
                yield ToolResultPart("", text, an_id(piece.get("toolCallId")))
            case "file":
                is_image = a_text(piece.get("fileType")) == "image"
                dropped[Dropped.IMAGES if is_image else Dropped.FILES] += 1
            case _:
                pass


def _split(pieces: tuple[Part, ...]) -> Iterator[Part]:
    """The parts of an answer, whose text may contain thoughts in tags."""
    for piece in pieces:
        if isinstance(piece, TextPart):
            yield from split(piece.text)
        else:
            yield piece
