"""Documents in a prompt: as data with a name, page marks, and borders that their text cannot end.

The words are English and never change, so that the cached text of a document stays of use.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import chain, count

from app.domain.documents import PageStart, PageUnit, Passage, page_spans

_REFER = (
    "Answer from these passages as far as they help, and refer to those you use by their numbers,"
    " such as [{number}]."
)
_ABOVE = "Of the earlier passages, {numbers} may help as well."


def file_prompt(
    name: str,
    text: str,
    unit: PageUnit = PageUnit.NONE,
    pages: tuple[PageStart, ...] = (),
    chosen: Sequence[int] | None = None,
) -> str:
    """A file as the model reads it: all pages, or those with the `chosen` indexes."""
    marked = [
        (f"[{unit} {label}]\n" if unit else "") + text[start:end]
        for at, (label, start, end) in enumerate(page_spans(text, pages))
        if chosen is None or not pages or at in chosen
    ]
    body = "\n\n".join(marked).strip("\n")
    tag = _tag("document", (body,))
    about = f' {unit}s="{len(pages)}"' if unit else ""
    return f'<{tag} name="{escape(name)}"{about}>\n{body}\n</{tag}>'


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


def _tag(word: str, texts: Sequence[str]) -> str:
    """A tag that none of the texts contains: the word, or the word with a number."""
    names = chain((word,), (f"{word}-{number}" for number in count(2)))
    return next(name for name in names if not any(f"</{name}>" in text for text in texts))
