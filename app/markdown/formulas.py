r"""Formulas in markdown: `$x$`, `\(x\)`, `$$x$$` and `\[x\]`, as rules of markdown-it.

Their stars, underscores and backslashes are not markup. A single dollar opens a formula only before
a character that is not a space and not after a letter or digit, and closes it only after a character
that is not a space and not before a letter or digit, so that prices stay text. A formula never spans
a blank line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

LONGEST_BLOCK = 3000  # characters of a formula on lines of its own; a longer one is text

_DISPLAY = r"\$\$(?:[^$\\]|\\.|\$(?!\$))+\$\$|\\\[(?:[^\\]|\\[^\]])+\\\]"
_INLINE = (
    r"\\\((?:[^\\]|\\[^)])+\\\)|(?<![\w$\\])\$(?![\s$])(?:[^$\n\\]|\\.)*?(?<![\s\\])\$(?![\w$])"
)
FORMULA = re.compile(f"(?P<display>{_DISPLAY})|{_INLINE}", re.DOTALL)
_ENDS = {"$$": re.compile(r"(?<!\\)\$\$"), "\\[": re.compile(r"(?<!\\)(?:\\\\)*(\\\])")}
_FENCE = re.compile(r"`{3,}|~{3,}")
_BEGINS = frozenset("$\\")  # of a line that may begin a block
_AFTER = ("", ".", ",", ";", ":")  # what may follow a formula on lines of its own
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


def add_rules(parser: MarkdownIt) -> None:
    """Add the rules for formulas to a parser."""
    parser.inline.ruler.before("escape", "formula", _inline)
    parser.block.ruler.before(
        "blockquote",
        "formula_block",
        _block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    parser.add_render_rule("formula", _inline_html)
    parser.add_render_rule("formula_block", _block_html)


def _inline_html(
    renderer: object, tokens: Sequence[Token], index: int, options: object, env: object
) -> str:
    del renderer, options, env
    return escapeHtml(tokens[index].content)


def _block_html(
    renderer: object, tokens: Sequence[Token], index: int, options: object, env: object
) -> str:
    del renderer, options, env
    return f"<p>{escapeHtml(tokens[index].content)}</p>\n"


def _inline(state: StateInline, silent: bool) -> bool:
    """Inline rule: one token for a formula, with its source."""
    if state.src[state.pos] not in "$\\":
        return False
    match = FORMULA.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.push("formula", "", 0).content = match[0]
    state.pos = match.end()
    return True


def _block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    r"""Block rule: a formula on lines of its own, from `$$` or `\[` at the start of a line.

    Such a line always ends a paragraph, also when the formula turns out to be text: so whether the
    paragraph has ended does not depend on later lines. While the end of the text may still close the
    formula, its token has no TeX, and its lines are shown as written.
    """
    start = state.bMarks[first] + state.tShift[first]
    if state.src[start : start + 1] not in _BEGINS or state.is_code_block(first):
        return False
    lines = [_line(state, first)]
    closing = _ENDS.get(lines[0][:2])
    if closing is None or silent:
        return closing is not None
    at, size = 2, 0
    while not (match := closing.search(lines[-1], at)):
        at, size = 0, size + len(lines[-1]) + 1
        number = first + len(lines)
        if number >= end:
            break
        if state.isEmpty(number) or state.sCount[number] < state.blkIndent or size > LONGEST_BLOCK:
            return False
        lines.append(_line(state, number))
        if _FENCE.match(lines[-1]):
            return False
    tex = ""
    if match:
        mark = lines[-1][match.end() :].strip()
        inside = "\n".join([*lines[:-1], lines[-1][: match.end() - 2]])[2:]
        if mark not in _AFTER or not inside.strip():
            return False
        tex = inside.strip() + mark
    token = state.push("formula_block", "", 0)
    token.content, token.info, token.block = "\n".join(lines), tex, True
    state.line = first + len(lines)
    token.map = [first, state.line]
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()
