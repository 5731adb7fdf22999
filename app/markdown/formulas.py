r"""Formulas in markdown: `$x$`, `\(x\)`, `$$x$$` and `\[x\]`.

Their stars, underscores and backslashes are not markup. Dollar signs are also prices, variables of a
shell and names in code, so a single one opens a formula only before a character with which a formula
can begin, and closes it only behind one with which it can end and before one that can follow it; an
amount of money and a placeholder like `${HOST}` open none. A formula never spans a blank line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from markdown_it.rules_inline import StateInline

LONGEST_BLOCK = 3000  # characters of a display formula; a longer one is text

_DISPLAY = r"\$\$(?:[^$\\]|\\.|\$(?!\$))+\$\$|\\\[(?:[^\\]|\\[^\]])+\\\]"
_ROUND = r"\\\((?:[^\\]|\\[^)])+\\\)"
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"  # letters of texts without spaces
_DOLLAR = (
    rf"(?<![^\W{_WIDE}])(?<![$\\])\$"
    r"(?![\s$?@#;,)]|\.[^\W\d]|\{[^\W\d][\w.]+[}:])"  # not `$.get` and `${HOST}`
    r"(?:[^$\n\\]|\\.)*?"
    r"(?<![\s\\/:(\[{&])\$"
    rf"(?![^\W{_WIDE}]|[$({{]|\.[^\W\d])"
)
_FORMULA = re.compile(f"(?P<display>{_DISPLAY})|{_ROUND}|(?P<dollar>{_DOLLAR})", re.DOTALL)
# An amount of money with words behind it, or one that another amount ends: `$40 (about 55 A$)`.
_WORDS = re.compile(
    r"(?<![\\{\w])(?!(?:a?sin|a?cos|a?tan|log|ln|exp|mod|max|min|gcd)\b)[^\W\d_]{2,} "
    f"|[{_WIDE}]"
)
_AMOUNT = re.compile(r"\$\d[\d.,]*[A-Za-z]?(?![A-Za-z0-9_])")
_CURRENCY = re.compile(r"[\s(/]\d[\d.,]*[^\W\d]?\s?[A-Z]{2,3}\$\Z")
BLOCK_ENDS = {"$$": re.compile(r"(?<!\\)\$\$"), "\\[": re.compile(r"(?<!\\)(?:\\\\)*(\\\])")}
_AFTER = ("", ".", ",", ";", ":")  # what may follow a display formula
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


@dataclass(frozen=True, slots=True)
class Tex:
    """A formula: its TeX without delimiters, and whether it is in display style."""

    code: str
    display: bool


def inline_tex(source: str) -> Tex:
    """The formula of an inline source with its delimiters."""
    size = 2 if source.startswith(("$$", "\\")) else 1
    return Tex(source[size:-size].strip(), display=source.startswith(("$$", "\\[")))


def escaped(text: str) -> str:
    """The text with its punctuation escaped, so that none of it is markup."""
    return _PUNCTUATION.sub(r"\\\1", text)


def formula_at(text: str, start: int, end: int | None = None) -> str:
    """The source of the formula that begins at `start`; empty if none does."""
    match = _FORMULA.match(text, start, len(text) if end is None else end)
    if match is None:
        return ""
    source = match[0]
    is_amount = match["dollar"] and _AMOUNT.match(source)
    return "" if is_amount and (_WORDS.search(source) or _CURRENCY.search(source)) else source


def inline_formula(state: StateInline, silent: bool) -> bool:
    """Inline rule of markdown-it: one token for a formula, with its source."""
    if state.src[state.pos] not in "$\\":
        return False
    source = formula_at(state.src, state.pos, state.posMax)
    if not source:
        return False
    if not silent:
        state.push("formula", "", 0).content = source
    state.pos += len(source)
    return True


def block_tex(lines: list[str], end: int) -> str:
    """The TeX of a display formula, whose closing mark ends at `end` of the last line.

    Empty if it has none, or if text follows it.
    """
    mark = lines[-1][end:].strip()
    inside = "\n".join([*lines[:-1], lines[-1][: end - 2]])[2:].strip()
    return inside + mark if inside and mark in _AFTER else ""
