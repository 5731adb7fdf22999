"""How search compares text: folded on both sides, through a trigram index where it helps.

The index (FTS5) holds folded text, because SQLite's own folding knows neither Arabic nor accents in
all its versions, and answers nothing for one or two Chinese characters, so those are scanned for.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata

MOST_WORDS = 16
LONGEST_WORD = 200


def fold(text: str) -> str:
    """Text as search compares it: no case, no Latin, Greek, Arabic or Hebrew marks, no NUL.

    Marks that make another letter (kana voicing, Indic and Thai vowels) stay.
    """
    if text.isascii():
        return text.lower().replace("\0", " ")
    marked = unicodedata.normalize("NFKD", text).casefold()
    bare = "".join(char for char in marked if not _is_ornament(char)).translate(_PLAIN)
    return unicodedata.normalize("NFKC", bare)


_PLAIN = str.maketrans("øłđħŧı\0", "oldhti ", "\u0640")  # \u0640 only stretches Arabic words


def _is_ornament(char: str) -> bool:
    """Whether a combining mark may be dropped: classes 10-36 Hebrew and Arabic, 200 up the rest."""
    kind = unicodedata.combining(char)
    return kind >= 200 or 10 <= kind <= 36


def clean(text: str) -> str:
    """Text that UTF-8 can hold: halves of surrogate pairs are joined, or become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def holds(word: str) -> tuple[str, list[str]]:
    """A query for the ids of messages that hold `word`, and the values it binds."""
    # The index answers LIKE from three characters in a row; instr is exact and does the rest.
    longest = max(re.split(r"[%_]", word), key=len)
    if len(longest) < 3:
        return "SELECT rowid FROM search WHERE instr(folded, ?)", [word]
    return "SELECT rowid FROM search WHERE folded LIKE ? AND instr(folded, ?)", [
        f"%{longest}%",
        word,
    ]


def index(database: sqlite3.Connection, message_id: int, text: str) -> None:
    """Let search find a message by its text."""
    database.execute("DELETE FROM search WHERE rowid = ?", (message_id,))
    if text:
        database.execute(
            "INSERT INTO search(rowid, folded) VALUES (?, ?)", (message_id, fold(text))
        )
