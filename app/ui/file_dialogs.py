"""Dialogs of the system in which the user chooses files; none blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from app.system.translation import tr

Chosen = Callable[[list[Path]], object]


def choose_model(parent: QWidget, folder: Path, chosen: Callable[[Path], object]) -> None:
    """Ask for the file of a model."""
    dialog = _dialog(parent, tr("Open a model"), folder, lambda paths: chosen(paths[0]))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters([f"{tr('Models')} (*.gguf *.GGUF)", f"{tr('All files')} (*)"])
    dialog.open()


def choose_files(parent: QWidget, folder: Path, chosen: Chosen, *, attach: bool = True) -> None:
    """Ask for files to be attached, or to be added to a collection."""
    title = tr("Attach files") if attach else tr("Add files")
    dialog = _dialog(parent, title, folder, chosen)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
    dialog.setLabelText(QFileDialog.DialogLabel.Accept, tr("Attach") if attach else tr("Add"))
    dialog.open()


def choose_folder(parent: QWidget, folder: Path, chosen: Chosen, *, attach: bool = True) -> None:
    """Ask for a folder whose files are to be attached, or that is to be added to a collection."""
    title = tr("Attach a folder") if attach else tr("Add a folder")
    dialog = _dialog(parent, title, folder, chosen)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.setLabelText(QFileDialog.DialogLabel.Accept, tr("Attach") if attach else tr("Add"))
    dialog.open()


def choose_place(parent: QWidget, start: Path, chosen: Callable[[Path], object]) -> None:
    """Ask where a document is to be saved, at first under the name of `start`."""
    dialog = _dialog(parent, tr("Save the document"), start.parent, lambda paths: chosen(paths[0]))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilters(["Markdown (*.md)", "Word (*.docx)", f"{tr('All files')} (*)"])
    dialog.setDefaultSuffix("md")

    def on_kind(kind: str) -> None:
        suffix = next((each for each in ("docx", "md") if f"*.{each}" in kind), "")
        if suffix and (names := dialog.selectedFiles()):
            dialog.setDefaultSuffix(suffix)
            dialog.selectFile(Path(names[0]).with_suffix(f".{suffix}").name)

    dialog.filterSelected.connect(on_kind)
    dialog.selectFile(start.name)
    dialog.open()


def choose_picture_place(parent: QWidget, start: Path, chosen: Callable[[Path], object]) -> None:
    """Ask where a picture is to be saved, at first under the name of `start`."""
    dialog = _dialog(parent, tr("Save the picture"), start.parent, lambda paths: chosen(paths[0]))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    ending = start.suffix.removeprefix(".")
    kinds = [f"{tr('Pictures')} (*.{ending})"] if ending else []
    dialog.setNameFilters([*kinds, f"{tr('All files')} (*)"])
    dialog.setDefaultSuffix(ending)
    dialog.selectFile(start.name)
    dialog.open()


def choose_file_place(parent: QWidget, start: Path, chosen: Callable[[Path], object]) -> None:
    """Ask where a file is to be saved, at first under the name of `start`."""
    dialog = _dialog(parent, tr("Save the file"), start.parent, lambda paths: chosen(paths[0]))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.selectFile(start.name)
    dialog.open()


def choose_calls_place(parent: QWidget, start: Path, chosen: Callable[[Path], object]) -> None:
    """Ask where the calls of tools are to be saved, at first under the name of `start`."""
    dialog = _dialog(parent, tr("Export the calls"), start.parent, lambda paths: chosen(paths[0]))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilters(["JSON (*.json)", f"{tr('All files')} (*)"])
    dialog.setDefaultSuffix("json")
    dialog.selectFile(start.name)
    dialog.open()


def choose_servers(parent: QWidget, folder: Path, chosen: Callable[[Path], object]) -> None:
    """Ask for another program's file with servers of tools."""
    dialog = _dialog(parent, tr("Import servers of tools"), folder, lambda paths: chosen(paths[0]))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters(["JSON (*.json *.jsonc)", f"{tr('All files')} (*)"])
    dialog.open()


def _dialog(parent: QWidget, title: str, folder: Path, chosen: Chosen) -> QFileDialog:
    dialog = QFileDialog(parent, title, str(folder))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

    def selected(names: list[str]) -> None:
        if names:
            chosen([Path(name) for name in names])

    dialog.filesSelected.connect(selected)
    return dialog
