"""Wiring of the settings page: changes are applied and saved, and the page is updated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest

from app.system.file_manager import nearest_folder
from app.ui.settings.fields import Segments
from app.ui.settings.page import Preferences
from app.ui.widgets.work_shown import WorkShown
from engine import CacheType, Save, snapshots_folder
from fakes import MODEL
from stage import Stage, flush, until


def opened(stage: Stage) -> Preferences:
    """The settings page, which is created on first use."""
    stage.window.preferences.open()
    assert stage.window.preferences.page is not None
    return stage.window.preferences.page


def test_setting_changed_on_the_page_is_applied_and_saved(stage: Stage) -> None:
    stage.ready(MODEL)
    preferences = opened(stage)
    preferences.changed.emit("temperature", 0.25)
    assert stage.controller.settings.temperature == 0.25
    stage.wait_until_idle()
    assert '"temperature": 0.25' in (stage.folder / "settings.json").read_text(encoding="utf-8")


def test_theme_changes_at_once(stage: Stage) -> None:
    opened(stage).changed.emit("theme", "dark")
    assert stage.theme.palette.name == "dark"
    stage.window.theme_requested.emit()
    field = opened(stage).rows["theme"].field
    assert isinstance(field, Segments)
    assert field.buttons["high contrast"].isChecked()


def test_switching_the_theme_shows_another_one_each_time(stage: Stage) -> None:
    stage.theme.choose("system")
    seen = [stage.theme.palette.name]
    for _ in range(4):
        stage.window.theme_requested.emit()
        seen.append(stage.theme.palette.name)
    assert all(one != other for one, other in pairwise(seen)), seen
    assert set(seen) == {"light", "dark", "high contrast"}


def test_settings_and_the_panel_reopen_at_their_top(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.resize(900, 420)
    for _ in range(2):
        bar = opened(stage).view.verticalScrollBar()
        flush()
        assert (bar.value(), bar.maximum() > 0) == (0, True)
        bar.setValue(bar.maximum())
        stage.window.close_page()
        flush()
    for _ in range(2):
        stage.window.open_panel()
        flush()
        bar = stage.window.panel.content.area.verticalScrollBar()
        assert (bar.value(), bar.maximum() > 0) == (0, True)
        bar.setValue(bar.maximum())
        stage.window.panel.close_panel()
        flush()


def test_reload_uses_the_changed_settings(stage: Stage) -> None:
    stage.ready(MODEL)
    preferences = opened(stage)
    preferences.rows["cache"].field.picked.emit("q8_0")
    preferences.rows["context"].field.picked.emit(2048)
    assert not preferences.reload_line.isHidden()
    preferences.reload_line.button.click()
    assert (stage.engine.load.path, stage.engine.load.context) == (MODEL, 2048)
    assert stage.engine.load.cache is CacheType.Q8_0
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert preferences.reload_line.isHidden()


def test_load_in_progress_keeps_the_reload_button(stage: Stage) -> None:
    stage.ready(MODEL)
    preferences = opened(stage)
    preferences.rows["threads"].field.picked.emit(1)
    stage.state.model_changed.emit()
    assert not preferences.reload_line.isHidden()


def test_cached_conversations_are_measured_on_opening_and_can_be_deleted(stage: Stage) -> None:
    stage.ready(MODEL)
    folder = snapshots_folder()
    folder.mkdir(parents=True)
    (folder / f"{'0' * 16}-{'0' * 32}.sequence").write_bytes(b"x" * 1500)
    preferences = opened(stage)
    button = preferences.storage.saved.button
    until(lambda: "2 kB" in preferences.storage.saved.words.text())
    button.click()
    until(lambda: preferences.storage.saved.words.text() == "Nothing is stored now.")
    assert list(folder.iterdir()) == []


def test_zero_snapshot_budget_saves_nothing(stage: Stage) -> None:
    stage.ready(MODEL)
    opened(stage).changed.emit("snapshot_budget_gb", 0.0)
    stage.controller.send("Hello")
    stage.engine.write("Hi")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.new_conversation()
    assert stage.engine.count(Save) == 0


def test_the_window_tells_the_system_of_work(stage: Stage) -> None:
    assert stage.window.findChild(WorkShown) is not None


def test_missing_path_opens_its_nearest_existing_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert nearest_folder(tmp_path) == tmp_path
    assert nearest_folder(tmp_path / "file") == tmp_path
    assert nearest_folder(tmp_path / "not" / "yet" / "there") == tmp_path


# Signal of the window's parts, what it is emitted with, and the method of the controller that gets it.
REQUESTS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("transcript.continue_requested", (3,), "continue_answer"),
    ("transcript.delete_requested", (3,), "deletions.delete_message"),
    ("transcript.sibling_requested", (3, -1), "navigation.show_sibling"),
    ("transcript.more_passages_requested", (3,), "retrieval.answer_with_more"),
    ("transcript.no_passages_requested", (3,), "retrieval.answer_without"),
    ("chat.fit_line.longer_requested", (), "fit.use_longer_context"),
    ("chat.fit_line.model_chosen", (MODEL,), "fit.use_model"),
    ("chat.search_model_line.get_requested", (), "encoder.get"),
    ("composer.file_retried", (3,), "attachments.retry"),
    ("composer.file_reloaded", (3,), "attachments.reload"),
    ("library.page.cancel_load_requested", (), "model_use.cancel_load"),
    ("library.page.unload_requested", (), "unload_model"),
    ("library.page.pause_requested", (3,), "library.downloads.pause"),
    ("library.page.resume_requested", (3,), "library.downloads.resume"),
    ("library.page.cancel_requested", (3,), "library.cancel"),
    ("library.page.retry_requested", (3,), "library.downloads.retry"),
    ("library.page.unlink_requested", (MODEL,), "library.model_index.unlink"),
    ("library.page.folder_removed", (MODEL,), "library.model_index.remove_folder"),
    ("library.page.files_dropped", ((MODEL,),), "library.open_files"),
    ("library.page.searched", ("words",), "library.hub.search"),
    ("library.page.repository_opened", ("a/b",), "library.hub.open"),
    ("library.page.line_closed", (), "library.close_line"),
    ("panel.content.adapters.removed", (1,), "adapters.remove"),
    ("panel.content.adapters.cleared", (), "adapters.clear"),
    ("panel.content.adapters.moved", (1, 0), "adapters.move"),
    ("preferences.page.given_up", ("top_k",), "reset_sampling"),
    ("preferences.page.gpu.get_requested", (), "gpu_support.get"),
    ("preferences.page.gpu.stop_requested", (), "gpu_support.stop"),
    ("preferences.page.gpu.retry_requested", (), "gpu_support.retry"),
    ("preferences.page.gpu.remove_requested", (), "gpu_support.remove"),
    ("preferences.page.about.updates.stop_requested", (), "updates.stop_getting"),
    ("preferences.page.about.updates.install_requested", (), "updates.install"),
    ("preferences.page.about.updates.removal_requested", (MODEL,), "updates.remove_leftover"),
)


def test_requests_reach_the_controller(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, tuple[object, ...]]] = []

    def recorded(method: str) -> Callable[..., None]:
        return lambda _, *given: seen.append((method, given))

    for _, _, method in REQUESTS:
        owner, _, name = f"controller.{method}".rpartition(".")
        monkeypatch.setattr(type(attrgetter(owner)(stage)), name, recorded(method))
    made = Stage(tmp_path / "recorded")
    try:
        made.window.library.open()
        made.window.preferences.open()
        made.window.open_panel("adapters")
        for signal, given, _ in REQUESTS:
            attrgetter(signal)(made.window).emit(*given)
        assert seen == [(method, given) for _, given, method in REQUESTS]
    finally:
        made.close()
