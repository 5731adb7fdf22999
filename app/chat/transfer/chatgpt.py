"""ChatGPT's export: a list of chats, each a tree of nodes; all branches are kept.

Source of the format: descriptions of it; it was not tried with an export of the program.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from app.chat.transfer.imported import (
    UNREADABLE,
    ImportedChat,
    Tree,
    chat_of,
    joined_answers,
)
from app.chat.transfer.values import a_list, a_text, a_time, an_id, an_object
from app.domain.chat_tree import in_order, node
from app.domain.message import MessageState, StopReason
from app.domain.parts import Part, Parts, TextPart, ThoughtPart, ToolCallPart, ToolResultPart
from app.domain.transfer import Dropped
from engine import Role

# Marks of its search, between private characters: they refer to pages that are not in the export.
_CITATION = re.compile("[ \t]?\ue200[^\ue200\ue201]{0,2000}\ue201")
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.ASSISTANT}
_CONTEXT = ("user_editable_context", "model_editable_context")


def is_chat(value: object) -> bool:
    """Whether a value is a chat of this format."""
    return isinstance(an_object(value).get("mapping"), dict)


def to_chat(value: object) -> ImportedChat:
    """Convert one chat."""
    chat = an_object(value)
    if not is_chat(value):
        return UNREADABLE
    nodes = {key: an_object(each) for key, each in an_object(chat["mapping"]).items()}
    parents, children = _links(nodes)
    tree, dropped = Tree(), Counter[Dropped]()
    instructions: list[str] = []
    for key in in_order(parents, children):
        message, parent = an_object(nodes[key].get("message")), parents[key]
        role = _ROLES.get(a_text(an_object(message.get("author")).get("role")))
        if not message:
            tree.leave_out(key, parent)
            continue
        if said := _instructions(message):
            instructions.append(said)
        parts = _parts(message, dropped) if role and not _is_hidden(message) else ()
        if role is None or not parts:
            dropped[Dropped.HIDDEN] += bool(_is_hidden(message) and not said and _has_text(message))
            tree.leave_out(key, parent)
            continue
        metadata = an_object(message.get("metadata"))
        state, stop = _ending(message, metadata)
        model = a_text(metadata.get("model_slug")) or a_text(chat.get("default_model_slug"))
        model = model if role is Role.ASSISTANT else ""
        created = a_time(message.get("create_time"))
        tree.add(
            key,
            parent,
            lambda number, above, role=role, parts=parts, created=created, model=model, state=state,
            stop=stop: node(
                number, above, role, parts, created=created, model=model, state=state, stop=stop
            ),
        )  # fmt: skip
    messages, branch_tip = joined_answers(
        tree.messages, tree.branch_tip(a_text(chat.get("current_node")))
    )
    number = an_id(chat.get("conversation_id")) or an_id(chat.get("id"))
    made = chat_of(
        messages,
        title=a_text(chat.get("title")),
        created=a_time(chat.get("create_time")),
        updated=a_time(chat.get("update_time")),
        branch_tip=branch_tip,
        origin=f"chatgpt:{number}" if number else "",
        instructions="\n\n".join(dict.fromkeys(instructions)),
        archived=chat.get("is_archived") is True,
    )
    return ImportedChat(made, dropped)


def _links(
    nodes: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, str | None], dict[str, list[str]]]:
    """The parent of each node, and the children of each in their order."""
    children = {
        key: [each for each in a_list(node.get("children")) if isinstance(each, str)]
        for key, node in nodes.items()
    }
    named = {child: key for key, below in children.items() for child in below}
    parents = {key: a_text(node.get("parent")) or named.get(key) for key, node in nodes.items()}
    return parents, children


def _is_hidden(message: Mapping[str, Any]) -> bool:
    role = an_object(message.get("author")).get("role")
    hidden = an_object(message.get("metadata")).get("is_visually_hidden_from_conversation")
    kind = an_object(message.get("content")).get("content_type")
    return role == "system" or hidden is True or kind in _CONTEXT


def _has_text(message: Mapping[str, Any]) -> bool:
    return any(each for each in a_list(an_object(message.get("content")).get("parts")))


def _instructions(message: Mapping[str, Any]) -> str:
    """The custom instructions that a hidden node has; "" for any other node."""
    content = an_object(message.get("content"))
    if content.get("content_type") == "user_editable_context":
        said = (a_text(content.get("user_profile")), a_text(content.get("user_instructions")))
        return "\n\n".join(filter(None, map(str.strip, said)))
    if an_object(message.get("author")).get("role") == "system":
        texts = [each for each in a_list(content.get("parts")) if isinstance(each, str)]
        return "\n".join(texts).strip()
    return ""


def _ending(message: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[MessageState, str]:
    kind = an_object(metadata.get("finish_details")).get("type")
    if kind == "max_tokens":
        return MessageState.STOPPED, StopReason.LENGTH.value
    if kind == "interrupted" or message.get("status") == "in_progress":
        return MessageState.STOPPED, StopReason.USER.value
    return MessageState.COMPLETE, ""


def _parts(message: Mapping[str, Any], dropped: Counter[Dropped]) -> Parts:
    """The parts of a message; what cannot be taken over is counted."""
    content, author = an_object(message.get("content")), an_object(message.get("author"))
    for _ in a_list(an_object(message.get("metadata")).get("attachments")):
        dropped[Dropped.FILES] += 1
    is_tool = author.get("role") == "tool"
    name = a_text(author.get("name"))
    match content.get("content_type"):
        case "thoughts":
            return _thoughts(content)
        case "reasoning_recap":  # "Thought for 12 seconds"
            return ()
        case "code" if a_text(message.get("recipient")) not in ("", "all"):
            return _call(a_text(message.get("recipient")), a_text(content.get("text")))
        case "code":
            code = a_text(content.get("text"))
            language = a_text(content.get("language")).replace("unknown", "")
            return (TextPart(f"```{language}\n{code}\n```"),) if code else ()
        case _:
            pass
    said = _said(content, dropped)
    if is_tool:
        return (ToolResultPart(name, said),) if said.strip() else ()
    if said and a_text(message.get("recipient")) not in ("", "all"):
        return _call(a_text(message.get("recipient")), said)
    return (TextPart(said),) if said.strip() else ()


def _thoughts(content: Mapping[str, Any]) -> tuple[Part, ...]:
    found: list[str] = []
    for each in a_list(content.get("thoughts")):
        thought = an_object(each)
        said = (a_text(thought.get("summary")), a_text(thought.get("content")))
        found.append("\n".join(filter(None, said)))
    text = "\n\n".join(filter(None, found))
    return (ThoughtPart(text),) if text.strip() else ()


def _call(tool: str, text: str) -> tuple[Part, ...]:
    """A call of a tool; what is not JSON, such as a program, is put in an object."""
    try:
        is_json = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_json = False
    return (ToolCallPart(tool, text if is_json else json.dumps({"code": text})),)


def _said(content: Mapping[str, Any], dropped: Counter[Dropped]) -> str:
    """The text of a message, with its pictures and sound counted."""
    pieces: list[str] = []
    for part in a_list(content.get("parts")):
        if isinstance(part, str):
            pieces.append(part)
            continue
        value = an_object(part)
        kind = a_text(value.get("content_type"))
        if "image" in kind or "video" in kind:
            dropped[Dropped.IMAGES] += 1
        elif kind == "audio_transcription":
            pieces.append(a_text(value.get("text")))
        elif "audio" in kind:
            dropped[Dropped.AUDIO] += 1
        elif said := a_text(value.get("text")):
            pieces.append(said)
        else:
            dropped[Dropped.FILES] += 1
    if not pieces:  # a quote, the output of a program, or an error
        pieces = [a_text(content.get(name)) for name in ("title", "text", "result")]
    return _CITATION.sub("", "\n\n".join(filter(None, pieces)))
