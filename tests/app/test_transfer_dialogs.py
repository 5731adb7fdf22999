"""The dialogs that ask where chats are, and where they are written."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QFileDialog

from app.domain.chat_settings import NO_SETTINGS
from app.domain.transfer import ExportFormat
from app.transfer_dialogs import ask_for_files, ask_for_folder, ask_for_target
from stage import Stage, flush, until


def dialog_of(stage: Stage) -> QFileDialog:
    [dialog] = stage.window.findChildren(QFileDialog)
    return dialog


def closed(dialog: QFileDialog) -> None:
    dialog.reject()
    flush()


def test_one_chat_is_saved_as_a_file_with_its_title(stage: Stage) -> None:
    stage.start()
    number = stage.controller.conversations.begin((), NO_SETTINGS)
    stage.controller.conversations.rename(number, "a/b: c")
    ask_for_target(stage.window, stage.controller, [number], ExportFormat.PDF)
    dialog = dialog_of(stage)
    assert dialog.acceptMode() is QFileDialog.AcceptMode.AcceptSave
    assert [Path(name).name for name in dialog.selectedFiles()] == ["a b c.pdf"]
    closed(dialog)


def test_several_chats_go_to_a_folder_but_json_to_one_file(stage: Stage) -> None:
    stage.start()
    ask_for_target(stage.window, stage.controller, [1, 2], ExportFormat.HTML)
    assert dialog_of(stage).fileMode() is QFileDialog.FileMode.Directory
    closed(dialog_of(stage))
    ask_for_target(stage.window, stage.controller, [1, 2], ExportFormat.JSON)
    assert [Path(name).name for name in dialog_of(stage).selectedFiles()] == ["Chats.json"]
    closed(dialog_of(stage))
    ask_for_target(stage.window, stage.controller, [], ExportFormat.JSON)
    assert not stage.window.findChildren(QFileDialog)


def test_chosen_files_are_previewed(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    path = tmp_path / "x.json"
    path.write_text("[]", encoding="utf-8")
    ask_for_files(stage.window, stage.controller)
    dialog_of(stage).filesSelected.emit([str(path)])
    until(lambda: "transfer" in stage.state.notices)
    assert "no chats" in stage.state.notices["transfer"].sentence
    closed(dialog_of(stage))
    ask_for_folder(stage.window, stage.controller)
    assert dialog_of(stage).fileMode() is QFileDialog.FileMode.Directory
    closed(dialog_of(stage))
