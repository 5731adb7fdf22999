"""A saved prompt: a text that the user inserts into the message field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """One saved prompt."""

    id: int
    name: str
    text: str
    created: float  # seconds since 1970


def has_words(text: str, query: str) -> bool:
    """Whether a text has every word of a query, in any case."""
    return all(word in text.casefold() for word in query.casefold().split())


def matching(snippets: tuple[Snippet, ...], query: str) -> list[Snippet]:
    """Those whose name or text has every word of a query; the ones named so come first."""
    named = [each for each in snippets if has_words(each.name, query)]
    return [*named, *(e for e in snippets if e not in named and has_words(e.text, query))]
