"""Pictures of the screens, and the permission for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QByteArray
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.system import screen_grab


class _Call:
    """A function of a library."""

    def __init__(self, answer: bool, asked: list[str], name: str) -> None:
        self.answer, self.asked, self.name = answer, asked, name
        self.restype: Any = None

    def __call__(self) -> bool:
        self.asked.append(self.name)
        return self.answer


@pytest.mark.parametrize(
    ("known", "given", "allowed", "questions"),
    [(True, False, True, 1), (False, True, True, 2), (False, False, False, 2)],
)
def test_the_permission_is_asked_for_once_it_is_not_there(
    known: bool, given: bool, allowed: bool, questions: int
) -> None:
    asked: list[str] = []
    names = ("CGPreflightScreenCaptureAccess", "CGRequestScreenCaptureAccess")
    calls = [_Call(a, asked, n) for a, n in zip((known, given), names, strict=True)]
    library = SimpleNamespace(**dict(zip(names, calls, strict=True)))
    assert screen_grab.is_allowed(library) is allowed
    assert asked == list(names[:questions])


def test_a_system_without_the_question_allows_it() -> None:
    assert screen_grab.is_allowed(SimpleNamespace())
    assert screen_grab.is_allowed()


def test_each_screen_has_a_picture_and_a_picture_becomes_a_file(qtbot: QtBot) -> None:
    found = screen_grab.grab()
    assert found
    for screen, pixmap in found:
        ratio = screen.devicePixelRatio()
        assert pixmap.size() == (screen.size() * ratio)
    image = QImage(7, 5, QImage.Format.Format_RGB32)
    image.fill(QColor("#123456"))
    again = QImage()
    assert again.loadFromData(QByteArray(screen_grab.png(image)))
    assert (again.size(), again.pixelColor(3, 3)) == (image.size(), QColor("#123456"))
