"""Our own format: everything of a chat as JSON, which is read back to an equal chat.

Described in `resources/chat_export.md`. One chat on each line, so that a file of any size is written
and read chat by chat.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import IO, Any

from app.chat.transfer.faults import TransferError
from app.chat.transfer.imported import UNREADABLE, ImportedChat, Tree
from app.chat.transfer.json_stream import JsonStream, damaged
from app.chat.transfer.values import a_list, a_number, a_text, an_object
from app.domain.answer_details import details_of
from app.domain.chat import BUILT_IN, Preset
from app.domain.chat_settings import settings_from, settings_values, without_tools
from app.domain.chat_tree import ChatTree, FolderRecord, in_order
from app.domain.message import AdapterMark, Message, MessageState
from app.domain.parts import Part
from app.domain.presets import preset_of, preset_text
from app.domain.transfer import Dropped
from app.store.part_rows import from_row, to_row
from app.system.translation import tr
from engine import Role

FORMAT = "tokonoma-chats"
VERSION = 2  # 1 had no folders and no files
PIECE = 3 << 18  # bytes of a file in one element: 1 MiB as Base64
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEEPEST = 100  # folders in each other
_LARGEST = float(1 << 53)
_STATES = {state.value: state for state in MessageState}
_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True)
class Extras:
    """Gets what is in a file beside its chats, before them."""

    folders: Callable[[Sequence[FolderRecord]], object] = lambda _: None
    # A file that is attached in the chats: its SHA-256 as the export says, and its bytes.
    attached: Callable[[str, Iterator[bytes]], object] = lambda _name, _pieces: None


NO_EXTRAS = Extras()


def write(
    file: IO[bytes],
    chats: Iterable[ChatTree],
    now: float,
    folders: Sequence[FolderRecord] = (),
    attached: Iterable[tuple[str, Iterable[bytes]]] = (),
) -> Iterator[int]:
    """Write chats to a file; yields after each how many there are.

    `attached` has the SHA-256 and the bytes of each file, in pieces of `PIECE` bytes.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "exported": now}
    head["folders"] = [_folder_values(each) for each in folders]
    file.write(_encoded(head)[:-1] + b',"files":[')
    mark = b"\n"
    for sha256, pieces in attached:
        for piece in pieces:
            text = b64encode(piece).decode()
            file.write(mark + _encoded({"sha256": sha256, "base64": text}))
            mark = b",\n"
    file.write(b'],"chats":[')
    for count, chat in enumerate(chats, 1):
        file.write(b",\n" if count > 1 else b"\n")
        file.write(_encoded(values_of(chat)))
        yield count
    file.write(b"\n]}\n")


def _encoded(values: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a character: only an escape can express it
        return json.dumps(values, separators=(",", ":")).encode()


def values_of(chat: ChatTree) -> dict[str, Any]:
    """A chat as JSON values; what is as usual is left out."""
    numbers = {message.id: n for n, message in enumerate(chat.messages, 1)}
    values: dict[str, Any] = {
        "title": chat.title,
        "created": chat.created,
        "updated": chat.updated,
        "leaf": numbers.get(chat.branch_tip or 0),
        "origin": chat.origin,
        "folder": list(chat.folder),
        "pinned": chat.pinned,
        "archived": chat.archived,
        "settings": settings_values(chat.settings),
    }
    kept = {name: value for name, value in values.items() if value or name in ("title", "created")}
    return {**kept, "messages": [_message_values(each, numbers) for each in chat.messages]}


def _message_values(message: Message, numbers: Mapping[int, int]) -> dict[str, Any]:
    streaming = message.state is MessageState.STREAMING  # when the file is read, nobody writes it
    state = MessageState.INTERRUPTED if streaming else message.state
    values: dict[str, Any] = {
        "stop": message.stop,
        "model": message.model,
        "prompt_tokens": message.prompt_tokens,
        "generated_tokens": message.generated_tokens,
        "seconds": message.seconds,
        "adapters": [asdict(mark) for mark in message.adapters],
        "details": None if message.details is None else asdict(message.details),
        "compared": numbers.get(message.compared),
        "undecided": message.undecided,
    }
    return {
        "id": numbers[message.id],
        "parent": numbers.get(message.parent or 0),
        "role": message.role.value,
        "state": state.value,
        "created": message.created,
        **{name: value for name, value in values.items() if value},
        "parts": [_part_values(part) for part in message.parts],
    }


def _folder_values(record: FolderRecord) -> dict[str, Any]:
    preset, kept = record.preset, dict[str, Any]()
    if preset is not None and preset.id and not preset.name:
        kept = {"built_in": preset.id}
    elif preset is not None:
        kept = {"name": preset.name, **json.loads(preset_text(preset))}
    values = {
        "instructions": record.instructions,
        "preset": kept or None,
        "position": record.position or None,
    }
    said = {name: value for name, value in values.items() if value is not None}
    return {"path": list(record.path), **said}


def _part_values(part: Part) -> dict[str, Any]:
    """The values of a part, without the places of files on this computer."""
    kind, data, text = to_row(part)
    more: dict[str, Any] = json.loads(data) if data else {}
    for each in (more, *more.get("passages", ())):
        each.pop("path", None)
    return {"kind": kind, **more, "text": text}


# --- reading -------------------------------------------------------------------------------------


def read(stream: JsonStream, extras: Extras = NO_EXTRAS) -> Iterator[ImportedChat]:
    """The chats of a file. Raises TransferError."""
    for name in stream.names():
        if name == "chats":
            for value in stream.elements():
                yield to_chat(value)
            return
        if name == "files":
            pieces = map(an_object, stream.elements())
            for sha256, found in groupby(pieces, key=lambda piece: a_text(piece.get("sha256"))):
                if _SHA256.fullmatch(sha256):
                    extras.attached(sha256, (_bytes(piece.get("base64")) for piece in found))
            continue
        value = stream.value()
        if name == "version" and a_number(value) > VERSION:
            raise TransferError(
                tr("This file was exported by a newer version of Tokonoma."),
                tr("Update Tokonoma to import it."),
            )
        if name == "folders":
            found = (_folder(an_object(each)) for each in a_list(value))
            extras.folders([each for each in found if each is not None])
    raise damaged()


def _bytes(value: object) -> bytes:
    """The bytes of a piece; none of one that is damaged, whose file has another hash then."""
    try:
        return b64decode(a_text(value), validate=True)
    except ValueError:
        return b""


def _names(value: object) -> tuple[str, ...]:
    """The names of folders, the outermost first; those that are too deep are left out."""
    return tuple(each for each in a_list(value)[:_DEEPEST] if isinstance(each, str))


def _folder(row: Mapping[str, Any]) -> FolderRecord | None:
    path = _names(row.get("path"))
    given, said = an_object(row.get("preset")), row.get("instructions")
    preset, number = None, _whole(given.get("built_in"))
    if 0 < number <= BUILT_IN:
        preset = Preset(number, "")
    elif name := a_text(given.get("name")):
        preset = preset_of(0, name, json.dumps(given))
    instructions = said if isinstance(said, str) else None
    place = a_number(row.get("position"))
    return FolderRecord(path, instructions, preset, place) if path else None


def to_chat(value: object) -> ImportedChat:
    """Convert one chat; messages of a kind that is not known are left out and counted."""
    chat = an_object(value)
    if not isinstance(chat.get("messages"), list):
        return UNREADABLE
    rows: dict[str, Mapping[str, Any]] = {}
    dropped = Counter[Dropped]()
    for n, each in enumerate(a_list(chat["messages"])):
        row = an_object(each)
        key = _key(row.get("id"))
        rows[key if key and key not in rows else f"#{n}"] = row
    parents = {key: _key(row.get("parent")) or None for key, row in rows.items()}
    tree = Tree()
    for key in in_order(parents, {}):
        row = rows[key]
        role, state = _ROLES.get(a_text(row.get("role"))), _STATES.get(a_text(row.get("state")))
        if role is None or state is None or not isinstance(row.get("parts"), list):
            dropped[Dropped.DAMAGED] += 1
            tree.leave_out(key, parents[key])
            continue
        if state is MessageState.STREAMING:
            state = MessageState.INTERRUPTED
        tree.add(
            key,
            parents[key],
            lambda number, above, row=row, role=role, state=state: _message(
                row, number, above, role, state
            ),
        )
    messages = [_compared(each, tree) for each in tree.messages]
    made = ChatTree(
        title=a_text(chat.get("title")),
        created=a_number(chat.get("created")),
        updated=a_number(chat.get("updated")),
        messages=tuple(messages),
        branch_tip=tree.branch_tip(_key(chat.get("leaf")))
        if chat.get("leaf") is not None
        else None,
        settings=without_tools(settings_from(chat.get("settings"))),
        folder=_names(chat.get("folder")),
        pinned=chat.get("pinned") is True,
        archived=chat.get("archived") is True,
        origin=a_text(chat.get("origin")),
    )
    return ImportedChat(made, dropped)


def _key(value: object) -> str:
    number = _whole(value)
    return str(number) if number else ""


def _whole(value: object) -> int:
    """A whole number that fits in a column of the store."""
    number = a_number(value)
    return int(number) if 0 <= number < _LARGEST else 0


def _message(
    row: Mapping[str, Any], number: int, parent: int | None, role: Role, state: MessageState
) -> Message:
    details = row.get("details")
    return Message(
        id=number,
        conversation=0,
        parent=parent,
        role=role,
        parts=tuple(_part(an_object(each)) for each in a_list(row["parts"])),
        state=state,
        created=a_number(row.get("created")),
        model=a_text(row.get("model")),
        stop=a_text(row.get("stop")),
        prompt_tokens=_whole(row.get("prompt_tokens")),
        generated_tokens=_whole(row.get("generated_tokens")),
        seconds=a_number(row.get("seconds")),
        sibling=1,
        siblings=1,
        adapters=tuple(_mark(an_object(each)) for each in a_list(row.get("adapters"))),
        details=details_of(json.dumps(details)) if isinstance(details, dict) else None,
        compared=_whole(row.get("compared")),  # the number in the file, for now
        undecided=row.get("undecided") is True,
    )


def _compared(message: Message, tree: Tree) -> Message:
    """The message with the number in the tree of what it was compared with."""
    if not message.compared:
        return message
    return replace(message, compared=tree.parent(_key(message.compared)) or 0)


def _mark(row: Mapping[str, Any]) -> AdapterMark:
    return AdapterMark(
        a_text(row.get("name")), a_number(row.get("strength")), a_text(row.get("sha256"))
    )


def _part(row: Mapping[str, Any]) -> Part:
    more = {name: value for name, value in row.items() if name not in ("kind", "text")}
    return from_row(
        a_text(row.get("kind")), json.dumps(more) if more else "", a_text(row.get("text"))
    )
