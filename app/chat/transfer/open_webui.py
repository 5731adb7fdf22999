"""Open WebUI's export: chats with a tree of messages, as a list or one on each line.

Tried with a file that version 0.12.4 of the program exported (`tests/app/chat/transfer`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any

from app.chat.transfer.imported import UNREADABLE, ImportedChat, Tree, chat_of
from app.chat.transfer.values import a_list, a_text, a_time, an_id, an_object
from app.domain.chat_tree import in_order, node
from app.domain.message import MessageState
from app.domain.parts import (
    FilePart,
    Part,
    Parts,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    split,
)
from app.domain.transfer import Dropped
from engine import Role

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}
_OPENS = '<details type="'
_CLOSES = "</details>"
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>\n?")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


def is_chat(value: object) -> bool:
    """Whether a value is a chat of this format."""
    return "messages" in _history(an_object(value))


def _history(chat: Mapping[str, Any]) -> Mapping[str, Any]:
    return an_object(an_object(chat.get("chat", chat)).get("history"))


def to_chat(value: object) -> ImportedChat:
    """Convert one chat."""
    row = an_object(value)
    if not is_chat(value):
        return UNREADABLE
    chat, history = an_object(row.get("chat", row)), _history(row)
    nodes = {key: an_object(each) for key, each in an_object(history["messages"]).items()}
    parents = {key: an_id(each.get("parentId")) or None for key, each in nodes.items()}
    children = {
        key: [an_id(each) for each in a_list(found.get("childrenIds"))]
        for key, found in nodes.items()
    }
    tree, dropped = Tree(), Counter[Dropped]()
    system = a_text(chat.get("system")) or a_text(an_object(chat.get("params")).get("system"))
    for key in in_order(parents, children):
        message = nodes[key]
        role = _ROLES.get(a_text(message.get("role")))
        parts = _parts(message, role, dropped) if role else ()
        if role is None or not parts:
            if message.get("role") == "system" and not system:
                system = a_text(message.get("content"))
            elif role is None:
                dropped[Dropped.DAMAGED] += 1
            tree.leave_out(key, parents[key])
            continue
        created, model = a_time(message.get("timestamp")), a_text(message.get("model"))
        is_stopped = role is Role.ASSISTANT and message.get("done") is False
        state = MessageState.STOPPED if is_stopped else MessageState.COMPLETE
        tree.add(
            key,
            parents[key],
            lambda number, above, role=role, parts=parts, created=created, model=model, state=state:
            node(number, above, role, parts, created=created, model=model, state=state),
        )  # fmt: skip
    number = an_id(row.get("id")) or an_id(chat.get("id"))
    made = chat_of(
        tree.messages,
        title=a_text(row.get("title")) or a_text(chat.get("title")),
        created=a_time(row.get("created_at")) or a_time(chat.get("timestamp")),
        updated=a_time(row.get("updated_at")),
        branch_tip=tree.branch_tip(an_id(history.get("currentId"))),
        origin=f"openwebui:{number}" if number else "",
        instructions=system,
        pinned=row.get("pinned") is True,
        archived=row.get("archived") is True,
    )
    return ImportedChat(made, dropped)


def _parts(message: Mapping[str, Any], role: Role, dropped: Counter[Dropped]) -> Parts:
    parts: list[Part] = []
    for each in a_list(message.get("files")):
        parts += _file(an_object(each), dropped)
    content = message.get("content")
    if pieces := [an_object(each) for each in a_list(content)]:
        dropped[Dropped.IMAGES] += sum(piece.get("type") == "image_url" for piece in pieces)
        content = "\n\n".join(filter(None, (a_text(piece.get("text")) for piece in pieces)))
    said = a_text(content)
    if role is Role.USER:
        return (*parts, TextPart(said)) if said else tuple(parts)
    answer = tuple(_output(a_list(message.get("output")))) or tuple(_answer(said))
    return (*parts, *answer)


def _file(file: Mapping[str, Any], dropped: Counter[Dropped]) -> Iterator[Part]:
    inner = an_object(file.get("file"))
    data = an_object(inner.get("data"))
    text = a_text(data.get("content"))
    if a_text(file.get("type")).startswith("image"):
        dropped[Dropped.IMAGES] += 1
    elif text:
        yield FilePart(a_text(file.get("name")) or a_text(inner.get("filename")), text)
    else:
        dropped[Dropped.FILES] += 1


def _output(items: list[Any]) -> Iterator[Part]:
    """The parts of an answer whose steps are stored one by one."""
    for each in items:
        item = an_object(each)
        texts = (
            a_text(an_object(piece).get("text"))
            for piece in a_list(item.get("content")) or a_list(item.get("summary"))
        )
        text = "\n\n".join(filter(None, texts))
        match item.get("type"):
            case "reasoning" if text:
                yield ThoughtPart(text)
            case "message" if text:
                yield TextPart(text)
            case "function_call":
                call = an_id(item.get("call_id"))
                yield ToolCallPart(a_text(item.get("name")), a_text(item.get("arguments")), call)
            case "function_call_output":
                output = item.get("output")
                said = output if isinstance(output, str) else json.dumps(output)
                yield ToolResultPart("", text if isinstance(output, list) and text else said,
                                     an_id(item.get("call_id")))  # fmt: skip
            case _:
                pass


def _answer(text: str) -> Iterator[Part]:
    """The parts of an answer of an older version, whose text contains the thoughts as HTML."""
    at = 0
    while (start := text.find(_OPENS, at)) >= 0:
        head, end = text.find(">", start), text.find(_CLOSES, start)
        if not start < head < end:
            break
        if before := text[at:start].strip("\n"):
            yield TextPart(before)
        named = {name: unescape(value) for name, value in _ATTRIBUTE.findall(text[start:head])}
        inside = text[head + 1 : end]
        summary = _SUMMARY.match(inside)
        yield from _details(named, inside[summary.end() :] if summary else inside)
        at = end + len(_CLOSES)
    if at == 0:
        yield from split(text)
    elif rest := text[at:].strip("\n"):
        yield TextPart(rest)


def _details(named: Mapping[str, str], inside: str) -> Iterator[Part]:
    """A folded part of an answer: a call of a tool with its result, or thoughts."""
    if named.get("type") == "tool_calls":
        name, call = named.get("name", ""), named.get("id", "")
        yield ToolCallPart(name, _plain(named.get("arguments", "")), call)
        if "result" in named:
            yield ToolResultPart(name, _plain(named["result"]), call)
        return
    lines = (re.sub(r"^(?:>|&gt;) ?", "", line) for line in inside.strip().split("\n"))
    if thought := unescape("\n".join(lines)).strip("\n"):
        yield ThoughtPart(thought)


def _plain(value: str) -> str:
    """A text that is JSON of a text, as the text."""
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, str) else value
