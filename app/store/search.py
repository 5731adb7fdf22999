"""Full-text search: queries of the trigram index (FTS5) over folded text.

The index contains folded text, because SQLite's folding lacks Arabic and, in some versions,
accents. A trigram index cannot find one or two characters, such as a Chinese word: those are
found by a scan.
"""

from __future__ import annotations

import re
import sqlite3

from app.system.text_search import normalize

MAX_WORDS = 16
MAX_WORD_LENGTH = 200


def clean(text: str) -> str:
    """Make text encodable as UTF-8: surrogate pairs are joined, lone ones become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def word_query(word: str) -> tuple[str, list[str]]:
    """SQL for the ids of messages that contain a word or phrase, and its parameters."""
    # The trigram index speeds up LIKE from three characters on; the other is the exact test.
    longest = max(re.split(r"[%_ ]", word), key=len)
    exact = f"SELECT rowid FROM search WHERE {contains('folded', word)}"
    if len(longest) < 3:
        return exact, [word]
    return f"{exact} AND folded LIKE ?", [word, f"%{longest}%"]


def contains(column: str, word: str) -> str:
    """SQL that tests whether a folded column contains the word or phrase of its one parameter.

    A line break in the column matches a space of a phrase.
    """
    return f"instr(replace({column}, char(10), ' '), ?)" if " " in word else f"instr({column}, ?)"


def index(database: sqlite3.Connection, message_id: int, text: str) -> None:
    """Add a message to the search index."""
    database.execute("DELETE FROM search WHERE rowid = ?", (message_id,))
    if text:
        database.execute(
            "INSERT INTO search(rowid, folded) VALUES (?, ?)", (message_id, normalize(clean(text)))
        )
