"""User actions on the models page: from a pasted link to a loaded model, with a local hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

import tiny
import tiny_encoders
from app.downloads.queue import Phase
from app.settings import table as settings_file
from app.settings.table import Settings
from app.state.library import FileState
from app.ui.library.row import LibraryRow
from app.ui.library.row_values import Verb
from engine import CacheType, models_folder
from hostile_hub import Fault, Hub
from stage import Stage, flush, until


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, hub: Hub) -> Iterator[Stage]:
    """The whole window, with a local hub."""
    made = Stage(tmp_path, settings=Settings(hub_endpoint=hub.endpoint))
    made.window.resize(1080, 900)
    made.start()
    made.window.library.open()
    until(lambda: made.states.library.searched)
    yield made
    made.close()


def row(stage: Stage, name: str) -> LibraryRow | None:
    rows = stage.window.library.page.findChildren(LibraryRow)
    return next((each for each in rows if each.isVisible() and each.view.name == name), None)


def appeared(stage: Stage, name: str) -> LibraryRow:
    until(lambda: row(stage, name) is not None)
    found = row(stage, name)
    assert found is not None
    return found


def click(qtbot: QtBot, button: object) -> None:
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    flush()


def choose(found: LibraryRow, verb: Verb) -> None:
    """Trigger an entry of a row's menu."""
    found.acted.emit(next(entry for entry in found.view.menu if entry.verb is verb))
    flush()


def test_from_a_pasted_link_to_a_model_in_use(
    qtbot: QtBot, stage: Stage, hub: Hub, tmp_path: Path
) -> None:
    content = tiny.write(tmp_path / "tiny.gguf", format="Q8_0").read_bytes()
    hub.put("owner/name/Tiny-Model-Q8_0.gguf", content)
    page = stage.window.library.page
    qtbot.keyClicks(page.search, f"{hub.endpoint}/owner/name")
    qtbot.keyClick(page.search, Qt.Key.Key_Return)
    offered = appeared(stage, "Q8_0")
    assert offered.badge.text() == "Recommended"
    click(qtbot, offered.action)
    page.search.clear()
    until(lambda: stage.states.library.line is not None)
    assert stage.states.library.line.sentence == "Tiny Model · Q8_0 is downloaded."
    here = appeared(stage, "Tiny Model")
    until(lambda: here.view.action is not None)
    assert "Q8_0" in here.detail.text()
    click(qtbot, here.action)
    assert stage.engine.load.path == models_folder() / "Tiny-Model-Q8_0.gguf"
    assert stage.window.chat.isVisible()  # the chat comes back
    stage.window.library.open()
    stage.engine.progress(0.5)
    stage.drain()
    flush()
    assert here.action.text() == "Cancel"
    stage.engine.finish_load("Tiny Model")
    stage.drain()
    flush()
    assert here.status.text() == "In use"
    assert here.view.action is None


def test_interrupted_download_resumes_at_its_offset(
    qtbot: QtBot, stage: Stage, hub: Hub, tmp_path: Path
) -> None:
    content = tiny.write(tmp_path / "tiny.gguf", hidden=256).read_bytes()
    hub.put("owner/name/Tiny-F32.gguf", content)
    hub.faults.append(Fault(reset_after=len(content) // 2))
    page = stage.window.library.page
    qtbot.keyClicks(page.search, "owner/name")
    qtbot.keyClick(page.search, Qt.Key.Key_Return)
    click(qtbot, appeared(stage, "F32").action)
    until(lambda: any(each.phase is Phase.DONE for each in stage.states.library.downloads))
    assert (models_folder() / "Tiny-F32.gguf").read_bytes() == content
    assert hub.sent_bytes < 1.6 * len(content)


def test_deletion_on_the_page_can_be_undone(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    tiny.write(folder / "one.gguf")
    stage.controller.library.opened()
    choose(appeared(stage, "one"), Verb.DELETE)
    until(lambda: row(stage, "one") is None)
    assert not (folder / "one.gguf").exists()
    click(qtbot, stage.window.library.page.news_link)
    appeared(stage, "one")
    assert (folder / "one.gguf").is_file()


def test_model_is_loaded_with_its_own_context(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = tiny.write(folder / "one.gguf", context=4096)
    stage.controller.library.opened()
    found = appeared(stage, "one")
    until(lambda: stage.states.library.installed[0].state is FileState.GOOD)
    flush()
    choose(found, Verb.DEFAULTS)
    card = stage.window.library.page.card
    assert card.isVisible()
    qtbot.keyClicks(card.fields["context"], "1024")
    click(qtbot, card.precisions[CacheType.Q8_0])
    until(lambda: "1,024 tokens" in card.memory_words.text())
    qtbot.keyClick(card.fields["context"], Qt.Key.Key_Escape)
    flush()
    assert not card.isVisible()
    click(qtbot, found.action)
    assert (stage.engine.load.path, stage.engine.load.context) == (path, 1024)
    assert stage.engine.load.cache is CacheType.Q8_0
    assert settings_file.load(tmp_path / "settings.json").context == 0
    stage.wait_for_animations()


def test_another_model_to_search_documents_with_is_chosen(
    qtbot: QtBot, stage: Stage, tmp_path: Path
) -> None:
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: tiny_encoders.write(folder / f"{name}.gguf") for name in ("one", "other")}
    stage.controller.library.opened()
    appeared(stage, "other")
    stage.controller.encoder.look()
    library = stage.states.library
    until(lambda: library.embedder in paths.values())
    name = next(name for name, path in paths.items() if path != library.embedder)
    until(lambda: (found := row(stage, name)) is not None and found.view.action is not None)
    click(qtbot, appeared(stage, name).action)
    until(lambda: library.embedder == paths[name])
    stage.wait_until_idle()
    assert settings_file.load(tmp_path / "settings.json").embedding_model == str(paths[name])
