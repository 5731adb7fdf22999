"""Documents in a prompt: as data with a name, page marks, and borders that their text cannot end.

The words are English and never change, so that the cached text of a document stays of use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain, count

from app.domain.documents import PageStart, PageUnit, Passage, page_spans

OF_PART = (
    "This is done for a long document, part by part. Do it for the part below alone: leave out"
    " nothing important in it, and write nothing that is not in it, no introduction, and no remark"
    " about the task."
)
OF_REWRITTEN = (
    "This is done for a long document, part by part. Do it for all of the part below: leave out"
    " nothing, add nothing, keep its headings, lists and tables as Markdown, and write no"
    " introduction and no remark about the task."
)
OF_RESULTS = (
    "This was done for a long document, part by part. Below is what was made of its parts, in"
    " order. Make one of them, as if from the whole document: keep what is important, name no part,"
    " and write nothing that is not in them."
)
_REFER = (
    "Answer from these passages as far as they help, and refer to those you use by their numbers,"
    " such as [{number}]."
)
_NONE = "No passage of {names} was found for this question. Say so if it is about them."
_ABOVE = "Of the earlier passages, {numbers} may help as well."


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file in a prompt: a border, the mark of a page, or text of the file."""

    text: str
    page: int = -1  # index of the page; -1: a border
    start: int = -1  # its first character in the file's text; -1: it is a border or a mark


def file_prompt(
    name: str,
    text: str,
    unit: PageUnit = PageUnit.NONE,
    pages: tuple[PageStart, ...] = (),
    chosen: Sequence[int] | None = None,
) -> str:
    """A file as the model reads it: all pages, or those with the `chosen` indexes."""
    return "".join(piece.text for piece in file_pieces(name, text, unit, pages, chosen))


def file_pieces(
    name: str,
    text: str,
    unit: PageUnit = PageUnit.NONE,
    pages: tuple[PageStart, ...] = (),
    chosen: Sequence[int] | None = None,
) -> list[Piece]:
    """The pieces of `file_prompt`, in order."""
    inside: list[Piece] = []
    read = None if chosen is None or not pages else frozenset(chosen)
    for at, (label, start, end) in enumerate(page_spans(text, pages)):
        if read is None or at in read:
            between = "\n\n" if inside else ""
            inside.append(Piece(between + (f"[{unit} {label}]\n" if unit else ""), at))
            inside.append(Piece(text[start:end], at, start))
    _strip(inside)
    tag = _tag("document", [piece.text for piece in inside])
    about = f' {unit}s="{len(pages)}"' if unit else ""
    opens = Piece(f'<{tag} name="{escape(name)}"{about}>\n')
    return [opens, *inside, Piece(f"\n</{tag}>")]


def part_prompt(name: str, text: str, number: int, count: int, pages: str = "") -> str:
    """One part of a long document as the model reads it."""
    tag = _tag("part", [text])
    about = f' pages="{escape(pages)}"' if pages else ""
    opens = f'<{tag} document="{escape(name)}" number="{number}" of="{count}"{about}>'
    return f"{opens}\n{text.strip(chr(10))}\n</{tag}>"


def results_prompt(texts: Sequence[str], first: int) -> str:
    """What was made of the parts of a document, in order, counted from `first`."""
    tag = _tag("result", texts)
    made = (f'<{tag} number="{at}">\n{text}\n</{tag}>' for at, text in enumerate(texts, first))
    return "\n".join(made)


def table_prompt(name: str, query: str, rows: str, notes: Sequence[str]) -> str:
    """The result of a query over a table."""
    tag = _tag("result", [rows, query])
    said = "\n".join(f"Note: {each}" for each in notes)
    opens = f'<{tag} table="{escape(name)}">\nQuery: {query}\n'
    return f"{opens}\n{rows}\n\n{said}\n</{tag}>"


def _strip(pieces: list[Piece]) -> None:
    """Take the line breaks at both ends of the pieces away."""
    for at, piece in enumerate(pieces):
        left = piece.text.lstrip("\n")
        gone = len(piece.text) - len(left)
        pieces[at] = replace(piece, text=left, start=piece.start + gone * (piece.start >= 0))
        if left:
            break
    for at in reversed(range(len(pieces))):
        pieces[at] = replace(pieces[at], text=pieces[at].text.rstrip("\n"))
        if pieces[at].text:
            break


def passages_prompt(passages: Sequence[Passage]) -> str:
    """Passages as the model reads them, and how to refer to them; "" if all are struck out."""
    read = [each for each in passages if not (each.struck or each.above)]
    above = [f"[{each.number}]" for each in passages if each.above and not each.struck]
    if not read:
        return _ABOVE.format(numbers=", ".join(above)) if above else ""
    tag = _tag("passage", [each.text for each in read])
    made: list[str] = []
    for each in read:
        page = f' {each.unit}="{escape(each.page)}"' if each.unit else ""
        opens = f'<{tag} number="{each.number}" document="{escape(each.name)}"{page}>'
        made.append(f"{opens}\n{each.text}\n</{tag}>")
    if above:
        made.append(_ABOVE.format(numbers=", ".join(above)))
    return "\n".join((*made, _REFER.format(number=read[0].number)))


def earlier_prompt(question: str, query: str) -> str:
    """The question before with its query over a table, which may be "", for one that follows it."""
    return f"The question before: {question}" + (f"\nIts query: {query}" if query else "")


def none_found_prompt(names: Sequence[str]) -> str:
    """What the model reads when no passage of documents with these names fits the question."""
    return _NONE.format(names=", ".join(f'"{escape(name, quote=False)}"' for name in names))


def _tag(word: str, texts: Sequence[str]) -> str:
    """A tag that none of the texts contains: the word, or the word with a number."""
    ends = re.compile(rf"</({word}(?:-\d+)?)>")
    used = {name for text in texts for name in ends.findall(text)}
    names = chain((word,), (f"{word}-{number}" for number in count(2)))
    return next(name for name in names if name not in used)
