"""The portal for screenshots, against one on a bus of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import ClassInfo, QObject, QTimer, Signal, Slot
from PySide6.QtDBus import QDBusConnection, QDBusObjectPath
from pytestqt.qtbot import QtBot

from app.system.screen_grab import PortalFault
from app.system.screen_portal import OBJECT, SERVICE, ScreenPortal

DAEMON = (sys.platform == "linux" and shutil.which("dbus-daemon")) or ""
pytestmark = pytest.mark.skipif(not DAEMON, reason="there is no D-Bus")
OPTION = QDBusConnection.RegisterOption


@ClassInfo({"D-Bus Interface": "org.freedesktop.portal.Request"})
class Request(QObject):
    """A request as the portal shows it."""

    Response = Signal("uint", "QVariantMap")
    closed = False

    @Slot()
    def Close(self) -> None:  # noqa: N802
        self.closed = True


@ClassInfo({"D-Bus Interface": "org.freedesktop.portal.Screenshot"})
class Portal(QObject):
    """Answers as `answer` says; None: not at all."""

    def __init__(self, bus: QDBusConnection, answer: tuple[int, dict[str, Any]] | None) -> None:
        super().__init__()
        self.bus, self.answer = bus, answer
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[Request] = []
        self.has_own_handles = False  # as an old portal
        self.handles: list[str] = []

    @Slot(str, "QVariantMap", result=QDBusObjectPath)
    def Screenshot(self, window: str, options: dict[str, Any]) -> QDBusObjectPath:  # noqa: N802
        self.asked.append((window, options))
        token = "another" if self.has_own_handles else options["handle_token"]
        path = f"{OBJECT}/request/{CLIENT.baseService()[1:].replace('.', '_')}/{token}"
        request = Request()
        self.requests.append(request)
        self.handles.append(path)
        self.bus.registerObject(path, request, OPTION.ExportAllSignals | OPTION.ExportAllSlots)
        if self.answer is not None:
            QTimer.singleShot(20, lambda: request.Response.emit(*self.answer))
        return QDBusObjectPath(path)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = tmp_path_factory.mktemp("bus") / "bus.conf"
    config.write_text(
        "<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen>"
        '<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/>'
        '<allow own="*"/></policy></busconfig>',
        encoding="utf-8",
    )
    command = [DAEMON, f"--config-file={config}", "--print-address", "--nofork"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        yield daemon.stdout.readline().strip()
        daemon.terminate()


@pytest.fixture
def bus(address: str) -> Iterator[QDBusConnection]:
    """The portal's connection; that of the app is CLIENT."""
    global CLIENT
    CLIENT = QDBusConnection.connectToBus(address, "client")
    yield QDBusConnection.connectToBus(address, "portal")
    for name in ("client", "portal"):
        QDBusConnection.disconnectFromBus(name)


CLIENT: QDBusConnection


def _portal(bus: QDBusConnection, answer: tuple[int, dict[str, Any]] | None) -> Portal:
    portal = Portal(bus, answer)
    assert bus.registerService(SERVICE)
    assert bus.registerObject(OBJECT, portal, OPTION.ExportAllSlots)
    return portal


def _client(**waits: int) -> ScreenPortal:
    return ScreenPortal(lambda: CLIENT, **waits)


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "Screenshot of today, 1.png"
    path.write_bytes(b"png")
    return path


@pytest.mark.parametrize("old", [False, True], ids=["", "with handles of its own"])
def test_the_file_of_a_screenshot_is_named_and_stays(
    qtbot: QtBot, bus: QDBusConnection, tmp_path: Path, old: bool
) -> None:
    path = _file(tmp_path)
    portal, client = _portal(bus, (0, {"uri": path.as_uri()})), _client()
    portal.has_own_handles = old
    with qtbot.waitSignal(client.taken) as taken:
        client.take("x11:1a")
    assert taken.args == [path]
    assert path.exists()  # it is not ours
    window, options = portal.asked[0]
    assert (window, options["interactive"]) == ("x11:1a", True)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ((2, {}), PortalFault.REFUSED),
        ((0, {}), PortalFault.BROKEN),
        ((0, {"uri": "file:///no/such/file.png"}), PortalFault.BROKEN),
        ((0, {"uri": "https://example.org/a.png"}), PortalFault.BROKEN),
        ((0, {"uri": "file://etc/hostname"}), PortalFault.BROKEN),  # of the computer "etc"
        ((0, {"uri": "file:///etc/%00"}), PortalFault.BROKEN),
        ((0, {"uri": "file:///etc"}), PortalFault.BROKEN),
        ((0, {"uri": 7}), PortalFault.BROKEN),
    ],
)
def test_an_answer_without_a_picture_has_a_reason(
    qtbot: QtBot,
    bus: QDBusConnection,
    answer: tuple[int, dict[str, Any]],
    fault: PortalFault,
) -> None:
    _portal_kept, client = _portal(bus, answer), _client()
    with qtbot.waitSignal(client.failed) as failed:
        client.take()
    assert failed.args == [fault]


def test_a_cancelled_choice_is_no_fault(qtbot: QtBot, bus: QDBusConnection) -> None:
    _portal_kept, client = _portal(bus, (1, {})), _client()
    with qtbot.waitSignal(client.cancelled), qtbot.assertNotEmitted(client.failed):
        client.take()


def test_without_a_portal_or_a_bus_it_is_missing(qtbot: QtBot, bus: QDBusConnection) -> None:
    client = _client()
    with qtbot.waitSignal(client.failed) as failed:
        client.take()
    assert failed.args == [PortalFault.MISSING]
    none = ScreenPortal(lambda: QDBusConnection("no such connection"))
    with qtbot.waitSignal(none.failed) as failed:
        none.take()
    assert failed.args == [PortalFault.MISSING]


def test_a_portal_without_this_interface_is_missing(qtbot: QtBot, bus: QDBusConnection) -> None:
    other = QObject()
    assert bus.registerService(SERVICE)
    assert bus.registerObject(OBJECT, other, OPTION.ExportAllSlots)
    client = _client()
    with qtbot.waitSignal(client.failed) as failed:
        client.take()
    assert failed.args == [PortalFault.MISSING]


def test_a_choice_that_never_comes_ends_and_is_closed(qtbot: QtBot, bus: QDBusConnection) -> None:
    portal, client = _portal(bus, None), _client(choice_milliseconds=300)
    with qtbot.waitSignal(client.failed) as failed:
        client.take()
    assert failed.args == [PortalFault.SILENT]
    qtbot.waitUntil(lambda: portal.requests[0].closed)


def test_a_portal_that_ends_is_silent(qtbot: QtBot, bus: QDBusConnection) -> None:
    portal, client = _portal(bus, None), _client()
    client.take()
    qtbot.waitUntil(lambda: bool(portal.requests))
    with qtbot.waitSignal(client.failed) as failed:
        bus.unregisterService(SERVICE)
    assert failed.args == [PortalFault.SILENT]


def test_the_answer_to_an_earlier_request_is_not_taken(
    qtbot: QtBot, bus: QDBusConnection, tmp_path: Path
) -> None:
    portal, client = _portal(bus, None), _client()
    taken: list[Path] = []
    client.taken.connect(taken.append)
    client.take()
    qtbot.waitUntil(lambda: len(portal.requests) == 1)
    client.take()
    qtbot.waitUntil(lambda: len(portal.requests) == 2 and portal.requests[0].closed)
    path = _file(tmp_path)
    portal.requests[0].Response.emit(0, {"uri": "file:///etc/hostname"})
    portal.requests[1].Response.emit(0, {"uri": path.as_uri()})
    qtbot.waitUntil(lambda: bool(taken))
    assert taken == [path]
    assert portal.handles[0] != portal.handles[1]
