"""Opener of a page of the window, which is made when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.ui.widgets.page import Page

P = TypeVar("P", bound=Page)


class Host(Protocol):
    """What shows pages: the window."""

    @property
    def shown_page(self) -> QWidget | None: ...

    def add_page(self, page: Page) -> None: ...

    def show_page(self, page: QWidget) -> None: ...

    def close_page(self) -> None: ...


class PageOpener(QObject, Generic[P]):
    """Shows one page."""

    made = Signal(object)  # the page, to be connected

    def __init__(self, make: Callable[[], P], host: Host) -> None:
        super().__init__()
        self._make, self._host = make, host
        self.page: P | None = None

    def open(self) -> P:
        """Show the page; returns it."""
        if self.page is None:
            self.page = self._make()
            self._host.add_page(self.page)
            self.made.emit(self.page)
        self._host.show_page(self.page)
        return self.page

    def toggle(self) -> None:
        """Switch between the page and the conversation."""
        if self.page is not None and self._host.shown_page is self.page:
            self._host.close_page()
        else:
            self.open()
