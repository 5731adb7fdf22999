"""The offer of a better model: which one, one click to its use, and when it is not made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

import tiny
from app.downloads import catalog
from app.downloads.catalog import CatalogModel
from app.library.better_model import NOTICE
from app.settings.table import Settings
from app.system.byte_size import size
from engine import models_folder, starter_path
from hostile_hub import Fault, Hub
from stage import Stage, flush, until

SHIPPED = catalog.load()


# --- in the window ------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> CatalogModel:
    """The only model of the catalog, on a local hub."""
    content = tiny.write(tmp_path / "better.gguf", format="Q8_0").read_bytes()
    hub.put("owner/name/Better-1B-Q8_0.gguf", content)
    made = replace(
        SHIPPED[0],
        name="Better 1B",
        repository="owner/name",
        revision="main",
        file="Better-1B-Q8_0.gguf",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    monkeypatch.setattr(catalog, "load", lambda: (made,))
    return made


def started(folder: Path, hub: Hub, **settings: bool) -> Stage:
    stage = Stage(folder, settings=Settings(hub_endpoint=hub.endpoint, **settings))
    stage.window.activateWindow()
    starter = starter_path()
    starter.parent.mkdir(parents=True, exist_ok=True)
    tiny.write(starter)
    stage.start(starter)
    stage.engine.finish_load("Starter")
    stage.wait_until_idle()
    until(lambda: stage.states.library.searched)
    return stage


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path, hub: Hub, model: CatalogModel) -> Iterator[Stage]:
    made = started(tmp_path / "app", hub)
    until(lambda: made.states.library.better is not None)
    flush()
    yield made
    made.close()


def test_one_click_downloads_verifies_and_loads(
    qtbot: QtBot, stage: Stage, model: CatalogModel
) -> None:
    line = stage.window.chat.empty_view.better
    assert line.isVisible()
    amount = size(model.size_bytes)
    assert line.link.text() == f"Get a more capable model (Better 1B, {amount})"
    qtbot.mouseClick(line.link, Qt.MouseButton.LeftButton)
    there = models_folder() / model.file
    until(lambda: stage.engine.load.path == there)
    assert there.stat().st_size == model.size_bytes
    flush()
    assert line.isHidden()


def test_download_is_shown_in_a_chat_and_can_be_cancelled_there(
    qtbot: QtBot, stage: Stage, hub: Hub
) -> None:
    line = stage.window.chat.download_line
    stage.controller.send("Why?")
    stage.engine.finish()
    stage.wait_until_idle()
    assert line.isHidden()  # the offer is on the empty page only
    hub.faults.append(Fault(stall_after=1))
    stage.controller.library.better_model.accept()
    until(line.isVisible)
    assert line.words.text().startswith("Getting Better 1B")
    assert line.link.text() == "Cancel"
    qtbot.mouseClick(line.link, Qt.MouseButton.LeftButton)
    until(line.isHidden)
    hub.released.set()


def test_a_download_waits_while_the_app_is_offline(
    qtbot: QtBot, stage: Stage, hub: Hub, model: CatalogModel
) -> None:
    hub.faults.append(Fault(stall_after=1))
    line = stage.window.chat.empty_view.better
    qtbot.mouseClick(line.link, Qt.MouseButton.LeftButton)
    assert hub.stalled.wait(20)
    stage.controller.change_settings(offline=True)
    words = "Better 1B: Offline. It continues when you go online again."
    until(lambda: line.words.text() == words)
    hub.released.set()
    stage.controller.change_settings(offline=False)
    until(lambda: stage.engine.load.path == models_folder() / model.file)


def test_failed_download_offers_to_try_again(
    qtbot: QtBot, stage: Stage, hub: Hub, model: CatalogModel
) -> None:
    hub.put("owner/name/" + model.file, b"not the same bytes" * 1000)
    line = stage.window.chat.empty_view.better
    qtbot.mouseClick(line.link, Qt.MouseButton.LeftButton)
    until(lambda: line.link.text() == "Try again")
    assert line.words.text()
    assert stage.engine.load.path == starter_path()


def test_cancelled_download_is_offered_again(qtbot: QtBot, stage: Stage, hub: Hub) -> None:
    hub.faults.append(Fault(reset_after=1))
    line = stage.window.chat.empty_view.better
    qtbot.mouseClick(line.link, Qt.MouseButton.LeftButton)
    stage.controller.library.better_model.cancel()
    until(lambda: line.link.text().startswith("Get a more capable model"))


def test_dismissed_offer_is_never_made_again(qtbot: QtBot, tmp_path: Path, stage: Stage) -> None:
    line = stage.window.chat.empty_view.better
    qtbot.mouseClick(line.close_button, Qt.MouseButton.LeftButton)
    flush()
    assert line.isHidden()
    assert not stage.controller.settings.offer_better_model


@pytest.mark.usefixtures("qtbot", "model")
def test_no_offer_beside_another_model(tmp_path: Path, hub: Hub) -> None:
    models_folder().mkdir(parents=True, exist_ok=True)
    tiny.write(models_folder() / "Own-2B.gguf")
    made = started(tmp_path / "app", hub)
    try:
        made.controller.library.catalog.predict()
        made.wait_until_idle()
        assert any(row.offer.memory for row in made.states.library.catalog)
        assert made.states.library.better is None
    finally:
        made.close()


def test_full_disk_is_told_in_the_chat(
    qtbot: QtBot, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.controller.library, "_free", lambda folder: 1000)
    qtbot.mouseClick(stage.window.chat.empty_view.better.link, Qt.MouseButton.LeftButton)
    assert "disk" in stage.state.notices[NOTICE].sentence
    assert stage.states.library.better is not None


@pytest.mark.usefixtures("qtbot")
def test_without_any_model_the_offer_and_the_models_page_lead(
    tmp_path: Path, hub: Hub, model: CatalogModel
) -> None:
    made = Stage(tmp_path / "app", settings=Settings(hub_endpoint=hub.endpoint))
    try:
        made.start()
        until(lambda: made.states.library.better is not None)
        flush()
        view = made.window.chat.empty_view
        assert view.better.link.text().startswith("Get Better 1B (")
        assert view.better.close_button.isHidden()
        assert view.browse_button.isVisible()
    finally:
        made.close()


def test_the_offer_is_what_the_models_page_recommends_before_the_first_question(
    qtbot: QtBot, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.library.recommended.total_memory", lambda: 16_000_000_000)
    monkeypatch.setattr("app.library.recommended.available_memory", lambda: 13_100_000_000)
    made = Stage(tmp_path / "app", settings=Settings(hub_endpoint=hub.endpoint))
    try:
        starter = starter_path()
        starter.parent.mkdir(parents=True, exist_ok=True)
        tiny.write(starter)
        made.start(starter)  # still loading, and no memory is predicted
        until(lambda: made.states.library.better is not None)
        better, rows = made.states.library.better, made.states.library.catalog
        assert better is not None
        assert [row.offer for row in rows if row.offer.recommended] == [better.offer]
        assert better.offer.name == "Qwen3.5 9B"
    finally:
        made.close()


def test_no_time_is_named_before_a_download_was_measured(
    qtbot: QtBot, stage: Stage, model: CatalogModel
) -> None:
    line = stage.window.chat.empty_view.better
    assert "min" not in line.link.text()
    assert line.link.toolTip() == "Nothing is sent before you click."
    stage.states.library.set_speed(model.size_bytes / 180)
    assert line.link.text().endswith(", about 3 min)")
    assert "your last downloads" in line.link.toolTip()


def test_a_failed_download_does_not_follow_into_other_chats(
    qtbot: QtBot, stage: Stage, hub: Hub, model: CatalogModel
) -> None:
    line = stage.window.chat.download_line
    stage.controller.send("Why?")
    stage.engine.finish()
    stage.wait_until_idle()
    hub.put("owner/name/" + model.file, b"not the same bytes" * 1000)
    stage.controller.library.better_model.accept()
    until(lambda: line.isVisible() and line.link.text() == "Try again")
    assert line.close_button.isVisible()
    qtbot.mouseClick(line.close_button, Qt.MouseButton.LeftButton)
    until(line.isHidden)
    assert stage.controller.settings.offer_better_model
    qtbot.mouseClick(line.link, Qt.MouseButton.LeftButton)
    stage.controller.library.better_model.accept()  # again, and it fails again
    until(lambda: line.isVisible() and line.link.text() == "Try again")
    stage.controller.new_conversation()
    stage.controller.send("And now?")
    stage.engine.finish()
    stage.wait_until_idle()
    assert line.isHidden()


def test_a_download_left_by_an_earlier_run_is_not_shown_above_chats(
    qtbot: QtBot, stage: Stage, hub: Hub
) -> None:
    hub.faults.append(Fault(stall_after=1))
    library = stage.controller.library
    library.better_model.accept()
    until(lambda: bool(library.state.downloads))
    library.downloads.pause(library.state.downloads[0].id)
    hub.released.set()
    library.better_model._accepted = None  # as after the next start
    until(lambda: library.state.better is not None and library.state.better.put_away)
    stage.controller.send("Why?")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.window.chat.download_line.isHidden()


@pytest.mark.usefixtures("qtbot")
@pytest.mark.parametrize("damaged", [False, True])
def test_without_a_usable_model_one_is_offered_also_where_a_better_one_is_not_wanted(
    tmp_path: Path, hub: Hub, model: CatalogModel, damaged: bool
) -> None:
    models_folder().mkdir(parents=True, exist_ok=True)
    if damaged:
        (models_folder() / "broken-Q4_0.gguf").write_bytes(b"GGUF")
    settings = Settings(hub_endpoint=hub.endpoint, offer_better_model=damaged)
    made = Stage(tmp_path / "app", settings=settings)
    try:
        made.start()
        made.controller.library.picker_opened()  # inspects the file
        until(lambda: made.states.library.better is not None)
        flush()
        assert made.window.chat.empty_view.better.link.text().startswith("Get Better 1B (")
    finally:
        made.close()
