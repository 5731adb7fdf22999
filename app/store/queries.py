"""SQL of the message tree: row types, queries for branches, and updates.

Each function runs on an open connection in the transaction of its caller, `app.store.store`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from app.domain.answer_details import AnswerRecord, details_of, details_text
from app.domain.chat import Conversation
from app.domain.chat_settings import settings_of, settings_text
from app.domain.growing import append_text
from app.domain.message import Message, MessageState
from app.domain.parts import ErrorPart, Part, Parts, search_text
from app.domain.unsent import Unsent
from app.store.adapters import marks_of, marks_text
from app.store.part_rows import from_row, to_row
from app.store.schema import RowNotFound
from app.store.search import MAX_WORD_LENGTH, MAX_WORDS, clean, index, word_condition
from app.store.unsent import unsent_of, unsent_text
from app.system.text_search import normalize
from engine import Role

NEW_CHAT = "new chat"  # name of the record with its settings
NEW_CHAT_FOLDER = "new chat folder"  # name of the record with its folder's id
_DELETED = ("conversation", "folder", "deleted_message")  # tables with times of deletion
IMPORTING = 0.0  # time of deletion of a chat that is not listed before its import is complete
CONVERSATION = (
    "SELECT id, title, created, updated, leaf, settings, folder, pinned, archived FROM conversation"
)
MESSAGE = """
    SELECT m.id, m.conversation, m.parent, m.role, m.state, m.created, m.model, m.stop,
        m.prompt_tokens, m.generated_tokens, m.seconds,
        (SELECT count(*) FROM message AS s
            WHERE s.conversation = m.conversation AND s.parent IS m.parent AND s.id <= m.id),
        (SELECT count(*) FROM message AS s
            WHERE s.conversation = m.conversation AND s.parent IS m.parent),
        m.adapters, m.details, coalesce((SELECT o.id FROM message AS o
            WHERE o.id = m.compared AND o.compared = m.id AND o.conversation = m.conversation
            AND o.parent IS m.parent), 0), m.undecided
    FROM message AS m
"""
BRANCH = f"""
    WITH RECURSIVE branch(id, parent, depth) AS (
        SELECT m.id, m.parent, 0 FROM message AS m
            JOIN conversation AS c ON m.id = c.leaf WHERE c.id = ?
        UNION ALL
        SELECT m.id, m.parent, depth + 1 FROM message AS m JOIN branch AS b ON m.id = b.parent
    )
    {MESSAGE} JOIN branch AS b ON m.id = b.id ORDER BY b.depth DESC
"""
LAST_USED_BELOW = """
    WITH RECURSIVE below(id) AS (
        VALUES (?1)
        UNION ALL
        SELECT m.id FROM message AS m JOIN below AS b ON m.conversation = ?2 AND m.parent = b.id
    )
    SELECT m.id FROM below AS b JOIN message AS m ON m.id = b.id
        WHERE NOT EXISTS (
            SELECT 1 FROM message AS s WHERE s.conversation = ?2 AND s.parent = m.id
        )
        ORDER BY m.used DESC, m.id DESC LIMIT 1
"""


def to_conversation(row: tuple[Any, ...]) -> Conversation:
    """Convert a row of `CONVERSATION`."""
    number, title, created, updated, branch_tip, settings, folder, pinned, archived = row
    record = settings_of(settings)
    return Conversation(
        number, title, created, updated, branch_tip, record, folder, bool(pinned), bool(archived)
    )


def find_conversations(database: sqlite3.Connection, words: Sequence[str]) -> list[Conversation]:
    """Conversations with all these folded words, the last active first."""
    conditions, values = ["deleted IS NULL"], list[str]()
    chosen = [word[:MAX_WORD_LENGTH] for word in words[:MAX_WORDS]]
    for word in sorted(chosen, key=len, reverse=True):  # the rarer ones first, most often
        condition, bound = word_condition(word)
        conditions.append(condition)
        values += bound
    rows = database.execute(
        f"{CONVERSATION} AS c WHERE {' AND '.join(conditions)} ORDER BY updated DESC, id DESC",
        values,
    )
    return [to_conversation(row) for row in rows]


def any_deleted(database: sqlite3.Connection, before: float) -> bool:
    """Whether a conversation, folder or message was deleted before a time."""
    return any(
        database.execute(
            f"SELECT 1 FROM {table} WHERE deleted > {IMPORTING} AND deleted <= ? LIMIT 1", (before,)
        ).fetchone()
        for table in _DELETED
    )


def purge_deleted(database: sqlite3.Connection, before: float) -> None:
    """Permanently remove conversations, folders and messages deleted before a time."""
    for table in _DELETED:
        database.execute(
            f"DELETE FROM {table} WHERE deleted > {IMPORTING} AND deleted <= ?", (before,)
        )


def to_message(database: sqlite3.Connection, row: tuple[Any, ...]) -> Message:
    """Convert a row of `MESSAGE`, with its parts and the chunks streamed so far."""
    message_id, conversation, parent, role, state, *rest = row
    *rest, adapters, details, compared, undecided = rest
    parts = read_parts(database, message_id)
    if state == MessageState.STREAMING.value:
        parts = append_text(parts, chunks(database, message_id))
    known = (Role(role), parts, MessageState(state), *rest)
    return Message(
        message_id,
        conversation,
        parent,
        *known,
        adapters=marks_of(adapters),
        details=details_of(details),
        compared=compared,  # 0 when the other answer was deleted
        undecided=bool(undecided and compared),
    )


def read_parts(database: sqlite3.Connection, message_id: int) -> Parts:
    """The stored parts of a message, without the chunks of a streaming one."""
    rows = database.execute(
        "SELECT kind, data, text FROM part WHERE message = ? ORDER BY id", (message_id,)
    )
    return tuple(from_row(*row) for row in rows)


def write_parts(database: sqlite3.Connection, message_id: int, parts: Parts) -> None:
    """Replace the parts of a message, without the search index."""
    database.execute("DELETE FROM part WHERE message = ?", (message_id,))
    database.executemany(
        "INSERT INTO part(message, kind, data, text) VALUES (?, ?, ?, ?)",
        [(message_id, *map(clean, to_row(part))) for part in parts],
    )


def add_part(database: sqlite3.Connection, message_id: int, part: Part) -> None:
    """Append a part to an answer, which is streaming and has not failed from now on.

    Without the search index: it is in that when it has ended.
    """
    database.execute("UPDATE message SET state = 'streaming' WHERE id = ?", (message_id,))
    database.execute("DELETE FROM part WHERE message = ? AND kind = 'error'", (message_id,))
    database.execute(
        "INSERT INTO part(message, kind, data, text) VALUES (?, ?, ?, ?)",
        (message_id, *map(clean, to_row(part))),
    )


def replace_parts(database: sqlite3.Connection, message_id: int, parts: Parts) -> None:
    """Replace the parts of a message; raises RowNotFound."""
    find(database, message_id)
    write_parts(database, message_id, parts)
    index(database, message_id, search_text(parts))


def find(database: sqlite3.Connection, message_id: int) -> Message:
    """The message with this id; raises RowNotFound."""
    row = database.execute(f"{MESSAGE} WHERE m.id = ?", (message_id,)).fetchone()
    if row is None:
        raise RowNotFound
    return to_message(database, row)


def sibling_ids(database: sqlite3.Connection, message: Message) -> list[int]:
    rows = database.execute(
        "SELECT id FROM message WHERE conversation = ? AND parent IS ? ORDER BY id",
        (message.conversation, message.parent),
    )
    return [row[0] for row in rows]


def last_answers(database: sqlite3.Connection, most: int) -> list[AnswerRecord]:
    """The figures of the last answers of all conversations that have some, the last one last."""
    rows = database.execute(
        "SELECT prompt_tokens, generated_tokens, details FROM message"
        " WHERE role = ? AND generated_tokens > 0 AND details <> '' ORDER BY id DESC LIMIT ?",
        (Role.ASSISTANT.value, most),
    ).fetchall()
    return [
        AnswerRecord(prompt, generated, details)
        for prompt, generated, text in reversed(rows)
        if (details := details_of(text)) is not None
    ]


def last_id(database: sqlite3.Connection) -> int:
    """The largest id made by the app, also of a deleted row; 0: none."""
    tables = (
        "conversation",
        "message",
        "deleted_message",
        "folder",
        "preset",
        "snippet",
        "collection",
        "tool_activity",
    )
    largest = (database.execute(f"SELECT max(id) FROM {table}").fetchone()[0] for table in tables)
    return max(each or 0 for each in largest)


def chunks(database: sqlite3.Connection, message_id: int) -> str:
    """The chunks of a message that are not in its text yet, joined."""
    rows = database.execute("SELECT text FROM chunk WHERE message = ? ORDER BY seq", (message_id,))
    return "".join(row[0] for row in rows)


def merge_chunks(
    database: sqlite3.Connection,
    message_id: int,
    state: MessageState,
    error: ErrorPart | None = None,
) -> None:
    """Merge the chunks of a message into its parts, end it, and add it to the search index."""
    known = database.execute("UPDATE message SET state = ? WHERE id = ?", (state.value, message_id))
    if not known.rowcount:
        raise RowNotFound
    before = read_parts(database, message_id)
    parts = append_text(before, chunks(database, message_id))
    if error is not None:
        parts = (*parts, error)
    if parts != before:
        write_parts(database, message_id, parts)
    database.execute("DELETE FROM chunk WHERE message = ?", (message_id,))
    index(database, message_id, search_text(parts))


def set_branch_tip(database: sqlite3.Connection, conversation: int, branch_tip: int) -> None:
    """Set the branch_tip of the shown branch, and its turn number."""
    database.execute(
        "UPDATE conversation SET leaf = ?, turn = turn + 1 WHERE id = ?", (branch_tip, conversation)
    )
    database.execute(
        "UPDATE message SET used = (SELECT turn FROM conversation WHERE id = ?) WHERE id = ?",
        (conversation, branch_tip),
    )


def show_last_used_below(database: sqlite3.Connection, conversation: int, message_id: int) -> None:
    """Show the last used branch with a message, if the conversation still has it."""
    branch_tip = database.execute(LAST_USED_BELOW, (message_id, conversation)).fetchone()
    if branch_tip is not None:
        set_branch_tip(database, conversation, branch_tip[0])


def touch(database: sqlite3.Connection, conversation: int) -> None:
    """Set a conversation's update time, which moves it to the top of the list."""
    database.execute(
        "UPDATE conversation SET updated = ? WHERE id = ?", (time.time(), conversation)
    )


def set_draft(database: sqlite3.Connection, conversation: int, unsent: Unsent) -> None:
    """Save what is unsent in a conversation, 0 for the new chat; nothing deletes it."""
    if text := unsent_text(unsent):
        if conversation:
            require_conversation(database, conversation)
        database.execute(
            "INSERT OR REPLACE INTO draft(conversation, saved, text) VALUES (?, ?, ?)",
            (conversation, time.time(), clean(text)),
        )
    else:
        database.execute("DELETE FROM draft WHERE conversation = ?", (conversation,))


def insert_conversation(
    database: sqlite3.Connection, number: int, title: str, now: float, settings: str
) -> Conversation:
    """Insert an empty conversation, unless it exists."""
    database.execute(
        "INSERT INTO conversation(id, title, folded, created, updated, settings)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING",
        (number, title, normalize(title), now, now, settings),
    )
    return Conversation(number, title, now, now, None, settings_of(settings))


def set_settings(database: sqlite3.Connection, conversation: int | None, text: str) -> None:
    """Save the settings of a conversation as JSON; None is the new chat."""
    if conversation is None:
        set_record(database, NEW_CHAT, text)
        return
    changed = database.execute(
        "UPDATE conversation SET settings = ? WHERE id = ?", (clean(text), conversation)
    )
    if not changed.rowcount:
        raise RowNotFound


def set_record(database: sqlite3.Connection, name: str, text: str) -> None:
    """Save a record that is of no conversation; an empty one is removed."""
    if text:
        database.execute("INSERT OR REPLACE INTO record VALUES (?, ?)", (name, clean(text)))
    else:
        database.execute("DELETE FROM record WHERE name = ?", (name,))


def find_record(database: sqlite3.Connection, name: str) -> str:
    """The text of a record; empty if there is none."""
    row = database.execute("SELECT CAST(data AS TEXT) FROM record WHERE name = ?", (name,))
    return next((text for (text,) in row), "")


def rename(database: sqlite3.Connection, conversation: int, title: str) -> None:
    """Change the title of a conversation."""
    renamed = database.execute(
        "UPDATE conversation SET title = ?, folded = ? WHERE id = ?",
        (title, normalize(title), conversation),
    )
    if not renamed.rowcount:
        raise RowNotFound


def require_conversation(database: sqlite3.Connection, conversation: int) -> None:
    """Raise RowNotFound if this conversation does not exist."""
    found = database.execute("SELECT 1 FROM conversation WHERE id = ?", (conversation,))
    if found.fetchone() is None:
        raise RowNotFound


def find_draft(database: sqlite3.Connection, conversation: int) -> Unsent:
    """What is unsent in a conversation, 0 for the new chat."""
    row = database.execute(
        "SELECT text FROM draft WHERE conversation = ?", (conversation,)
    ).fetchone()
    return unsent_of(row[0] if row else "")


def insert_message(
    database: sqlite3.Connection,
    number: int,
    conversation: int,
    parent: int | None,
    role: Role,
    parts: Parts,
    state: MessageState,
    model: str,
) -> bool:
    """Insert a new message; False, and nothing has changed, if it exists."""
    added = database.execute(
        "INSERT INTO message(id, conversation, parent, role, state, created, model)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING",
        (number, conversation, parent, role.value, state.value, time.time(), clean(model)),
    )
    if not added.rowcount:
        return False
    write_parts(database, number, parts)
    if state is not MessageState.STREAMING:
        index(database, number, search_text(parts))
    return True


def rewrite_conversation_row(database: sqlite3.Connection, conversation: Conversation) -> None:
    """Insert a conversation with its id, unless it exists."""
    title = clean(conversation.title)
    database.execute(
        "INSERT OR IGNORE INTO conversation(id, title, folded, created, updated, settings, folder,"
        " pinned, archived) VALUES (?, ?, ?, ?, ?, ?, (SELECT id FROM folder WHERE id = ?), ?, ?)",
        (
            conversation.id,
            title,
            normalize(title),
            conversation.created,
            conversation.updated,
            clean(settings_text(conversation.settings)),
            conversation.folder,
            conversation.pinned,
            conversation.archived,
        ),
    )


def update_conversation_row(database: sqlite3.Connection, conversation: Conversation) -> None:
    """Set all of a conversation but its times and branch, if it exists."""
    title = clean(conversation.title)
    database.execute(
        "UPDATE conversation SET title = ?, folded = ?, settings = ?,"
        " folder = (SELECT id FROM folder WHERE id = ?), pinned = ?, archived = ? WHERE id = ?",
        (
            title,
            normalize(title),
            clean(settings_text(conversation.settings)),
            conversation.folder,
            conversation.pinned,
            conversation.archived,
            conversation.id,
        ),
    )


def rewrite_row(database: sqlite3.Connection, message: Message) -> None:
    """Insert a message with its id, unless it exists."""
    added = database.execute(
        "INSERT OR IGNORE INTO message(id, conversation, parent, role, state, created, model, stop,"
        " prompt_tokens, generated_tokens, seconds, adapters, details, compared, undecided)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            message.id,
            message.conversation,
            message.parent,
            message.role.value,
            message.state.value,
            message.created,
            clean(message.model),
            clean(message.stop),
            message.prompt_tokens,
            message.generated_tokens,
            message.seconds,
            marks_text(message.adapters),
            details_text(message.details),
            message.compared,
            message.undecided,
        ),
    )
    if added.rowcount:
        write_parts(database, message.id, message.parts)
        if message.state is not MessageState.STREAMING:
            index(database, message.id, search_text(message.parts))
