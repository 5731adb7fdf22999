"""Updates in the whole window: the settings page, the notices, and the list of contacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app import __version__
from app.chat.updates import NEWS_NOTICE, NOTICE, OTHER_NOTICE
from app.domain.release import InstallKind
from app.net.offline import gate
from app.state.chat import Notice
from app.state.updates import GetPhase
from app.updates.install import Installed
from fakes import MODEL
from offline import clean_gate
from stage import Stage, until
from update_server import UpdateServer, update_server


@pytest.fixture
def server() -> Iterator[UpdateServer]:
    with clean_gate(), update_server() as made:
        yield made


@pytest.fixture
def stage(
    qtbot: object, tmp_path: Path, server: UpdateServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "home"))
    made = Stage(tmp_path)
    updates = made.controller.updates
    updates._here = replace(
        updates._here,
        address=server.url,
        downloads=lambda: tmp_path / "Downloads",
        installed=lambda: Installed(InstallKind.DEB, "x86_64", tmp_path / "tokonoma"),
    )
    updates._set(host="127.0.0.1")
    made.ready(MODEL)
    yield made
    made.close()


def test_a_click_asks_gets_and_is_listed_as_a_contact(
    stage: Stage, server: UpdateServer, tmp_path: Path
) -> None:
    server.release("9.0.0", deb=b"package" * 1000)
    section = stage.window.preferences.open().about.updates
    stage.wait_until_idle()
    assert server.requests == []
    section.check.click()
    until(lambda: stage.states.updates.status.newer is not None)
    assert "9.0.0" in section.card.title.text()
    section.card.get.click()
    until(lambda: stage.states.updates.status.phase is GetPhase.READY)
    assert (tmp_path / "Downloads" / "tokonoma-9.0.0-x86_64.deb").read_bytes() == b"package" * 1000
    assert "sudo apt install" in section.card.command.text()
    page = stage.window.connections.open()
    until(lambda: bool(stage.states.connections.contacts))
    (contact,) = stage.states.connections.contacts
    assert contact.purpose == "a newer version of Tokonoma; only the request is sent"
    assert (contact.count, contact.sent_bytes) == (2, 0)
    assert page.contacts.list.count() == 1
    assert gate.ledger.all()[0].count == 2


def test_the_switch_is_saved(stage: Stage) -> None:
    section = stage.window.preferences.open().about.updates
    section.weekly.switch.click()
    assert stage.controller.settings.check_updates
    section.weekly.switch.click()
    assert not stage.controller.settings.check_updates


def test_notices_lead_to_the_notes_and_to_the_newer_version(stage: Stage) -> None:
    stage.state.set_notice(NEWS_NOTICE, Notice("Tokonoma is now version 9.", "", "What is new"))
    stage.window.banners.shown[NEWS_NOTICE].action.click()
    page = stage.window.preferences.page
    assert page is not None
    assert stage.window.shown_page is page
    assert page.notes is not None
    assert page.notes.isVisible()
    assert NEWS_NOTICE not in stage.state.notices
    page.notes.closed.emit()
    stage.window.close_page()
    stage.state.set_notice(NOTICE, Notice("There is a newer version.", "", "Show"))
    stage.window.banners.shown[NOTICE].action.click()
    assert stage.window.shown_page is page
    assert not page.notes.isVisible()
    until(lambda: page.view.verticalScrollBar().value() > 0)


@pytest.mark.parametrize("version", ["9.0.0", "0.0.1"])
def test_another_version_that_is_started_is_said_with_what_to_do(
    stage: Stage, version: str
) -> None:
    asked: list[int] = []
    stage.window.closing.connect(lambda: asked.append(1))
    for text in ("", "\n".join("9" * 100), __version__):
        stage.controller.updates.on_other_version(text)
    assert OTHER_NOTICE not in stage.state.notices
    stage.controller.updates.on_other_version(version)
    banner = stage.window.banners.shown[OTHER_NOTICE]
    assert f"Version {version} was started while this one" in banner.words.text()
    banner.action.click()
    assert asked == [1]


def test_an_answer_of_a_model_here_is_noted(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "home" / "state" / "updates.json"
    until(record.exists)
    assert '"answered": false' in record.read_text(encoding="utf-8")
    assert stage.controller.send("Hello")
    stage.engine.write("Hello.")
    stage.engine.finish()
    stage.wait_until_idle()
    until(lambda: '"answered": true' in record.read_text(encoding="utf-8"))
