"""Inline markup: the content of a paragraph, heading or cell, to runs of one style.

markdown-it's inline rules, with three additions: formulas, bare web addresses, and emphasis that also
works beside Chinese and Japanese text, which has no spaces around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter, Scanned
from markdown_it.token import Token

from app.markdown.blocks import Run, Runs, passage_link
from app.markdown.formulas import inline_formula

MAX_NESTING = 40  # levels of markup; deeper markup is shown as text

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_SCHEME = re.compile(r"(?<![a-z0-9])https?\Z", re.IGNORECASE)
# An address ends before full-width punctuation and quotation marks.
_ADDRESS = re.compile(
    "[^\\s<>\"'`|\u2014\u2018-\u201f\u2026\u3000-\u303f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40"
    "\uff5b-\uff65]+"
)
# A drive's letter, or a computer of the network: in an exported page, which is a file itself, the
# browser would open it, and send that computer the user's name.
_WINDOWS_FILE = re.compile(r"\s*(?:[a-z](?::|%3A)|(?:[/\\]|%5C){2})", re.IGNORECASE)
_AFTER_ADDRESS = ".,;:!?*_~"
_LAST_ENTITY = re.compile(r"&[A-Za-z0-9]+;[.,;:!?*_~]*\Z")
_BIDI_OVERRIDES = re.compile("[\u202d\u202e]")
_BIDI_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")

_NUMBERS = "[0-9]{1,4}(?:[ \u00a0]?[,;\u2013-][ \u00a0]?[0-9]{1,4})*"
_CITATION = re.compile(
    f"\\[{_NUMBERS}\\]|\u3010{_NUMBERS}(?:\u2020[^\u3010\u3011\n]{{0,80}})?\u3011"
)
_NUMBER = re.compile("[0-9]+")


class References(dict[str, dict[str, str]]):
    """What brackets in a text may refer to: link definitions by normalised label, and passages."""

    def __init__(self, passages: frozenset[int] = frozenset()) -> None:
        """`passages` are the numbers of those that the text may cite."""
        super().__init__()
        self.passages = passages


def clean(text: str) -> str:
    """Replace bidi override characters, which reorder the text after them."""
    return _BIDI_OVERRIDES.sub("\ufffd", text)


def clean_code(text: str) -> str:
    """Replace all bidi control characters in code, so that it is shown in its real order."""
    return _BIDI_CONTROLS.sub("\ufffd", text)


def safe_address(address: str) -> str | None:
    """The address as it is used, percent-encoded; None if it may run a script or name a file."""
    link = PARSER.normalizeLink(address)
    return link if PARSER.validateLink(link) else None


def inline_runs(content: str, references: References) -> Runs:
    """The runs of the content of one block."""
    return tuple(_runs(PARSER.inline.parse(content, PARSER, {"references": references}, [])))


def _runs(tokens: Iterable[Token]) -> list[Run]:
    runs: list[Run] = []
    depth = {"strong": 0, "em": 0, "s": 0}
    links: list[str] = []
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        if name in depth:
            depth[name] += 1 if end == "open" else -1
        elif token.type == "link_open":
            links.append(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            links.pop()
        else:
            style = (depth["strong"] > 0, depth["em"] > 0, depth["s"] > 0)
            _append(runs, token, style, links[-1] if links else "")
    return runs


def _append(runs: list[Run], token: Token, style: tuple[bool, bool, bool], link: str) -> None:
    bold, italic, strike = style
    match token.type:
        case "code_inline":
            runs.append(Run(clean_code(token.content), bold, italic, strike, True, link))
        case "softbreak":
            _text(runs, Run(" ", bold, italic, strike, False, link))
        case "hardbreak":
            _text(runs, Run("\n", bold, italic, strike, False, link))
        case "formula":
            runs.append(Run(clean(token.content), bold, italic, strike, False, link, True))
        case "image":
            address = str(token.attrs.get("src", ""))
            shown = address if len(address) <= 80 else f"{address[:77]}…"
            if alt := "".join(run.text for run in _runs(token.children or ())):
                _text(runs, Run(f"{alt} ", bold, True, strike, False, link))
            runs.append(Run(clean(shown), bold, italic, strike, False, link or address))
        case "text_special":  # an escaped character or an entity
            text = clean(token.content).replace("\n", " ")
            _text(runs, Run(text, bold, italic, strike, False, link))
        case _:
            text = clean(_BREAK.sub("\n", token.content))
            _text(runs, Run(text, bold, italic, strike, False, link))


def _text(runs: list[Run], run: Run) -> None:
    """Append a run; merged with the last one if the style is the same."""
    if not run.text:
        return
    if runs and not (runs[-1].code or runs[-1].formula):
        last = runs[-1]
        if (last.bold, last.italic, last.strike, last.link) == (
            run.bold,
            run.italic,
            run.strike,
            run.link,
        ):
            runs[-1] = Run(last.text + run.text, run.bold, run.italic, run.strike, False, run.link)
            return
    runs.append(run)


# --- rules ----------------------------------------------------------------------------------------


class _State(StateInline):
    """State whose runs of delimiters may also stand beside Chinese and Japanese text.

    Such text has no spaces, so a delimiter between a full-width punctuation mark and a letter must
    still open or close: a mark counts as punctuation only if it is not a wide character, and a wide
    character on the other side counts as white space does. Source: the proposal "CJK-friendly
    emphasis" for CommonMark.
    """

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803
        """Whether the delimiters from `start` on can open and close emphasis."""
        marker, end = self.src[start], start
        while end < self.posMax and self.src[end] == marker:
            end += 1
        before = self.src[start - 1] if start else " "
        after = self.src[end] if end < self.posMax else " "
        space_before, space_after = isWhiteSpace(ord(before)), isWhiteSpace(ord(after))
        mark_before, mark_after = _is_mark(before), _is_mark(after)
        wide_before, wide_after = _is_wide(before), _is_wide(after)
        left = not space_after and (
            not mark_after or wide_after or space_before or mark_before or wide_before
        )
        right = not space_before and (
            not mark_before or wide_before or space_after or mark_after or wide_after
        )
        if canSplitWord:
            return Scanned(left, right, end - start)
        return Scanned(
            left and (not right or mark_before), right and (not left or mark_after), end - start
        )


def _is_mark(letter: str) -> bool:
    return isMdAsciiPunct(ord(letter)) or isPunctChar(letter)


@lru_cache(1024)
def _is_wide(letter: str) -> bool:
    """Whether it is a Chinese, Japanese or Korean character; no emoji is."""
    if letter.isascii() or unicodedata.category(letter) == "So":
        return False
    return unicodedata.east_asian_width(letter) in "WFH"


class _Inline(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        """Parse `src` into tokens."""
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _strikethrough(state: StateInline, silent: bool) -> bool:
    """Inline rule: two tildes may begin or end struck text; one is "about", and three are text."""
    if silent or state.src[state.pos] != "~":
        return False
    scanned = state.scanDelims(state.pos, True)
    state.push("text", "", 0).content = "~" * scanned.length
    if scanned.length == 2:
        token = len(state.tokens) - 1
        delimiter = Delimiter(ord("~"), 0, token, -1, scanned.can_open, scanned.can_close)
        state.delimiters.append(delimiter)
    state.pos += scanned.length
    return True


def _bare_address(state: StateInline, silent: bool) -> bool:
    """Inline rule: a web address without markup around it becomes a link, from its `://` on."""
    if silent or state.linkLevel or not state.src.startswith("://", state.pos):
        return False
    scheme = _SCHEME.search(state.pending)
    match = _ADDRESS.match(state.src, state.pos + 3, state.posMax)
    if scheme is None or match is None:
        return False
    rest = _trimmed(match[0])
    address = f"{scheme[0]}://{rest}"
    if not rest or not (link := safe_address(address)):
        return False
    state.pending = state.pending[: scheme.start()]
    state.push("link_open", "a", 1).attrs = {"href": link}
    state.push("text", "", 0).content = address
    state.push("link_close", "a", -1)
    state.pos += len("://") + len(rest)
    return True


def _citation(state: StateInline, silent: bool) -> bool:
    """Inline rule: `[1]`, `[2, 3]` and `[1-3]` refer to passages that the text may cite.

    So do `【1】` and `【1†source】`, which some models write whatever they are asked for. The rule
    comes after that of links, so that a number with an address or a definition is a link.
    """
    known: frozenset[int] = state.env["references"].passages
    if silent or state.linkLevel or not known:
        return False
    match = _CITATION.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    last = len(match[0].partition("\u2020")[0].rstrip("]\u3011"))  # where the numbers end
    numbers = [found for found in _NUMBER.finditer(match[0][:last]) if int(found[0]) in known]
    if not numbers:
        return False
    at = 0
    for found in numbers:  # a bracket belongs to the number beside it
        start = 0 if found.start() == 1 else found.start()
        end = len(match[0]) if found.end() == last else found.end()
        state.pending += match[0][at:start]
        state.push("link_open", "a", 1).attrs = {"href": passage_link(int(found[0]))}
        state.push("text", "", 0).content = match[0][start:end]
        state.push("link_close", "a", -1)
        at = end
    state.pending += match[0][at:]
    state.pos = match.end()
    return True


def _trimmed(address: str) -> str:
    """Without the punctuation that follows an address, and without a bracket that it is in."""
    while entity := _LAST_ENTITY.search(address):
        address = address[: entity.start()]
    address = address.rstrip(_AFTER_ADDRESS)
    for opens, ends in ("()", "[]"):
        while address.endswith(ends) and address.count(ends) > address.count(opens):
            address = address[:-1].rstrip(_AFTER_ADDRESS)
    return address


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802
        """Whether an address of a text may be a link; one to a passage is made by a number only."""
        is_own = url.lower().startswith(passage_link(0)[:-1])
        return not is_own and not _WINDOWS_FILE.match(url) and super().validateLink(url)


def _make_parser() -> MarkdownIt:
    parser = _Markdown("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable("strikethrough").disable("html_inline")
    inline = _Inline()
    inline.ruler, inline.ruler2 = parser.inline.ruler, parser.inline.ruler2
    inline.ruler.before("escape", "formula", inline_formula)
    inline.ruler.before("newline", "bare_address", _bare_address)
    inline.ruler.at("strikethrough", _strikethrough)
    inline.ruler.after("link", "citation", _citation)
    inline.add_terminator_char("\u3010")  # a citation may begin with it
    parser.inline = inline
    return parser


PARSER = _make_parser()
