"""Icons of attached files by what they are."""

from __future__ import annotations

from app.domain.documents import DocumentKind

_BY_KIND: dict[str, str] = {
    DocumentKind.CODE: "code",
    DocumentKind.JSON: "code",
    DocumentKind.NOTEBOOK: "code",
    DocumentKind.TABLE: "table",
    DocumentKind.SHEETS: "table",
    DocumentKind.SLIDES: "slides",
    DocumentKind.EMAIL: "mail",
    DocumentKind.ARCHIVE: "archive",
}


def file_icon(name: str, kind: str = "") -> str:
    """The icon of a file; `name` is "" for a pasted text, and `kind` a `DocumentKind`."""
    return _BY_KIND.get(kind, "document") if name else "paste"
