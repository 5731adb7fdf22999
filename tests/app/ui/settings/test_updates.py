"""What the About section says of newer versions, and the page of release notes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app import __version__
from app.domain.release import InstallKind, Package, Release, Version
from app.settings.table import Settings
from app.state.connections import ConnectionsState
from app.state.gpu import GPUState
from app.state.snapshots import SessionState
from app.state.updates import GetPhase, Leftover, UpdateState, UpdateStatus
from app.system import paths
from app.ui.settings.page import Preferences
from app.ui.settings.updates import UpdatesSection
from stage import flush, until

DEB, RPM = Path("/d/t.deb"), Path("/d/t.rpm")


class Page:
    """The settings page, shown."""

    def __init__(self) -> None:
        self.state = UpdateState()
        self.preferences = Preferences(
            Settings(), SessionState(), ConnectionsState(), GPUState(), self.state
        )
        self.section: UpdatesSection = self.preferences.about.updates
        self.preferences.resize(700, 600)
        self.preferences.show()

    def show(self, status: UpdateStatus, settings: Settings = Settings()) -> None:  # noqa: B008
        self.preferences.show_settings(settings)
        self.state.set_status(status)
        flush()

    @property
    def words(self) -> str:
        """All that the section says now."""
        parts = (
            self.section.line, self.section.fault, self.section.card.title, self.section.card.words,
            self.section.card.command, self.section.card.fault,
        )  # fmt: skip
        return "\n".join(part.text() for part in parts if part.isVisible())

    @property
    def buttons(self) -> list[str]:
        """The buttons of the newer version's card."""
        card = self.section.card
        parts = (card.get, card.stop, card.install, card.folder, card.copy, card.notes, card.page)
        return [part.text() for part in parts if part.isVisible()]


@pytest.fixture
def page(qtbot: QtBot) -> Iterator[Page]:
    made = Page()
    qtbot.addWidget(made.preferences)
    qtbot.waitExposed(made.preferences)
    yield made
    made.preferences.close()
    flush()


def newer(kind: InstallKind, **values: object) -> UpdateStatus:
    package = Package(kind, "x86_64", f"https://a.example/t.{kind.value}", 5_000_000, "a" * 64)
    release = Release(Version(9, 0, 0), "## New", "https://a.example/9", (package,))
    status = UpdateStatus("a.example", kind, newer=release, package=package)
    return replace(status, **values)  # type: ignore[arg-type]


def test_a_build_without_an_address_says_so(page: Page) -> None:
    page.show(UpdateStatus())
    assert page.section.version.text() == f"Tokonoma {__version__}"
    assert "looks for no newer versions" in page.words
    assert not page.section.weekly.isVisible()
    assert not page.section.check.isVisible()
    assert "newer" not in page.preferences.about.contacts.text()


def test_the_check_is_off_and_says_what_is_sent(page: Page) -> None:
    page.show(UpdateStatus("a.example"))
    assert not page.section.weekly.switch.isChecked()
    assert "a.example" in page.section.weekly.words.text()
    assert "Only the request is sent" in page.section.weekly.words.text()
    assert "when you look for a newer version" in page.preferences.about.contacts.text()
    emitted: list[tuple[str, object]] = []
    page.preferences.changed.connect(lambda name, value: emitted.append((name, value)))
    page.section.weekly.switch.click()
    assert emitted == [("check_updates", True)]
    page.show(UpdateStatus("a.example"), Settings(check_updates=True))
    assert "once a week" in page.preferences.about.contacts.text()
    asked: list[int] = []
    page.section.check_requested.connect(lambda: asked.append(1))
    page.section.check.click()
    assert asked == [1]


def test_offline_nothing_can_be_looked_for(page: Page) -> None:
    page.show(newer(InstallKind.SETUP), Settings(offline=True))
    assert not page.section.check.isEnabled()
    assert not page.section.card.get.isEnabled()
    assert "offline" in page.words


GET = "Get it (5 MB)"
MORE = ["What is new", "Open its page in the browser"]


@pytest.mark.parametrize(
    ("status", "buttons", "words"),
    [
        (newer(InstallKind.SETUP), [GET], "Nothing is installed before you do it"),
        (newer(InstallKind.SETUP, phase=GetPhase.GETTING, percent=42), ["Cancel"], "42 %"),
        (
            newer(InstallKind.SETUP, phase=GetPhase.READY, file=Path("/d/t.exe")),
            ["Quit and install", "Show in folder"],
            "kept until the new one has answered",
        ),
        (
            newer(InstallKind.ARCHIVE, phase=GetPhase.READY, file=Path("/d/t.tar.xz")),
            ["Show in folder"],
            "run install.sh in its folder. This version stays",
        ),
        (
            newer(InstallKind.DEB, phase=GetPhase.READY, file=DEB),
            ["Show in folder", "Copy the command"],
            f"sudo apt install {shlex.quote(str(DEB))}",
        ),
        (
            newer(InstallKind.RPM, phase=GetPhase.READY, file=RPM),
            ["Show in folder", "Copy the command"],
            f"sudo dnf install {shlex.quote(str(RPM))}",
        ),
        (newer(InstallKind.FLATPAK, package=None), ["Copy the command"], "flatpak update"),
        (newer(InstallKind.SOURCE, package=None), [], "with git or pip"),
        (newer(InstallKind.MAC, package=None), [], "no package of it for this computer"),
        (newer(InstallKind.MAC, package=None, too_old="14"), [], "macOS 14 or newer"),
        (
            newer(InstallKind.SETUP, phase=GetPhase.FAILED, get_fault="The disk is full."),
            ["Try again (5 MB)"],
            "The disk is full.",
        ),
    ],
)
def test_each_installation_is_told_what_to_do(
    page: Page, status: UpdateStatus, buttons: list[str], words: str
) -> None:
    page.show(status)
    assert "Version 9.0.0 is available" in page.words
    assert words in page.words
    assert page.buttons == [*buttons, *MORE]


def test_the_command_is_copied(page: Page) -> None:
    page.show(newer(InstallKind.DEB, phase=GetPhase.READY, file=DEB))
    page.section.card.copy.click()
    assert QGuiApplication.clipboard().text() == f"sudo apt install {shlex.quote(str(DEB))}"


def test_a_former_version_is_deleted_by_its_button(page: Page) -> None:
    folder = Path("/home/ada/Tokonoma-0.0.9")
    page.show(UpdateStatus(leftovers=(Leftover("0.0.9", folder),)))
    removed: list[Path] = []
    page.section.removal_requested.connect(removed.append)
    (button,) = [
        each for each in page.section.leftovers.findChildren(type(page.section.check))
        if each.text() == "Delete version 0.0.9"
    ]  # fmt: skip
    button.click()
    assert removed == [folder]
    page.show(UpdateStatus())
    assert not page.section.leftovers.isVisible()


def test_notes_of_this_version_come_with_the_app(page: Page) -> None:
    assert paths.changelog().is_file()
    page.section.notes.click()
    view = page.preferences.notes
    assert view is not None
    assert view.isVisible()
    flush()
    (shown,) = view.text.stack.views
    assert shown.message.text.startswith("## ")
    until(lambda: view.text.verticalScrollBar().value() == 0)
    assert [tool.name for tool in view.text.tools.all(0)[0]] == ["copy"]
    QTest.keyClick(view.text, Qt.Key.Key_Escape)
    assert not view.isVisible()
    assert page.preferences.view.isVisible()


def test_notes_of_a_newer_version_are_those_that_were_sent(page: Page) -> None:
    page.show(newer(InstallKind.SETUP))
    page.section.card.notes.click()
    assert page.preferences.notes is not None
    (shown,) = page.preferences.notes.text.stack.views
    assert shown.message.text == "## New"
