"""Single instance per profile: a second start passes on its model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QUrl
from PySide6.QtGui import QFileOpenEvent

from app.system.instance import DesktopRequests, Instance
from stage import flush, until

ROOT = Path(__file__).parents[3]
STARTS_SECONDS = 30.0  # time limit for four starts to agree on one instance
SECOND = """
import sys
import time
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.system.instance import DesktopRequests, Instance
application = QCoreApplication([])
sys.exit(0 if Instance(Path(sys.argv[1])).call(*map(Path, sys.argv[2:])) else 3)
"""


@pytest.fixture
def first(qtbot: object, tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    made.listen()
    yield made
    made.close()
    made.deleteLater()
    flush()


def start(*arguments: Path | str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SECOND, *map(str, arguments)], cwd=ROOT)


def ended(child: subprocess.Popen[bytes]) -> int:
    until(lambda: child.poll() is not None)
    return child.wait()


def test_second_start_sends_its_model_and_exits(first: Instance, tmp_path: Path) -> None:
    heard: list[list[Path]] = []
    first.called.connect(heard.append)
    assert ended(start(tmp_path)) == 0
    assert ended(start(tmp_path, "/models/Ein Mädchen.gguf", "/b.txt")) == 0
    assert heard == [[], [Path("/models/Ein Mädchen.gguf"), Path("/b.txt")]]


OTHER = SECOND.replace("import", "import app; app.__version__ = '9.0.0'; import", 1)


def test_a_start_of_another_version_is_told(first: Instance, tmp_path: Path) -> None:
    heard: list[list[Path]] = []
    versions: list[str] = []
    first.called.connect(heard.append)
    first.other_version.connect(versions.append)
    assert ended(start(tmp_path)) == 0
    assert versions == []
    command = [sys.executable, "-c", OTHER, str(tmp_path), "/models/a.gguf"]
    assert ended(subprocess.Popen(command, cwd=ROOT)) == 0
    assert versions == ["9.0.0"]
    assert heard == [[], [Path("/models/a.gguf")]]


def test_another_profile_has_another_instance(first: Instance, tmp_path: Path) -> None:
    assert ended(start(tmp_path / "other")) == 3


def test_closed_instance_does_not_answer(first: Instance, tmp_path: Path) -> None:
    first.close()
    assert ended(start(tmp_path)) == 3


def test_stale_socket_of_a_crash_is_replaced(first: Instance, tmp_path: Path) -> None:
    again = Instance(tmp_path, first)
    again.listen()
    assert ended(start(tmp_path)) == 0
    again.close()


def test_a_file_open_event_emits_its_path(qapp: QCoreApplication, tmp_path: Path) -> None:
    requests = DesktopRequests()
    told: list[str] = []
    requests.opened.connect(told.append)
    qapp.installEventFilter(requests)
    path = tmp_path / "a model.gguf"
    QCoreApplication.sendEvent(qapp, QFileOpenEvent(QUrl.fromLocalFile(str(path))))
    qapp.removeEventFilter(requests)
    assert told == [str(path)]


def test_the_end_of_a_session_is_a_request_to_quit(qapp: QCoreApplication) -> None:
    """Qt would close the windows, and go on where one of them only hides itself."""
    requests = DesktopRequests()
    asked: list[bool] = []
    requests.quit.connect(lambda: asked.append(True))
    qapp.installEventFilter(requests)
    event = QEvent(QEvent.Type.Quit)
    QCoreApplication.sendEvent(qapp, event)
    qapp.removeEventFilter(requests)
    assert asked == [True]
    assert not event.isAccepted()


@pytest.mark.sweep
def test_of_simultaneous_starts_exactly_one_becomes_the_instance(tmp_path: Path) -> None:
    environment = {**os.environ, "TOKONOMA_HOME": str(tmp_path / "home")}
    starts = [
        subprocess.Popen(
            [sys.executable, "-m", "app"], cwd=ROOT, env=environment, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    try:
        limit = time.monotonic() + STARTS_SECONDS
        while sum(start.poll() is not None for start in starts) < 3:
            assert time.monotonic() < limit, "more than one stayed open"
            time.sleep(0.05)
        (first,) = [start for start in starts if start.poll() is None]
        others = [start for start in starts if start is not first]
        assert [start.returncode for start in others] == [0, 0, 0]
        for start in others:
            assert b"already open" in start.communicate()[0]
        time.sleep(1.0)  # it stays the instance
        assert first.poll() is None
    finally:
        for start in starts:
            start.terminate()
            start.communicate(timeout=STARTS_SECONDS)
    assert first.returncode == 0
