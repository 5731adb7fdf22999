"""A saved prompt: a text that the user inserts into the message field."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """One saved prompt."""

    id: int
    name: str
    text: str
    created: float  # seconds since 1970


def has_words(text: str, query: str) -> bool:
    """Whether a text has every word of a query, in any case; names of macOS are decomposed."""
    folded = _folded(text)
    return all(word in folded for word in _folded(query).split())


def _folded(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def matching(snippets: tuple[Snippet, ...], query: str) -> list[Snippet]:
    """Those whose name or text has every word of a query; the ones named so come first."""
    named = [each for each in snippets if has_words(each.name, query)]
    return [*named, *(e for e in snippets if e not in named and has_words(e.text, query))]
