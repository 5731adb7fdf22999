"""Search results: the message of each conversation that fits a query best, and its words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from app.store.search import MAX_WORD_LENGTH, word_query
from app.system.text_search import occurrences

SNIPPETS = 500  # results with a snippet; later ones have none
_BEFORE, _LENGTH = 16, 160  # characters before the first word, and of the whole snippet
_READ = 20_000  # characters of a message in which the words are looked for
_BLOCK_MARKUP = re.compile(r"</?think>|^\s*(?:#{1,6}|>|[-*+])\s|\|", re.MULTILINE)
_INLINE_MARKUP = re.compile(r"\*\*|`+")


@dataclass(frozen=True, slots=True)
class Hit:
    """The best message of a conversation that was found; one found by its title has none."""

    message: int
    snippet: str


def best_hits(database: sqlite3.Connection, words: Sequence[str]) -> dict[int, Hit]:
    """By conversation, the newest of the messages that contain the most of these folded words."""
    if not words:
        return {}
    parts, values = list[str](), list[str]()
    for word in words:
        condition, bound = word_query(word[:MAX_WORD_LENGTH])
        parts.append(condition)
        values += bound
    tables = ", ".join(f"w{n}(id) AS ({part})" for n, part in enumerate(parts))
    score = " + ".join(f"(m.id IN w{n})" for n in range(len(parts)))
    union = " UNION ".join(f"SELECT id FROM w{n}" for n in range(len(parts)))
    rows = database.execute(
        f"WITH {tables} SELECT m.conversation, m.id, max(({score}) * 1000000000000 + m.id)"
        f" FROM message AS m WHERE m.id IN ({union}) GROUP BY m.conversation",
        values,
    ).fetchall()
    newest = sorted((row[1] for row in rows), reverse=True)[:SNIPPETS]
    shown = {number: _text(database, number) for number in newest}
    return {
        conversation: Hit(number, snippet(shown.get(number, ""), words))
        for conversation, number, _ in rows
    }


def _text(database: sqlite3.Connection, message_id: int) -> str:
    row = database.execute(
        "SELECT substr(text, 1, ?) FROM message WHERE id = ?", (_READ, message_id)
    ).fetchone()
    return row[0] if row else ""


def snippet(text: str, words: Sequence[str]) -> str:
    """One line of a text from shortly before the first of these folded words on."""
    plain = " ".join(_INLINE_MARKUP.sub("", _BLOCK_MARKUP.sub(" ", text)).split())
    places = [occurrences(plain, word)[:1] for word in words]
    units = min((place[0][0] for place in places if place), default=0)
    first = len(plain.encode("utf-16-le", "replace")[: 2 * units].decode("utf-16-le", "replace"))
    begin = max(first - _BEFORE, 0)
    if begin:
        space = plain.find(" ", begin, first)
        begin = space + 1 if space >= 0 else begin
    piece = plain[begin : begin + _LENGTH]
    return f"…{piece}" if begin else piece
