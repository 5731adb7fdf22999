"""The menu of the formats in which chats are exported."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QMenu

from app.domain.transfer import ExportFormat
from app.system.translation import tr


def add_formats(menu: QMenu, chosen: Callable[[ExportFormat], None]) -> None:
    """Add an entry for each format."""
    for format in ExportFormat:
        action = menu.addAction(format_name(format))
        action.triggered.connect(lambda _=False, format=format: chosen(format))


def format_name(format: ExportFormat) -> str:
    """The name of a format in menus and dialogs."""
    return {
        ExportFormat.MARKDOWN: tr("Markdown"),
        ExportFormat.JSON: tr("JSON, with everything"),
        ExportFormat.HTML: tr("Web page (HTML)"),
        ExportFormat.PDF: tr("PDF"),
    }[format]
