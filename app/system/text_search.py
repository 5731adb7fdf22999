"""Text search that ignores case and accents: folding, and the places of a text in another.

Used for the full-text index of the conversations, and to highlight what was found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

# Removed: tatweel (an Arabic elongation), soft hyphens, and invisible characters of no width.
_INVISIBLE = "\u0640\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_QUOTES = (
    "\u2018\u2019\u201a\u201b\u2032\u02bc",
    "\u201c\u201d\u201e\u201f\u00ab\u00bb",
)  # ' and "
_HYPHENS = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_PLAIN = {
    **dict(zip("øłđħŧı\0", "oldhti ", strict=True)),
    **dict.fromkeys(_INVISIBLE, ""),
    **dict.fromkeys(_QUOTES[0], "'"),
    **dict.fromkeys(_QUOTES[1], '"'),
    **dict.fromkeys(_HYPHENS, "-"),
}
_TERM = re.compile(r'"([^"]+)"|(\S+)')
_SPACES = str.maketrans("\n\t\r\u2028\u2029\u00a0\u202f", "       ")


def normalize(text: str) -> str:
    """Fold text for search: case and Latin, Greek, Arabic and Hebrew marks removed, no NUL.

    Marks that change the letter (kana voicing, Indic and Thai vowels) stay. Quotes and hyphens
    become those of a keyboard, and soft hyphens are removed. Folding twice changes nothing.
    """
    if text.isascii():
        return text.lower().replace("\0", " ")
    marked = unicodedata.normalize("NFKD", text).casefold()
    for char in set(marked):  # a text has few of them, and each call replaces all places in C
        if (plain := _PLAIN.get(char)) is not None:
            marked = marked.replace(char, plain)
        elif _is_removable(char):
            marked = marked.replace(char, "")
    return unicodedata.normalize("NFKC", marked)


def _is_removable(char: str) -> bool:
    """Whether a combining mark is removed: classes 10-36 (Hebrew, Arabic) and from 200 on."""
    kind = unicodedata.combining(char)
    return kind >= 200 or 10 <= kind <= 36


def normalize_query(text: str) -> str:
    """Fold a typed query for `occurrences`: the white space around it does not count."""
    return normalize(text.translate(_SPACES)).strip()


def query_terms(text: str) -> list[str]:
    """The folded words and quoted phrases of a typed query, each of which is looked for."""
    found = _TERM.findall(normalize_query(text))
    return [
        " ".join((phrase or word).split()) for phrase, word in found if (phrase or word).strip()
    ]


def occurrences(text: str, query: str) -> list[tuple[int, int]]:
    """The places of a folded query in a text, without overlaps: starts and ends in UTF-16 units.

    A line break in the text matches a space of the query.
    """
    if not query:
        return []
    text = text.translate(_SPACES)
    plain = normalize(text)
    if query not in plain:
        return []
    starts: list[int] | None = None
    if not text.isascii():
        plain, starts = _folded_with_starts(text)
    found: list[tuple[int, int]] = []
    at = plain.find(query)
    while at >= 0:
        end = at + len(query)
        if starts is None:
            found.append((at, end))
        else:
            while end < len(plain) and starts[end] == starts[end - 1]:
                end += 1  # a letter that folds to several, such as ß, is found as a whole
            found.append((starts[at], starts[end]))
        at = plain.find(query, end)
    return found


def contains(text: str, query: str) -> bool:
    """Whether a folded query is in a text; the last few texts are kept folded."""
    return bool(query) and query in _folded(text)


@lru_cache(maxsize=8)
def _folded(text: str) -> str:
    return normalize(text.translate(_SPACES))


def first_occurrence(text: str, queries: Iterable[str]) -> int:
    """The index of the character where the first of these folded queries begins; 0: none does."""
    plain = normalize(text.translate(_SPACES))
    at = min((place for place in map(plain.find, queries) if place >= 0), default=0)
    if not at or text.isascii():
        return at
    index = folded = 0
    for cluster in _clusters(text):
        folded += len(normalize(cluster))
        if folded > at:
            break
        index += len(cluster)
    return index


def _folded_with_starts(text: str) -> tuple[str, list[int]]:
    """The folded text, and for each of its characters, and its end, the place in the text."""
    pieces: list[str] = []
    starts: list[int] = []
    known: dict[str, str] = {}
    at = 0
    for cluster in _clusters(text):
        folded = known.get(cluster)
        if folded is None:
            folded = known[cluster] = normalize(cluster)
        pieces.append(folded)
        starts += [at] * len(folded)
        at += len(cluster) + sum(letter > "\uffff" for letter in cluster)
    return "".join(pieces), [*starts, at]


def _clusters(text: str) -> Iterator[str]:
    """Yield the text in pieces that can be folded one by one: letters with their marks."""
    cluster = ""
    for letter in text:
        if cluster and letter > "\u02ff" and _continues(letter):
            cluster += letter
            continue
        if cluster:
            yield cluster
        cluster = letter
    if cluster:
        yield cluster


def _continues(letter: str) -> bool:
    """Whether a character composes with the one before it: a mark, or a Hangul vowel or final."""
    if "\u1160" <= letter <= "\u11ff":
        return True
    return unicodedata.combining(unicodedata.normalize("NFKD", letter)[0]) > 0
