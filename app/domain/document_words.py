"""Words for places in documents, as the window and exported chats name them."""

from __future__ import annotations

from app.domain.documents import PageUnit, Passage
from app.system.translation import tr


def page_words(unit: PageUnit, label: str) -> str:
    """A page, such as "page 3"; "" in a document of one text."""
    return {
        PageUnit.NONE: "",
        PageUnit.PAGE: tr("page {label}", label=label),
        PageUnit.SHEET: tr("sheet {label}", label=label),
        PageUnit.SLIDE: tr("slide {label}", label=label),
        PageUnit.CHAPTER: tr("chapter {label}", label=label),
        PageUnit.MESSAGE: tr("message {label}", label=label),
    }[unit]


def place_words(passage: Passage) -> str:
    """The document of a passage and the page in it."""
    page = page_words(passage.unit, passage.page)
    return tr("{name}, {page}", name=passage.name, page=page) if page else passage.name
