"""Screenshots: asked of the desktop's portal or taken by the window, and attached as pictures.

Linux: the portal where there is one, else the window, which Wayland does not let see the screen.
Windows and macOS: the window. Nothing is taken unless the user asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication, QImage

from app.chat.sending.attachments import Attachments, Content
from app.documents.source import pieces
from app.state.attachments import Place
from app.state.chat import Notice, State
from app.system import screen_grab
from app.system.screen_grab import PortalFault
from app.system.translation import tr

if TYPE_CHECKING:
    from app.system.screen_portal import ScreenPortal

NOTICE = "screenshot"  # kind of the notice that there is no screenshot


class Screenshots(QObject):
    """Lives on the GUI thread."""

    window_asked = Signal()  # the window is to take the picture: `attach` or `fail`

    def __init__(
        self,
        state: State,
        attachments: Attachments,
        parent: QObject,
        portal: Callable[[QObject], ScreenPortal] | None = None,
    ) -> None:
        """`portal` makes what asks the desktop; None: that of Linux, where there is one."""
        super().__init__(parent)
        self._state, self._attachments = state, attachments
        self._make = portal or (_portal if _has_portal() else None)
        self._portal: ScreenPortal | None = None
        self._place: Place = None  # the chat that was shown when it was asked for

    def take(self, window: str = "") -> None:
        """Ask for a screenshot; `window` names the asking one for the portal."""
        self._state.set_notice(NOTICE, None)
        self._place = self._state.current
        if self._portal is None and self._make is not None:
            self._portal = self._make(self)
            self._portal.taken.connect(self._attach_file)
            self._portal.failed.connect(self._on_failed)
        if self._portal is not None:
            self._portal.take(window)
        else:
            self._ask_window()

    def close(self) -> None:
        """End what the desktop is asked for."""
        if self._portal is not None:
            self._portal.close()

    def attach(self, image: QImage) -> None:
        """The window took a picture."""
        self._attach(lambda _texts, _cancelled: screen_grab.png(image))

    def fail(self) -> None:
        """The window could take no picture."""
        self._say(tr("The screen could not be captured."))

    def _ask_window(self) -> None:
        if screen_grab.is_allowed():
            self.window_asked.emit()
            return
        way = tr("Allow it in System Settings, Privacy & Security, and start the app again.")
        self._say(tr("The system does not let this app see the screen."), way)

    def _attach_file(self, path: Path) -> None:
        self._attach(lambda _, cancelled: b"".join(pieces(path, cancelled)))

    def _attach(self, content: Content) -> None:
        time = datetime.now().astimezone().strftime("%Y-%m-%d %H.%M.%S")
        name = tr("Screenshot {time}", time=time)
        self._attachments.attach_contents(self._place, [(f"{name}.png", content)])

    def _on_failed(self, fault: PortalFault) -> None:
        if fault is PortalFault.MISSING and not QGuiApplication.platformName().startswith("way"):
            self._ask_window()
            return
        words = {
            PortalFault.MISSING: tr("This desktop lets no app take screenshots."),
            PortalFault.REFUSED: tr("The desktop refused to take a screenshot."),
            PortalFault.SILENT: tr("The desktop did not answer when asked for a screenshot."),
            PortalFault.BROKEN: tr("The desktop took a screenshot, but its file is not there."),
        }
        self._say(words[fault])

    def _say(self, sentence: str, way: str = "") -> None:
        way = way or tr("Take it with a program of the system, and paste it.")
        self._state.set_notice(NOTICE, Notice(sentence, way))


def _has_portal() -> bool:
    return sys.platform == "linux" and QGuiApplication.platformName() in ("xcb", "wayland")


def _portal(parent: QObject) -> ScreenPortal:
    from app.system.screen_portal import ScreenPortal

    return ScreenPortal(parent=parent)
