"""SillyTavern's chats: JSON Lines, the first of which describes the chat; swipes become branches.

Source of the format: descriptions of it; it was not tried with a file of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.chat.transfer.imported import UNREADABLE, ImportedChat, chat_of
from app.chat.transfer.values import a_list, a_number, a_text, a_time, an_id, an_object
from app.domain.chat_tree import node
from app.domain.message import Message
from app.domain.parts import Parts, TextPart, ThoughtPart, split
from app.domain.transfer import Dropped
from engine import Role

_UNUSED = "unused"  # in place of the names in the first line
_MOST_NAMES = 4  # of a group, in the title of its chat


def is_header(value: object) -> bool:
    """Whether a value is the first line of a chat."""
    header = an_object(value)
    return "chat_metadata" in header or ("user_name" in header and "character_name" in header)


def to_chat(lines: Iterator[Any], name: str = "") -> ImportedChat:
    """Convert the lines of one chat; a line that is not JSON is None. `name` is that of its file."""
    header = an_object(next(lines, None))
    if not is_header(header):
        return UNREADABLE
    messages: list[Message] = []
    speakers: dict[int, str] = {}  # by message
    dropped = Counter[Dropped]()
    parent: int | None = None
    for line in lines:
        message = an_object(line)
        if not message:
            dropped[Dropped.DAMAGED] += 1
            continue
        if message.get("is_system") is True:
            dropped[Dropped.HIDDEN] += 1
            continue
        role = Role.USER if message.get("is_user") is True else Role.ASSISTANT
        extra = an_object(message.get("extra"))
        dropped[Dropped.IMAGES] += bool(extra.get("image")) + len(a_list(extra.get("media")))
        swipes = [each for each in a_list(message.get("swipes")) if isinstance(each, str)]
        texts = swipes or [a_text(message.get("mes"))]
        chosen = int(min(max(a_number(message.get("swipe_id")), 0), len(texts) - 1))
        if a_text(message.get("mes")):
            texts[chosen] = a_text(message.get("mes"))  # it may have been edited
        infos = [an_object(each) for each in a_list(message.get("swipe_info"))]
        shown = parent
        for n, text in enumerate(texts):
            info = infos[n] if n < len(infos) else an_object(None)
            more = extra if n == chosen else an_object(info.get("extra"))
            created = a_time(info.get("send_date")) or a_time(message.get("send_date"))
            parts = _parts(text, a_text(more.get("reasoning")), role)
            if not parts:
                continue
            number = len(messages) + 1
            model = a_text(more.get("model")) if role is Role.ASSISTANT else ""
            if role is Role.ASSISTANT:
                speakers[number] = a_text(message.get("name"))
            messages.append(node(number, parent, role, parts, created=created, model=model))
            if n == chosen or shown == parent:
                shown = number
        parent = shown
    names = dict.fromkeys(filter(None, speakers.values()))
    if len(names) > 1:  # a chat of a group: who said it matters more than which model
        messages = [replace(each, model=speakers.get(each.id) or each.model) for each in messages]
    said = a_text(header.get("character_name"))
    title = ("" if said == _UNUSED else said) or ", ".join([*names][:_MOST_NAMES]) or name
    metadata = an_object(header.get("chat_metadata"))
    number = an_id(metadata.get("integrity")) or name
    tree = chat_of(
        messages,
        title=title,
        created=a_time(header.get("create_date")),
        updated=0.0,
        branch_tip=parent,
        origin=f"sillytavern:{number}" if number else "",
    )
    return ImportedChat(tree, dropped)


def _parts(text: str, thought: str, role: Role) -> Parts:
    if role is Role.USER:
        return (TextPart(text),) if text else ()
    said = split(text) if text else ()
    return (ThoughtPart(thought), *said) if thought.strip() else said
