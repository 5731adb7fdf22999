"""Connects import and export to the window, with the dialogs that ask for files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog

from app.chat.controller import Controller
from app.chat.transfer.controller import Documents
from app.domain.transfer import ExportFormat
from app.system.file_names import safe_name
from app.system.translation import tr
from app.ui.transfer.menu import format_name
from app.ui.window import Window

if TYPE_CHECKING:
    from app.ui.settings.page import Preferences


def connect_transfer(window: Window, controller: Controller) -> None:
    """Connect the sidebar, the preview and the progress to the controller."""
    transfer = controller.transfer
    transfer.documents = _documents

    def export(ids: Sequence[int], format: ExportFormat) -> None:
        ask_for_target(window, controller, ids, format)

    def copy(ids: Sequence[int]) -> None:
        transfer.copy(ids, lambda text: QGuiApplication.clipboard().setText(text))

    window.sidebar.export_requested.connect(export)
    window.sidebar.copy_requested.connect(copy)
    window.transfer.accepted.connect(transfer.accept)
    window.transfer.cancelled.connect(transfer.cancel)


def _documents() -> Documents:
    from app.ui.export.html import chat_html, style_sheet
    from app.ui.export.pdf import pdf_steps

    return Documents(style_sheet, chat_html, pdf_steps)


def connect_storage(page: Preferences, window: Window, controller: Controller) -> None:
    """Connect the buttons of the settings page."""
    page.storage.import_requested.connect(lambda: ask_for_files(window, controller))
    page.storage.import_folder_requested.connect(lambda: ask_for_folder(window, controller))
    page.storage.export_requested.connect(partial(export_all, window, controller))


def export_all(window: Window, controller: Controller, format: ExportFormat) -> None:
    """Ask where to export all chats, archived ones too; returns at once."""
    controller.transfer.all_chats(lambda ids: ask_for_target(window, controller, ids, format))


def ask_for_files(window: Window, controller: Controller) -> None:
    """Open a dialog for files of chats; returns at once."""
    dialog = QFileDialog(window, tr("Import chats"), str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
    dialog.setNameFilters(
        [f"{tr('Chats')} (*.zip *.json *.jsonl *.sqlite)", f"{tr('All files')} (*)"]
    )
    _open(dialog, controller.transfer.preview)


def ask_for_folder(window: Window, controller: Controller) -> None:
    """Open a dialog for a folder of chats; returns at once."""
    dialog = QFileDialog(window, tr("Import a folder of chats"), str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    _open(dialog, controller.transfer.preview)


def ask_for_target(
    window: Window, controller: Controller, ids: Sequence[int], format: ExportFormat
) -> None:
    """Open a dialog for where to export chats: a file, or a folder for a file each."""
    numbers = tuple(ids)
    if not numbers:
        return
    dialog = QFileDialog(window, tr("Export chats"), str(Path.home()))
    if len(numbers) > 1 and format is not ExportFormat.JSON:
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    else:
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(format.value)
        dialog.setNameFilter(f"{format_name(format)} (*.{format.value})")
        titles = {each.id: each.title for each in controller.state.conversations}
        name = titles.get(numbers[0], "") if len(numbers) == 1 else tr("Chats")
        dialog.selectFile(f"{safe_name(name, tr('Chat'))}.{format.value}")
    _open(dialog, lambda paths: controller.transfer.export_chats(numbers, format, paths[0]))


def _open(dialog: QFileDialog, chosen: Callable[[Sequence[Path]], None]) -> None:
    def choose(names: list[str]) -> None:
        if names:
            chosen([Path(name) for name in names])

    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.filesSelected.connect(choose)
    dialog.open()
