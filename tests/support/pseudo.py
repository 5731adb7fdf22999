"""Pseudo-language of the tests: each string in brackets, accented, about 40 % longer.

A text without brackets did not pass through a catalog; one that lacks its last bracket was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from PySide6.QtCore import QModelIndex, QPoint, QRect, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QScrollArea,
    QToolButton,
    QWidget,
)

import catalogs
from app.system.translation import Catalog, use
from app.ui.chat.models.model_picker import ModelButton
from app.ui.documents.chip import AttachmentChip
from app.ui.widgets.controls import ElidedLabel

_PLACEHOLDER = re.compile(r"(\{[^{}]*\})")
_ACCENTED = str.maketrans(
    {
        **dict(zip("aeiouy", ("áà", "éè", "íì", "óò", "úù", "ýÿ"), strict=True)),
        **dict(zip("AEIOUYcnsz", "ÁÉÍÓÚÝçñšž", strict=True)),
    }
)


def pseudo(text: str) -> str:
    """A string in the pseudo-language; placeholders stay as they are."""
    parts = _PLACEHOLDER.split(text)
    changed = (part if place % 2 else part.translate(_ACCENTED) for place, part in enumerate(parts))
    return f"[{''.join(changed)}]"


@cache
def catalog() -> Catalog:
    """The catalog of the pseudo-language, of the strings in the template."""
    forms: dict[str, tuple[str, ...]] = {}
    for key in catalogs.keys(catalogs.read(catalogs.TEMPLATE)):
        one, *many = (key,) if isinstance(key, str) else key
        forms[one] = tuple(map(pseudo, (one, *many)))
    return Catalog(forms, lambda count: int(count != 1))


@contextmanager
def language(application: QApplication, *, mirrored: bool = True) -> Iterator[None]:
    """Use the pseudo-language, from right to left, while the block runs."""
    use(catalog())
    directions = Qt.LayoutDirection
    application.setLayoutDirection(directions.RightToLeft if mirrored else directions.LeftToRight)
    try:
        yield
    finally:
        application.setLayoutDirection(directions.LeftToRight)
        use(Catalog())


def texts(root: QWidget) -> Iterator[tuple[str, str]]:
    """Every text of the visible widgets, spoken ones and tooltips too, with its place."""
    for widget in visible(root):
        name = f"{type(widget).__name__}"
        for kind, text in _texts_of(widget):
            if text:
                yield f"{name}.{kind}", text


def _texts_of(widget: QWidget) -> Iterator[tuple[str, str]]:
    yield "tip", widget.toolTip()
    yield "spoken", widget.accessibleName()
    yield "described", widget.accessibleDescription()
    if isinstance(widget, QLabel | QAbstractButton):
        yield "text", widget.text()
    if isinstance(widget, QLineEdit | QPlainTextEdit):
        yield "placeholder", widget.placeholderText()
    if isinstance(widget, QAbstractItemView) and (model := widget.model()) is not None:
        for row in range(model.rowCount()):
            for role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
                yield "row", str(model.index(row, 0, QModelIndex()).data(role) or "")


def visible(root: QWidget) -> list[QWidget]:
    """The visible widgets below `root`, in the order of the tree."""
    widgets = (root, *root.findChildren(QWidget))
    return [one for one in widgets if one.isVisible() and (one is root or not one.isWindow())]


def outside_brackets(text: str) -> str:
    """What of a text is not in brackets: it did not pass through the catalog."""
    depth, kept = 0, ""
    for char in text:
        depth += char == "["
        if not depth:
            kept += char
        depth -= char == "]" and depth > 0
    return kept


def cut(root: QWidget) -> Iterator[str]:
    """The texts that are not shown whole."""
    for widget in visible(root):
        shown = widget.text() if isinstance(widget, QLabel | QAbstractButton) else ""
        if not shown or not widget.visibleRegion().boundingRect().isValid():
            continue
        named = f"{type(widget).__name__} {shown!r}"
        if isinstance(widget, ElidedLabel):
            if isinstance(chip := widget.parentWidget(), AttachmentChip):
                assert shown in chip.toolTip()
                continue
            if " · " in shown or " + " in shown or re.search(r"\[.*[\[\d]", shown):
                continue  # facts and names: what has no room is in the tooltip
            shown = widget.shown
        elif isinstance(widget, QToolButton | ModelButton):
            continue  # an icon, which has no words; the name of a model
        elif isinstance(widget, QLabel) and widget.wordWrap():
            if widget.height() + 1 < widget.heightForWidth(widget.width()):
                yield f"{named} is too low"
        elif widget.sizeHint().width() > widget.width() + 1:
            yield f"{named} has {widget.width()} of {widget.sizeHint().width()} pixels"
        if shown.count("[") != shown.count("]"):
            yield f"{named} is shown as {shown!r}"
        elif not _is_scrolled(widget) and _hidden(widget):
            yield f"{named} is {_hidden(widget)} pixels outside of its place"


def _hidden(widget: QWidget) -> int:
    """How many pixels of a widget's width its parents cut off."""
    return widget.width() - widget.visibleRegion().boundingRect().width()


def _is_scrolled(widget: QWidget) -> bool:
    parent = widget.parentWidget()
    while parent is not None:
        if isinstance(parent, QScrollArea) and parent.horizontalScrollBar().maximum() > 0:
            return True
        parent = parent.parentWidget()
    return False


def places(root: QWidget) -> list[tuple[str, QRect]]:
    """The visible widgets with their places in the window, in the order of the tree."""
    return [
        (type(one).__name__, QRect(one.mapTo(root, QPoint()), one.size())) for one in visible(root)
    ]
