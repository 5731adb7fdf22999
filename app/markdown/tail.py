"""Completes unfinished markup in the last lines of a streaming answer.

Open emphasis is closed, and an incomplete marker is hidden, so that text appears in its final
style at once and markup does not flicker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.markdown.formulas import escaped, formula_at

_MARKER = re.compile(
    r"[\s>]*(?:[-+*=_~`#|:]+|\d{1,9}[.)]?|(?:[-+*]|\d{1,9}[.)])\s+(?:\[[ xX]?\]?|[*_`~]+)|)\s*$"
)
_DELIMITER_ROW = re.compile(r"\s*\|?[\s:|-]*$")
_OPEN_LINK = re.compile(r"!?\[([^\[\]]*)(?:\]\([^()\s]*|\])?$")
_OPEN_CITATION = re.compile(
    "(?:(?<!!)\\[[0-9 \u00a0,;\u2013-]*"
    "|\u3010[0-9 \u00a0,;\u2013-]*(?:\u2020[^\u3010\u3011]{0,80})?)([]\u3011]?)$"
)
_FORMULA_OR_CODE = re.compile(r"\\.|\$\$?|`+", re.DOTALL)
_RUN = re.compile(r"\\.|\$\$?|`+|\*{1,3}|_{1,3}|~~", re.DOTALL)


def is_marker(partial: str) -> bool:
    """Whether an incomplete line has only markers of blocks so far, which are not shown."""
    return _MARKER.match(partial) is not None


def begins_table(lines: Sequence[str], partial: str) -> bool:
    """Whether the last line of a paragraph may be a table's header, whose delimiters are incomplete."""
    return (
        bool(lines)
        and lines[-1].startswith("|")
        and not (len(lines) > 1 and "|" in lines[-2])
        and _DELIMITER_ROW.match(partial.lstrip(" \t>")) is not None
    )


def close_last_line(text: str, *, cites: bool = False) -> str:
    """The text of a paragraph, with the open markup of its last line closed."""
    before, newline, partial = text.rpartition("\n")
    return (before + newline + close_markup(before, partial, cites=cites)).rstrip(" \t\n")


def close_markup(before: str, partial: str, *, cites: bool = False) -> str:
    """The partial line, with the open markup of its paragraph closed.

    In a text that `cites` passages, numbers in brackets are shown as they are, once the brackets
    are complete.
    """
    formula = _open_formula(f"{before}\n{partial}" if before else partial)
    rest = partial[-len(formula) :] if formula else ""
    own_line = rest == partial.lstrip() and not rest.startswith("\\(")
    if rest and (formula != rest or own_line):
        return partial  # the parser shows such lines as written
    partial = partial.removesuffix(rest)
    citation = _OPEN_CITATION.search(partial) if cites else None
    if citation is None:
        partial = _OPEN_LINK.sub(lambda match: match[1], partial)
    elif not citation[1]:
        partial = partial[: citation.start()]
    text = f"{before}\n{partial}" if before else partial
    open_marks: list[str] = []
    at = 0
    while match := _RUN.search(text, at):
        mark, at = match[0], match.end()
        if mark[0] in "\\$":
            at = max(at, match.start() + len(formula_at(text, match.start())))
        elif mark.startswith("`"):
            end = re.compile(f"(?<!`){mark}(?!`)").search(text, at)
            if end is None:
                return _closed(partial, [*open_marks, mark])
            at = end.end()
        else:
            toggle(open_marks, mark, text[match.start() - 1 : match.start()], text[at : at + 1])
    if rest:
        return partial + escaped(rest.rstrip()) + "".join(reversed(open_marks))
    return _closed(partial, open_marks)


def _open_formula(text: str) -> str:
    """The rest of a paragraph from a formula on that is not closed yet; empty without one."""
    at = 0
    while match := _FORMULA_OR_CODE.search(text, at):
        mark, at = match[0], match.end()
        if mark.startswith("`"):
            end = re.compile(f"(?<!`){mark}(?!`)").search(text, at)
            if end is None:
                return ""
            at = end.end()
        elif found := formula_at(text, match.start()):
            at = match.start() + len(found)
        elif mark in ("$$", "\\(", "\\["):
            return text[match.start() :]
    return ""


def toggle(open_marks: list[str], mark: str, before: str, after: str) -> None:
    """Open or close emphasis, depending on the characters before and after the mark."""
    if before and not before.isspace() and mark in open_marks:
        del open_marks[open_marks.index(mark) :]
    elif not after.isspace() and not (mark[0] == "_" and before.isalnum()):
        open_marks.append(mark)


def _closed(partial: str, marks: Sequence[str]) -> str:
    for mark in reversed(marks):
        stripped = partial.rstrip()
        # Hide a mark without text after it, and a half-written closing mark.
        partial = stripped.removesuffix(mark) if stripped.endswith(mark) else _with(stripped, mark)
    return partial


def _with(text: str, mark: str) -> str:
    half = mark[0]
    if len(mark) > 1 and text.endswith(half):
        text = text.rstrip(half)
    return text + mark
