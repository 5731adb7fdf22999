"""Marks of tables in the text of a document."""

from __future__ import annotations

import re

from app.domain.documents import DocumentKind
from app.domain.parts import FilePart

LINE_UNDER_HEADER = re.compile(r"[|: \t-]++")  # that also has a bar and a dash
_LINE = re.compile(rf"^{LINE_UNDER_HEADER.pattern}$", re.MULTILINE)


def is_under_header(line: str) -> bool:
    """Whether a line stands between the names of a table's columns and its rows."""
    return "|" in line and "-" in line and LINE_UNDER_HEADER.fullmatch(line) is not None


def has_table(file: FilePart) -> bool:
    """Whether a file may have a table."""
    is_table = file.kind in (DocumentKind.TABLE.value, DocumentKind.SHEETS.value)
    return (is_table and "|" in file.text) or any(
        "|" in line[0] and "-" in line[0] for line in _LINE.finditer(file.text)
    )
