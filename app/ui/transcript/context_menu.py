"""Context menu of the transcript: copy the selection, a link, a formula or a message."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QMenu, QWidget

from app.system.translation import tr
from app.ui.widgets.menus import new_menu


def make(
    parent: QWidget,
    *,
    copy_selection: Callable[[], None] | None,
    copy: Callable[[str], None],
    select_all: Callable[[], None],
    link: str,
    formula: str,
    message: str | None,
    show_marks: Callable[[], None] | None = None,
    compare: Callable[[], None] | None = None,
    fork: Callable[[], None] | None = None,
    open_file: Callable[[], None] | None = None,
    open_image: Callable[[], None] | None = None,
    show_in_folder: Callable[[], None] | None = None,
    call: str = "",
) -> QMenu:
    """The menu at one place; `copy_selection` is None without a selection, `message` without one.

    `open_file` shows the text of the file whose row is there, `open_image` the picture, and
    `show_in_folder` where the file is. `call` is the text of the call of a tool there.
    `show_marks` draws the boxes of the message over its picture,
    `compare` answers the question of the message twice, `fork` copies the chat up to it; None: not
    here, or not now. The menu deletes itself when it is closed.
    """
    menu = new_menu(parent)
    selected = menu.addAction(tr("Copy"))
    selected.setEnabled(copy_selection is not None)
    if copy_selection is not None:
        selected.triggered.connect(copy_selection)
    texts = [(tr("Copy link address"), link), (tr("Copy formula as LaTeX"), formula)]
    for words, text in texts:
        if text:
            menu.addAction(words, lambda text=text: copy(text))
    if call:
        menu.addAction(tr("Copy this call"), lambda: copy(call))
    if message is not None:
        menu.addAction(tr("Copy message"), lambda: copy(message)).setEnabled(bool(message))
    if open_file is not None:
        menu.addAction(tr("Open the text"), open_file)
    if open_image is not None:
        menu.addAction(tr("Open the picture"), open_image)
    if show_in_folder is not None:
        menu.addAction(tr("Show in its folder"), show_in_folder)
    if show_marks is not None:
        menu.addAction(tr("Show on the picture"), show_marks)
    if compare is not None:
        menu.addAction(tr("Compare two answers…"), compare)
    if fork is not None:
        menu.addAction(tr("Fork from here"), fork)
    menu.addSeparator()
    menu.addAction(tr("Select all"), select_all)
    return menu
