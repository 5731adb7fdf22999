"""The text of a slide: its title, then its shapes as they are read, then the notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app.documents.intervals import clusters
from app.documents.office.writing import Blocks, whole
from app.documents.source import MOST_CHARACTERS
from app.domain.documents import Document, DocumentKind, Page, PageUnit, Warned

HIDDEN = "(hidden slide)"  # the first line of its page


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands at one place of a slide; lengths in any unit."""

    x: float
    y: float
    width: float
    height: float
    text: str
    is_title: bool = False


def slide_text(shapes: Sequence[Shape], notes: str = "", *, is_hidden: bool = False) -> str:
    """The text of a slide; its shapes are read from the top, those side by side from the left."""
    parts = [HIDDEN] if is_hidden else []
    titles = [shape for shape in shapes if shape.is_title and shape.text]
    for title in titles:
        heading = Blocks()
        heading.heading(1, title.text)
        parts.append(heading.text)
    rest = [shape for shape in shapes if shape.text and not shape.is_title]
    parts.extend(shape.text for shape in _in_order(rest))
    if notes:
        parts.append(f"Notes: {notes}")
    return "\n\n".join(parts)


def _in_order(shapes: list[Shape]) -> list[Shape]:
    """Shapes parted by gaps from side to side, then by gaps from the top to the bottom."""
    rows = clusters(shapes, (s.y for s in shapes), (s.y + 0.9 * s.height for s in shapes))
    if len(rows) > 1:
        return [shape for row in rows for shape in _in_order(row)]
    columns = clusters(shapes, (s.x for s in shapes), (s.x + 0.9 * s.width for s in shapes))
    if len(columns) > 1:
        return [shape for column in columns for shape in _in_order(column)]
    return sorted(shapes, key=lambda shape: (shape.y, shape.x))


def slides(
    texts: Iterable[str], title: str, warnings: Callable[[], tuple[Warned, ...]]
) -> Document:
    """The document of the texts of its slides; `warnings` is asked when they have been read."""
    pages: list[Page] = []
    size = 0
    for number, text in enumerate(texts, 1):
        pages.append(Page(str(number), text))
        size += len(text)
        if size > MOST_CHARACTERS:
            break
    return whole(Document(DocumentKind.SLIDES, tuple(pages), PageUnit.SLIDE, title, warnings()))
