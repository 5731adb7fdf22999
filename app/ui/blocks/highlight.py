"""Colours of code: pygments finds the tokens, a handful of roles get the colours of the theme.

While a block streams, each line is coloured for itself; that is fast and nearly right. When the
block is complete it is read once as a whole, and long blocks in slices between events.
"""

from __future__ import annotations

import threading
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


_lexers: dict[str, Lexer | None] = {"": None}  # by language, once they are made
_loading: set[str] = set()


def is_ready(language: str) -> bool:
    """Whether `lexer_for` knows the language by now; else it is being made, off this thread.

    A lexer compiles some hundred expressions when it first reads, which takes up to 100 ms.
    """
    if language in _lexers:
        return True
    if language not in _loading:
        _loading.add(language)
        threading.Thread(target=_load, args=(language,), name="lexer").start()
    return False


def _load(language: str) -> None:
    lexer = None
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        list(lexer.get_tokens("x"))
    except ClassNotFound:
        lexer = None
    finally:
        _lexers[language] = lexer


def lexer_for(language: str) -> Lexer | None:
    """The lexer of a language by the name a fence gives it; None while there is none."""
    return _lexers.get(language)


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
