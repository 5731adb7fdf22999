"""Syntax highlighting: maps Pygments tokens to a few colour roles of the theme.

While a block streams, each line is tokenised on its own, which is fast but loses state that spans
lines. A complete block is tokenised as a whole; long blocks in time slices between events.
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

TokenType = Any  # Pygments does not export the class; `in` tests for a subtype
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


_lexers: dict[str, Lexer | None] = {"": None}  # by language; None: no such lexer
_loading: set[str] = set()


def is_ready(language: str) -> bool:
    """Whether the lexer of a language is loaded; if not, starts loading it on a worker thread.

    A lexer compiles some hundred regular expressions on first use, which takes up to 100 ms.
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
    """The lexer for the language name of a code fence; None if unknown or not loaded yet."""
    return _lexers.get(language)


def lexer_of(language: str) -> Lexer | None:
    """The lexer for a language, loaded on this thread if it is not yet; None if unknown."""
    if language not in _lexers:
        _load(language)
    return lexer_for(language)


@lru_cache(maxsize=1024)
def role_of(token: TokenType) -> str:
    """The colour role of a token type; empty for plain text."""
    if token in Name.Builtin.Pseudo:
        return "number"
    return next((role for kind, role in _ROLES if token in kind), "")


def line_spans(lexer: Lexer, line: str) -> list[Span]:
    """The highlighted spans of one line, tokenised without the lines before it."""
    spans: list[Span] = []
    at = 0
    for token, text in lexer.get_tokens(line):
        role = role_of(token)
        if role and text.strip():
            spans.append((at, len(text), role))
        at += len(text)
    return spans


def exact_spans(lexer: Lexer, text: str) -> Iterator[list[Span]]:
    """Yield the highlighted spans of each line of a complete text, in order."""
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
