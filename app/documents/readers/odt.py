"""Text of OpenDocument texts (odt, ott, fodt), as Markdown."""

from __future__ import annotations

from app.documents.office.opendocument import STYLES, TextReader, opened
from app.documents.office.writing import Blocks
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind

_BLOCKS = (
    *("text:p", "text:h", "text:list", "table:table", "text:tracked-changes", "draw:frame"),
    *("draw:custom-shape", "office:forms", "office:scripts", "office:meta"),
    *("text:table-of-content-source", "text:alphabetical-index-source"),
    *("text:illustration-index-source", "text:bibliography-source", "text:user-index-source"),
    *("text:table-index-source", "text:object-index-source", "office:master-styles"),
)
_READ = frozenset(
    ("text:p", "text:h", "text:list", "table:table", "draw:frame", "draw:custom-shape")
)


def read(source: Source) -> Document:
    """The document of an OpenDocument text; raises ExtractionError."""
    with opened(source) as file:
        title = file.title()
        reader = TextReader(file, file.styles())
        blocks = Blocks()
        for element in file.elements("content", *STYLES, *_BLOCKS):
            if element.tag in _READ:
                reader.block(element, blocks)
            else:
                reader.styles.add(element)
            if blocks.is_full:
                break
        return blocks.document(DocumentKind.WORD, title, file.warnings)
