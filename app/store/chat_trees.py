"""Whole chats in the store: read with all branches for an export, and inserted by an import."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

from app.domain.answer_details import details_of, details_text
from app.domain.chat_settings import settings_of, settings_text
from app.domain.chat_tree import ChatTree, depth_first
from app.domain.growing import append_text
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, ImagePart, Parts, ToolResultPart, search_text
from app.store.adapters import marks_of, marks_text
from app.store.folder_records import NO_FOLDERS, FolderRecords, make_folders, remove_empty
from app.store.part_rows import from_row, to_row
from app.store.queries import IMPORTING, chunks
from app.store.schema import RowNotFound
from app.store.search import clean
from app.system.text_search import normalize
from engine import Role

OWN_ORIGIN = "tokonoma:"  # with the id of a chat that was not imported
_MARK = "#"  # between the origin of a chat and the digest of what was imported


@dataclass(frozen=True, slots=True)
class Known:
    """The chats of one origin that are in the store."""

    conversations: tuple[int, ...]
    digests: frozenset[str]  # of what was imported, if they were


@dataclass(frozen=True, slots=True)
class ImportPiece:
    """Some messages of a chat that is imported, in one transaction with other pieces.

    The chat's row comes with its first piece, and is listed from its last piece on.
    """

    conversation: int
    chat: ChatTree  # title, times, settings and place
    digest: str
    messages: Sequence[Message]  # with the ids of the store; parents are in it or before
    branch_tip: int | None
    first: bool = True
    last: bool = True


def read_tree(database: sqlite3.Connection, conversation: int) -> ChatTree:
    """A chat with the messages of all branches. Raises RowNotFound."""
    row = database.execute(
        "SELECT title, created, updated, leaf, settings, folder, pinned, archived, origin"
        " FROM conversation WHERE id = ?",
        (conversation,),
    ).fetchone()
    if row is None:
        raise RowNotFound
    title, created, updated, branch_tip, settings, folder, pinned, archived, origin = row
    return ChatTree(
        title,
        created,
        updated,
        tuple(depth_first(list(_messages(database, conversation)))),
        branch_tip,
        settings_of(settings),
        tuple(_folder_names(database, folder)),
        bool(pinned),
        bool(archived),
        origin.partition(_MARK)[0] or f"{OWN_ORIGIN}{conversation}",
    )


def _messages(database: sqlite3.Connection, conversation: int) -> Iterator[Message]:
    found = database.execute(
        "SELECT p.message, p.kind, p.data, p.text FROM part AS p JOIN message AS m"
        " ON m.id = p.message WHERE m.conversation = ? ORDER BY p.message, p.id",
        (conversation,),
    )
    parts: dict[int, Parts] = {
        number: tuple(from_row(*row[1:]) for row in rows)
        for number, rows in groupby(found, key=lambda row: cast("int", row[0]))
    }
    rows = database.execute(
        "SELECT id, parent, role, state, created, model, stop, prompt_tokens, generated_tokens,"
        " seconds, adapters, details, compared, undecided FROM message WHERE conversation = ?"
        " ORDER BY id",
        (conversation,),
    )
    for number, parent, role, state, *rest, adapters, details, compared, undecided in rows:
        shown = parts.get(number, ())
        if state == MessageState.STREAMING.value:
            shown = append_text(shown, chunks(database, number))
        made = (Role(role), shown, MessageState(state), *rest)
        yield Message(
            number, conversation, parent, *made, sibling=1, siblings=1,
            adapters=marks_of(adapters), details=details_of(details),
            compared=compared, undecided=bool(undecided),
        )  # fmt: skip


def _folder_names(database: sqlite3.Connection, folder: int | None) -> list[str]:
    """The names of a folder and of those it is in, the outermost first."""
    names: list[str] = []
    seen: set[int] = set()
    while folder is not None and folder not in seen:
        seen.add(folder)
        row = database.execute("SELECT name, parent FROM folder WHERE id = ?", (folder,)).fetchone()
        if row is None:
            break
        names.append(row[0])
        folder = row[1]
    return names[::-1]


def origins(database: sqlite3.Connection) -> dict[str, Known]:
    """What is known of each origin, without deleted chats."""
    found: dict[str, Known] = {}
    rows = database.execute("SELECT id, origin FROM conversation WHERE deleted IS NULL ORDER BY id")
    for number, stored in rows:
        origin, _, digest = stored.partition(_MARK)
        for key in {origin, f"{OWN_ORIGIN}{number}"} - {""}:
            before = found.get(key, Known((), frozenset()))
            digests = {digest} - {""} if key == origin else set[str]()
            found[key] = Known((*before.conversations, number), before.digests | digests)
    return found


def chat_ids(database: sqlite3.Connection) -> list[int]:
    """The ids of all chats that are not deleted, the last active first."""
    rows = database.execute(
        "SELECT id FROM conversation WHERE deleted IS NULL ORDER BY updated DESC, id DESC"
    )
    return [row[0] for row in rows]


def attached(database: sqlite3.Connection, conversations: Sequence[int]) -> dict[str, None]:
    """The SHA-256 of the files and images of chats, and of those of tools, each once."""
    found: dict[str, None] = {}
    for conversation in conversations:
        rows = database.execute(
            "SELECT p.kind, p.data FROM part AS p JOIN message AS m ON m.id = p.message"
            " WHERE m.conversation = ? AND p.data <> ''"
            " AND p.kind IN ('file', 'image', 'tool result')",
            (conversation,),
        )
        for part in (from_row(kind, data, "") for kind, data in rows):
            match part:
                case FilePart(sha256=sha256) | ImagePart(sha256=sha256) if sha256:
                    found[sha256] = None
                case ToolResultPart(sha256=sha256, files=files):
                    names = (sha256, *(file.sha256 for file in files))
                    found.update((name, None) for name in names if name)
                case _:
                    pass
    return found


def recent_files(database: sqlite3.Connection, most: int) -> list[FilePart]:
    """The files attached last in chats that are not deleted, each once and without its text."""
    rows = database.execute(
        "SELECT p.data FROM part AS p JOIN message AS m ON m.id = p.message"
        " JOIN conversation AS c ON c.id = m.conversation"
        " WHERE p.kind = 'file' AND p.data <> '' AND c.deleted IS NULL ORDER BY p.id DESC"
    )
    found: dict[str, FilePart] = {}
    for (data,) in rows:
        part = from_row("file", data, "")
        if isinstance(part, FilePart) and part.name:
            found.setdefault(part.path or part.sha256 or part.name, part)
        if len(found) == most:
            break
    return list(found.values())


def import_pieces(
    database: sqlite3.Connection,
    pieces: Sequence[ImportPiece],
    folders: FolderRecords = NO_FOLDERS,
) -> list[int]:
    """Insert pieces of chats; returns the ids of the folders made for them, as `folders` says."""
    made: list[int] = []
    for piece in pieces:
        if piece.first:
            folder, new = make_folders(database, piece.chat.folder, folders)
            made += new
            _insert_conversation(database, piece, folder)
        _insert_messages(database, piece.messages)
        if piece.last:
            database.execute(
                "UPDATE conversation SET leaf = ?, deleted = NULL WHERE id = ?",
                (piece.branch_tip, piece.conversation),
            )
    return made


def _insert_conversation(
    database: sqlite3.Connection, piece: ImportPiece, folder: int | None
) -> None:
    chat = piece.chat
    title = clean(chat.title)
    origin = f"{chat.origin}{_MARK}{piece.digest}" if chat.origin else ""
    database.execute(
        "INSERT INTO conversation(id, title, folded, created, updated, deleted, settings,"
        " folder, pinned, archived, origin) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            piece.conversation,
            title,
            normalize(title),
            chat.created,
            chat.updated,
            IMPORTING,
            clean(settings_text(chat.settings)),
            folder,
            chat.pinned,
            chat.archived,
            clean(origin),
        ),
    )


def _insert_messages(database: sqlite3.Connection, messages: Sequence[Message]) -> None:
    database.executemany(
        "INSERT INTO message(id, conversation, parent, role, state, created, model, stop,"
        " prompt_tokens, generated_tokens, seconds, adapters, details, compared, undecided)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                each.id, each.conversation, each.parent, each.role.value, each.state.value,
                each.created, clean(each.model), clean(each.stop), each.prompt_tokens,
                each.generated_tokens, each.seconds, clean(marks_text(each.adapters)),
                clean(details_text(each.details)), each.compared, each.undecided,
            )
            for each in messages
        ],
    )  # fmt: skip
    database.executemany(
        "INSERT INTO part(message, kind, data, text) VALUES (?, ?, ?, ?)",
        [(each.id, *map(clean, to_row(part))) for each in messages for part in each.parts],
    )
    database.executemany(
        "INSERT INTO search(rowid, folded) VALUES (?, ?)",
        [
            (each.id, normalize(clean(text)))
            for each in messages
            if (text := search_text(each.parts))
        ],
    )


def incomplete(database: sqlite3.Connection) -> list[int]:
    """The ids of chats whose import is not complete."""
    rows = database.execute("SELECT id FROM conversation WHERE deleted = ?", (IMPORTING,))
    return [row[0] for row in rows]


def remove_imported(
    database: sqlite3.Connection, conversations: Sequence[int], folders: Sequence[int] = ()
) -> None:
    """Remove chats of an import that was cancelled, and the folders it made."""
    database.executemany(
        "DELETE FROM conversation WHERE id = ?", [(number,) for number in conversations]
    )
    remove_empty(database, folders)
