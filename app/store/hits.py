"""Search results: the message of each conversation that fits a query best, and its words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from app.domain.chat import Hit
from app.domain.parts import search_text
from app.store.queries import read_parts
from app.store.search import contains
from app.system.text_search import first_occurrence

_BEFORE, _LENGTH = 16, 160  # characters before the first word, and of the whole snippet
_READ = 20_000  # characters of a message in which the words are looked for
_BLOCK_MARKUP = re.compile(r"^\s*(?:#{1,6}|>|[-*+])\s|\|", re.MULTILINE)
_INLINE_MARKUP = re.compile(r"\*\*|`+")


def best_hits(
    database: sqlite3.Connection, words: Sequence[str], conversations: Sequence[int]
) -> dict[int, Hit]:
    """By conversation, the newest of the messages that contain the most of these folded words."""
    if not words or not conversations:
        return {}
    tests = [f"({contains('s.folded', word)} > 0)" for word in words]
    score, condition = " + ".join(tests), " OR ".join(tests)
    places = ", ".join("?" * len(conversations))
    rows = database.execute(
        f"SELECT m.conversation, m.id, max(({score}) * 1000000000000 + m.id)"
        " FROM message AS m CROSS JOIN search AS s ON s.rowid = m.id"
        f" WHERE m.conversation IN ({places}) AND ({condition}) GROUP BY m.conversation",
        [*words, *conversations, *words],
    ).fetchall()
    return {
        conversation: Hit(number, snippet(_text(database, number), words))
        for conversation, number, _ in rows
    }


def _text(database: sqlite3.Connection, message_id: int) -> str:
    return search_text(read_parts(database, message_id))[:_READ]


def snippet(text: str, words: Sequence[str]) -> str:
    """One line of a text from shortly before the first of these folded words on."""
    plain = " ".join(_INLINE_MARKUP.sub("", _BLOCK_MARKUP.sub(" ", text)).split())
    first = first_occurrence(plain, words)
    begin = max(first - _BEFORE, 0)
    if begin:
        space = plain.find(" ", begin, first)
        begin = space + 1 if space >= 0 else begin
    piece = plain[begin : begin + _LENGTH]
    return f"…{piece}" if begin else piece
