"""Files as parts of messages, for tests of what is said and shown of them."""

from __future__ import annotations

from app.domain.documents import Document, DocumentKind, Page, PageUnit
from app.domain.parts import FilePart


def file_part(document: Document, name: str = "report.pdf", path: str = "/r.pdf") -> FilePart:
    """The part of a message that a document makes."""
    return FilePart(
        name,
        document.text,
        kind=document.kind,
        unit=document.unit,
        pages=document.starts,
        path=path,
    )


PAGES = Document(
    DocumentKind.PDF, tuple(Page(str(n), f"Page {n}") for n in range(1, 13)), PageUnit.PAGE
)
REPORT = file_part(PAGES)  # of 12 pages
