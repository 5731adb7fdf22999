"""Opener of the page of collections, which is made when it is first shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject, Signal

from app.state.collections import CollectionsState

if TYPE_CHECKING:
    from app.ui.collections.page import CollectionsPage


class Host(Protocol):
    """What shows pages: the window."""

    def add_page(self, page: CollectionsPage) -> None: ...

    def show_page(self, page: CollectionsPage) -> None: ...


class CollectionsOpener(QObject):
    """Shows the page of collections in the window."""

    made = Signal(object)  # CollectionsPage, to be connected

    def __init__(self, state: CollectionsState, host: Host) -> None:
        super().__init__()
        self._state, self._host = state, host
        self.page: CollectionsPage | None = None

    def open(self) -> None:
        """Show the page."""
        if self.page is None:
            from app.ui.collections.page import CollectionsPage

            self.page = CollectionsPage(self._state)
            self._host.add_page(self.page)
            self.made.emit(self.page)
        self._host.show_page(self.page)
