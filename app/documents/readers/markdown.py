"""Reader of Markdown: the text as it is, front matter too."""

from __future__ import annotations

import re

from app.documents.decoding import load
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind, Page

_TITLE = re.compile(r"title:[ \t]*(\S.*)")


def read(source: Source) -> Document:
    """The text of a file. Raises ExtractionError if it is no text."""
    decoded = load(source)
    page = Page("", decoded.text)
    title = _title(decoded.text[:4000])
    return Document(DocumentKind.MARKDOWN, (page,), title=title, warnings=decoded.warnings)


def _title(text: str) -> str:
    """The title in the front matter, else the heading that the text begins with; "": none."""
    lines = text.split("\n")
    if lines[0].strip() == "---":
        for line in lines[1:]:
            if line.strip() in ("---", "..."):
                return ""
            if found := _TITLE.match(line):
                return found[1].strip().strip("\"'")
        return ""
    first = next((line for line in lines if line.strip()), "")
    return first[2:].strip().rstrip("#").rstrip() if first.startswith("# ") else ""
