"""Full-text search: queries of the trigram index (FTS5) over folded text.

The index contains folded text, because SQLite's folding lacks Arabic and, in some versions,
accents. A trigram index cannot find one or two characters, such as a Chinese word: the texts are
read for those.
"""

from __future__ import annotations

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


def word_condition(word: str) -> tuple[str, list[str]]:
    """SQL that tests whether a conversation `c` contains a word or phrase, and its parameters.

    The index gives the messages with all trigrams of the word. Their texts are read from its
    content table until one contains the word: a frequent word is looked for in few texts.
    """
    trigrams = dict.fromkeys(
        piece[at : at + 3] for piece in word.split(" ") for at in range(len(piece) - 2)
    )
    bound = [word, word]
    indexed = ""
    if trigrams:
        # The plus keeps SQLite from walking all matched messages for each conversation.
        indexed = "AND +m.id IN (SELECT rowid FROM search WHERE search MATCH ?)"
        quoted = ['"' + each.replace('"', '""') + '"' for each in trigrams]
        bound.insert(1, " AND ".join(quoted))
    return (
        f"({contains('c.folded', word)} OR EXISTS (SELECT 1 FROM message AS m"
        " CROSS JOIN search_content AS s ON s.id = m.id"
        f" WHERE m.conversation = c.id {indexed} AND {contains('s.c0', word)}))",
        bound,
    )


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
