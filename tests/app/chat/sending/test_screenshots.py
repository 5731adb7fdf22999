"""Screenshots: by the desktop or the window, attached as pictures with a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QColor, QGuiApplication, QImage
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.sending.screenshots import NOTICE, Screenshots
from app.documents.extract import Extractor
from app.domain.parts import ImagePart
from app.state.attachments import Attachment, AttachmentPhase
from app.system import screen_grab
from app.system.screen_grab import PortalFault
from fakes import MODEL
from stage import Stage, until

NAME = re.compile(r"Screenshot \d{4}-\d\d-\d\d \d\d\.\d\d\.\d\d\.png")


class Portal(QObject):
    """A desktop that is asked for screenshots."""

    taken, cancelled, failed = Signal(object), Signal(), Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.closed = False

    def take(self, window: str) -> None:
        self.asked.append(window)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, extractor=Extractor())
    stage.ready(MODEL)
    yield stage
    stage.close()


def _screenshots(stage: Stage, portal: Any = None) -> Screenshots:
    make: Callable[[QObject], Any] | None = (lambda _: portal) if portal is not None else None
    return Screenshots(stage.state, stage.controller.attachments, stage.controller, make)


def _file(tmp_path: Path, content: bytes = b"") -> Path:
    image = QImage(64, 40, QImage.Format.Format_RGB32)
    image.fill(QColor("#3B6848"))
    path = tmp_path / "from the desktop.png"
    path.write_bytes(content or screen_grab.png(image))
    return path


def _attached(stage: Stage, place: int | None = None) -> Attachment:
    state = stage.states.attachments
    until(lambda: bool(state.of(place)) and state.of(place)[0].phase is not AttachmentPhase.READING)
    return state.of(place)[0]


def test_the_file_of_the_desktop_becomes_a_picture_and_stays(stage: Stage, tmp_path: Path) -> None:
    portal, path = Portal(), _file(tmp_path)
    screenshots = _screenshots(stage, portal)
    screenshots.take("x11:2f")
    assert portal.asked == ["x11:2f"]
    portal.taken.emit(path)
    part = _attached(stage).part
    assert isinstance(part, ImagePart)
    assert NAME.fullmatch(part.name)
    assert (part.width, part.height, part.path) == (64, 40, "")
    assert path.exists()
    assert NOTICE not in stage.state.notices
    screenshots.close()
    assert portal.closed


def test_it_is_attached_in_the_chat_where_it_was_asked_for(stage: Stage, tmp_path: Path) -> None:
    portal = Portal()
    screenshots = _screenshots(stage, portal)
    screenshots.take()
    stage.controller.send("Another chat begins meanwhile")
    stage.drain()
    assert stage.state.current is not None
    portal.taken.emit(_file(tmp_path))
    assert _attached(stage, None).is_image
    assert not stage.states.attachments.of(stage.state.current)


def test_a_file_that_is_no_picture_is_said_at_its_chip(stage: Stage, tmp_path: Path) -> None:
    portal = Portal()
    _screenshots(stage, portal).take()
    portal.taken.emit(_file(tmp_path, b"\x89PNG\r\n\x1a\n but no more"))
    chip = _attached(stage)
    assert chip.phase is AttachmentPhase.FAILED
    assert chip.fault.endswith("is damaged or incomplete.")


@pytest.mark.parametrize("fault", [each for each in PortalFault if each is not PortalFault.MISSING])
def test_each_fault_of_the_desktop_is_one_sentence(stage: Stage, fault: PortalFault) -> None:
    portal = Portal()
    screenshots = _screenshots(stage, portal)
    screenshots.take()
    portal.failed.emit(fault)
    notice = stage.state.notices[NOTICE]
    assert notice.sentence.endswith(".")
    assert notice.remedy == "Take it with a program of the system, and paste it."
    screenshots.take()  # the next one ends the notice
    assert NOTICE not in stage.state.notices


def test_without_a_portal_the_window_takes_it_but_not_on_wayland(
    qtbot: QtBot, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal = Portal()
    screenshots = _screenshots(stage, portal)
    screenshots.take()
    with qtbot.waitSignal(screenshots.window_asked):
        portal.failed.emit(PortalFault.MISSING)
    monkeypatch.setattr(QGuiApplication, "platformName", lambda: "wayland")
    with qtbot.assertNotEmitted(screenshots.window_asked):
        portal.failed.emit(PortalFault.MISSING)
    assert stage.state.notices[NOTICE].sentence == "This desktop lets no app take screenshots."


def test_a_system_that_forbids_it_is_named_and_nothing_is_taken(
    qtbot: QtBot, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_grab, "is_allowed", lambda: False)
    screenshots = stage.controller.screenshots
    with qtbot.assertNotEmitted(screenshots.window_asked):
        screenshots.take()
    assert "System Settings" in stage.state.notices[NOTICE].remedy
    assert stage.window.isVisible()


def test_the_command_takes_what_is_chosen_in_the_window(stage: Stage) -> None:
    stage.window.actions_by_id["screenshot"].trigger()
    regions = stage.window.attaching.regions
    until(lambda: bool(regions.overlays))
    overlay = regions.overlays[0]
    QTest.keyClick(overlay, "\r")
    until(lambda: not regions.is_open)
    chip = _attached(stage)
    assert isinstance(chip.part, ImagePart)
    size = QGuiApplication.primaryScreen().size()
    assert (chip.part.width, chip.part.height) == size.toTuple()
    assert stage.window.isVisible()
    regions.failed.emit()
    assert stage.state.notices[NOTICE].sentence == "The screen could not be captured."


def test_nothing_is_left_over_the_screen_when_the_app_ends(stage: Stage) -> None:
    stage.window.actions_by_id["screenshot"].trigger()
    regions = stage.window.attaching.regions
    until(lambda: bool(regions.overlays))
    (overlay,) = regions.overlays
    stage.window.finish()
    assert not overlay.isVisible()
    assert not regions.is_open
    assert not stage.window.isVisible()
