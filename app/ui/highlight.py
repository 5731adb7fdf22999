"""Colours of code: pygments finds the tokens, a handful of roles get the colours of the theme.

While a block streams, each line is coloured for itself; that is fast and nearly right. When the
block is complete it is read once as a whole, and long blocks in slices between events.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Comment, Error, Keyword, Name, Number, String
from pygments.util import ClassNotFound

TokenType = Any  # pygments keeps the class to itself; a type contains its subtypes
Span = tuple[int, int, str]  # first character, length, role

_ROLES: tuple[tuple[TokenType, str], ...] = (
    (Comment, "comment"),
    (String, "string"),
    (Number, "number"),
    (Keyword.Constant, "number"),
    (Keyword, "keyword"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Tag, "keyword"),
    (Name.Attribute, "name"),
    (Name.Builtin, "name"),
    (Name.Decorator, "name"),
    (Error, ""),
)


@lru_cache(maxsize=64)
def lexer_for(language: str) -> Lexer | None:
    """The lexer of a language by the name a fence gives it, or None."""
    if not language:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=1024)
def role_of(token: TokenType) -> str:
    """The role a token is coloured by; empty: plain ink."""
    if token in Name.Builtin.Pseudo:
        return "number"
    return next((role for kind, role in _ROLES if token in kind), "")


def line_spans(lexer: Lexer, line: str) -> list[Span]:
    """The coloured parts of one line, read for itself."""
    spans: list[Span] = []
    at = 0
    for token, text in lexer.get_tokens(line):
        role = role_of(token)
        if role and text.strip():
            spans.append((at, len(text), role))
        at += len(text)
    return spans


def exact_spans(lexer: Lexer, text: str) -> Iterator[list[Span]]:
    """The coloured parts of each line of a complete text, one line after the other."""
    spans: list[Span] = []
    at = 0
    for token, value in lexer.get_tokens(text):
        role = role_of(token)
        first, *rest = value.split("\n")
        if role and first:
            spans.append((at, len(first), role))
        at += len(first)
        for part in rest:
            yield spans
            spans, at = [], len(part)
            if role and part:
                spans.append((0, len(part), role))
    yield spans
