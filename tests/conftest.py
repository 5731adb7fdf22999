"""Fixtures of all tests: offscreen Qt, private data folders, checks for leaked threads and windows.

Real models are found in the folder that TOKONOMA_MODELS names, else where `packaging/dev.py test`
puts them; those paths are read here, before the fixtures set another TOKONOMA_HOME.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

# Set before Qt, torch or Triton is imported.
os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "2")
# Read when a CUDA kernel is defined: Triton's interpreter runs it on tensors of the processor.
os.environ["TRITON_INTERPRET"] = "1"

import hypothesis
import pytest

import fetch
from busy_files import refuse_open_files
from engine.loading.library import STARTER, starter_path

pytest_plugins = ["seeding"]  # the option --seed, and random data made from it

STARTER_PATH = starter_path()
GEMMA_PATH = fetch.gemma().path
_FILES_OF_THE_USER = frozenset(
    Path(__file__).parent / folder
    for folder in (
        "app/downloads",
        "app/library",
        "app/settings",
        "app/store",
        "engine/state/disk",
    )
)
THREAD_JOIN_SECONDS = 5.0  # time limit for a thread to end after its test

hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Set a private TOKONOMA_HOME for fixtures that outlive one test.

    Not in the controller process of pytest-xdist: its workers inherit the environment, and still
    need the user's TOKONOMA_HOME to find the real models.
    """
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    home = tempfile.TemporaryDirectory(prefix="tokonoma-tests-")
    os.environ["TOKONOMA_HOME"] = home.name
    config.add_cleanup(home.cleanup)


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail a test that leaves a thread running or a window open."""
    threads, windows = set(threading.enumerate()), set(_windows())
    yield
    left = sorted(thread.name for thread in _new_threads(threads))
    if left:
        pytest.fail(f"threads left running: {', '.join(left)}")
    open_windows = sorted(name for key, name in _windows().items() if key not in windows)
    if open_windows:
        pytest.fail(f"windows left behind: {', '.join(open_windows)}")


@pytest.fixture(scope="session", autouse=True)
def clipboard_emptied() -> Iterator[None]:
    """Empty the clipboard at the end of the run.

    Qt's offscreen platform keeps it in a static variable: Python objects in it would be destroyed
    after the interpreter, which crashes the process with a segmentation fault.
    """
    yield
    if "PySide6.QtGui" in sys.modules:
        from PySide6.QtGui import QGuiApplication

        if QGuiApplication.instance() is not None:
            QGuiApplication.clipboard().clear()


@pytest.fixture(autouse=True)
def no_warning_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which a warning was logged, unless it uses `caplog`."""
    if "caplog" in request.fixturenames:
        yield
        return
    recorder = _LogRecorder(logging.WARNING)
    logging.getLogger().addHandler(recorder)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(recorder)
    if recorder.lines:
        pytest.fail("logged:\n" + "\n".join(recorder.lines))


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private data folder for each test, so that no test changes the user's conversations."""
    home = tmp_path / "tokonoma-home"
    monkeypatch.setenv("TOKONOMA_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def open_files_stay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what writes the user's files neither replace nor delete one that is open, as Windows."""
    if request.path.parent in _FILES_OF_THE_USER:
        refuse_open_files(monkeypatch)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of recorded outputs."""
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: the starter model of every installation."""
    return _real_model(STARTER.file, STARTER_PATH)


@pytest.fixture(scope="session")
def gemma_model() -> Path:
    """gemma-3-270m, Q4_K_M: a base model of another family, with a vocabulary of 262,144."""
    return _real_model(GEMMA_PATH.name, GEMMA_PATH)


def _real_model(file: str, default: Path) -> Path:
    folder = os.environ.get("TOKONOMA_MODELS")
    path = Path(folder) / file if folder else default
    if not path.is_file():
        pytest.fail(
            f"{path} is missing: `python3 packaging/dev.py test` fetches it.", pytrace=False
        )
    return path


class _LogRecorder(logging.Handler):
    """Collects the logged lines."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"  {record.levelname} {record.name}: {record.getMessage()}")


def _new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads that a test started and that have not ended within the time limit."""
    # Qt's threads appear as dummy threads once they run Python code; they end with Qt.
    started = [
        thread
        for thread in threading.enumerate()
        if thread not in before and not isinstance(thread, threading._DummyThread)
    ]
    for thread in started:
        if thread.ident is not None:  # else it is only about to run
            thread.join(THREAD_JOIN_SECONDS)
    return [thread for thread in started if thread.is_alive()]


def _windows() -> dict[int, str]:
    """Every top-level widget, by address, after deferred deletions are processed."""
    if "PySide6.QtWidgets" not in sys.modules:
        return {}
    from PySide6.QtCore import QCoreApplication, QEvent
    from PySide6.QtWidgets import QApplication
    from shiboken6 import getCppPointer

    if QApplication.instance() is None:
        return {}
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    if QApplication.topLevelWidgets():
        gc.collect()  # frees reference cycles between Python and Qt objects
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return {
        getCppPointer(widget)[0]: f"{type(widget).__name__} {widget.objectName()!r}"
        for widget in QApplication.topLevelWidgets()
        if widget.metaObject().className() != "QTipLabel"  # Qt reuses its tooltip widget
    }
