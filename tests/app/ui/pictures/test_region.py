"""The region of the screen: dragged or by keys, in device pixels, with the window away meanwhile."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QGuiApplication, QImage, QPixmap, QScreen
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.ui.pictures.region import RegionOverlay, ScreenRegions, device_rectangle


class Screens:
    """Pictures as the system gives them, of twice as many pixels as the screen is large."""

    def __init__(self, count: int = 1) -> None:
        self.count, self.window_was_seen = count, False
        self.window: QWidget | None = None

    def __call__(self) -> list[tuple[QScreen, QPixmap]]:
        assert self.window is not None
        self.window_was_seen = self.window.isVisible()
        return [(QGuiApplication.primaryScreen(), self.picture()) for _ in range(self.count)]

    def picture(self) -> QPixmap:
        """Each pixel has a color of its own."""
        size = QGuiApplication.primaryScreen().size() * 2
        pixels = array("I", range(size.width() * size.height())).tobytes()
        image = QImage(pixels, *size.toTuple(), QImage.Format.Format_RGB32)
        pixmap = QPixmap.fromImage(image)
        pixmap.setDevicePixelRatio(2.0)
        return pixmap


@pytest.fixture
def window(qtbot: QtBot) -> Iterator[QWidget]:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(300, 200)
    window.show()
    yield window
    window.close()


def _opened(qtbot: QtBot, window: QWidget, screens: Screens | None = None) -> ScreenRegions:
    screens = screens or Screens()
    screens.window = window
    regions = ScreenRegions(window, screens)
    regions.open()
    assert not window.isVisible()
    qtbot.waitUntil(lambda: bool(regions.overlays))
    assert not screens.window_was_seen
    return regions


def _drag(overlay: RegionOverlay, start: QPoint, end: QPoint) -> None:
    left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    QTest.mousePress(overlay, left, none, start)
    QTest.mouseMove(overlay, end)
    QTest.mouseRelease(overlay, left, none, end)


@pytest.mark.parametrize(
    ("chosen", "pixels", "found"),
    [
        (QRect(0, 0, 10, 10), QSize(100, 50), QRect(0, 0, 10, 10)),
        (QRect(3, 2, 10, 10), QSize(200, 100), QRect(6, 4, 20, 20)),
        (QRect(3, 2, 10, 10), QSize(125, 63), QRect(3, 2, 14, 14)),  # what is touched is in it
        (QRect(90, 40, 10, 10), QSize(150, 75), QRect(135, 60, 15, 15)),
        (QRect(95, 45, 20, 20), QSize(100, 50), QRect(95, 45, 5, 5)),
    ],
)
def test_device_pixels_are_all_that_a_rectangle_touches(
    chosen: QRect, pixels: QSize, found: QRect
) -> None:
    assert device_rectangle(chosen, QSize(100, 50), pixels) == found


def test_a_drag_in_any_direction_takes_the_device_pixels(qtbot: QtBot, window: QWidget) -> None:
    for start, end in ((QPoint(40, 50), QPoint(140, 90)), (QPoint(140, 90), QPoint(40, 50))):
        regions = _opened(qtbot, window)
        with qtbot.waitSignal(regions.taken) as taken:
            _drag(regions.overlays[0], start, end)
        image = taken.args[0]
        assert (image.size(), image.devicePixelRatio()) == (QSize(200, 80), 1.0)
        assert image == Screens().picture().toImage().copy(QRect(80, 100, 200, 80))
        assert window.isVisible()
        assert not regions.is_open


def test_a_click_chooses_nothing_and_shows_the_hint_again(qtbot: QtBot, window: QWidget) -> None:
    regions = _opened(qtbot, window)
    overlay = regions.overlays[0]
    with qtbot.assertNotEmitted(regions.taken):
        QTest.mousePress(overlay, Qt.MouseButton.LeftButton, pos=QPoint(30, 30))
        assert overlay.hint.isHidden()
        QTest.mouseRelease(overlay, Qt.MouseButton.LeftButton, pos=QPoint(31, 31))
    assert overlay.hint.isVisible()
    regions.cancel()


def test_the_keyboard_chooses_moves_and_resizes(qtbot: QtBot, window: QWidget) -> None:
    regions = _opened(qtbot, window)
    overlay = regions.overlays[0]
    area, shift, fine = overlay.size(), Qt.KeyboardModifier.ShiftModifier, Qt.Key.Key_Left
    QTest.keyClick(overlay, Qt.Key.Key_Right)
    middle = overlay.selection
    assert middle.size() == area / 2
    QTest.keyClick(overlay, fine, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(overlay, Qt.Key.Key_Down)
    QTest.keyClick(overlay, Qt.Key.Key_Left, shift)
    assert overlay.selection.topLeft() == middle.topLeft() + QPoint(-1, 16)
    assert overlay.selection.size() == QSize(middle.width() - 16, middle.height())
    for _ in range(200):
        QTest.keyClick(overlay, Qt.Key.Key_Up)
        QTest.keyClick(overlay, Qt.Key.Key_Right, shift)
    assert overlay.selection.top() == 0
    assert overlay.selection.left() + overlay.selection.width() == area.width()
    wanted = overlay.pixels().size()
    with qtbot.waitSignal(regions.taken) as taken:
        QTest.keyClick(overlay, Qt.Key.Key_Return)
    assert taken.args[0].size() == wanted


def test_enter_or_the_button_takes_the_whole_screen(qtbot: QtBot, window: QWidget) -> None:
    for press in (
        lambda overlay: QTest.keyClick(overlay, Qt.Key.Key_Enter),
        lambda overlay: overlay.whole_button.click(),
    ):
        regions = _opened(qtbot, window)
        with qtbot.waitSignal(regions.taken) as taken:
            press(regions.overlays[0])
        assert taken.args[0] == Screens().picture().toImage()


def test_every_way_to_give_up_shows_the_window_again(qtbot: QtBot, window: QWidget) -> None:
    for give_up in (
        lambda overlay: QTest.keyClick(overlay, Qt.Key.Key_Escape),
        lambda overlay: overlay.cancel_button.click(),
        lambda overlay: QTest.mousePress(overlay, Qt.MouseButton.RightButton),
        lambda _: QGuiApplication.instance().screenRemoved.emit(None),
    ):
        regions = _opened(qtbot, window, Screens(2))
        assert len(regions.overlays) == 2
        with qtbot.waitSignal(regions.ended), qtbot.assertNotEmitted(regions.taken):
            give_up(regions.overlays[1])
        assert window.isVisible()
        assert not regions.is_open


def test_a_screen_without_a_picture_is_a_failure_and_the_window_comes_back(
    qtbot: QtBot, window: QWidget
) -> None:
    screens = Screens(0)
    screens.window = window
    regions = ScreenRegions(window, screens)
    with qtbot.waitSignal(regions.failed):
        regions.open()
    assert window.isVisible()


def test_an_error_brings_the_window_back(qtbot: QtBot, window: QWidget) -> None:
    def breaks() -> list[tuple[QScreen, QPixmap]]:
        raise OSError

    regions = ScreenRegions(window, breaks)
    with qtbot.captureExceptions() as raised:
        regions.open()
        qtbot.waitUntil(lambda: not regions.is_open)
    assert raised[0][0] is OSError
    assert window.isVisible()


def test_the_window_keeps_its_place_and_the_overlay_has_names(
    qtbot: QtBot, window: QWidget
) -> None:
    before = window.geometry()
    regions = _opened(qtbot, window)
    overlay = regions.overlays[0]
    assert overlay.geometry() == QGuiApplication.primaryScreen().geometry()
    assert overlay.accessibleName() == "Choose a region of the screen"
    assert overlay.whole_button.text() == "Whole screen"
    image = overlay.grab().toImage()  # it is painted, with the frame of a selection too
    overlay._select(QRect(20, 20, 60, 40))
    assert overlay.grab().toImage() != image
    regions.cancel()
    assert window.geometry() == before
