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


def matching(snippets: tuple[Snippet, ...], query: str) -> list[Snippet]:
    """Those whose name or text has every word of a query; the ones named so come first."""
    words = query.casefold().split()

    def has(text: str) -> bool:
        return all(word in text.casefold() for word in words)

    named = [each for each in snippets if has(each.name)]
    return [*named, *(each for each in snippets if each not in named and has(each.text))]
