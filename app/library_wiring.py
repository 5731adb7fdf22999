"""Connects the page of models with the library; loading is the controller's, so it comes as calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog

from app.library import Library
from app.ui.library_page import LibraryPage


def connect_library(
    page: LibraryPage,
    library: Library,
    *,
    load: Callable[[Path], None],
    cancel_load: Callable[[], None],
    unload: Callable[[], None],
    open_file: Callable[[], None],
    leave: Callable[[], None],
) -> None:
    """Wire every intent of the page; `leave` goes back to the conversation."""
    page.use_requested.connect(load)
    page.cancel_load_requested.connect(cancel_load)
    page.unload_requested.connect(unload)
    page.open_file_requested.connect(open_file)
    page.closed.connect(leave)
    library.use_requested.connect(load)
    library.unload_requested.connect(unload)

    page.opened.connect(library.opened)
    page.seen.connect(library.look_into)
    page.download_requested.connect(library.download)
    page.pause_requested.connect(library.pause)
    page.resume_requested.connect(library.resume)
    page.cancel_requested.connect(library.cancel)
    page.retry_requested.connect(library.retry)
    page.delete_requested.connect(library.shelf.delete)
    page.unlink_requested.connect(library.shelf.unlink)
    page.folder_removed.connect(library.shelf.remove_folder)
    page.files_dropped.connect(library.open_files)
    page.searched.connect(library.hub.search)
    page.link_submitted.connect(library.hub.submit_link)
    page.repository_opened.connect(library.hub.open)
    page.defaults_opened.connect(library.defaults.show)
    page.defaults_changed.connect(library.defaults.change)
    page.defaults_closed.connect(library.defaults.close)
    page.line_acted.connect(library.act_on_line)
    page.line_closed.connect(library.close_line)
    page.show_folder_requested.connect(show_folder)
    page.add_folder_requested.connect(lambda: ask_for_folder(page, library))


def ask_for_folder(page: LibraryPage, library: Library) -> None:
    """Ask which folder to look through; returns at once."""
    dialog = QFileDialog(page, "Add a folder of models", str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)

    def add(name: str) -> None:
        library.shelf.add_folder(Path(name))

    dialog.fileSelected.connect(add)
    dialog.finished.connect(dialog.deleteLater)
    dialog.open()


def show_folder(path: Path) -> None:
    """Show a file's folder, or a folder, in the system's own program for files."""
    folder = path if path.is_dir() else path.parent
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
