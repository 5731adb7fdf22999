"""The app as a process: start, clean quit, and errors for what it cannot do."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import smoke_frozen
from app.store.store import Store

ROOT = Path(__file__).parents[2]


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM", "TOKONOMA_HOME")
    }
    return {**kept, "TOKONOMA_HOME": str(home), **more}


def run(arguments: list[str], home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def run_code(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code without a display."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(home, QT_QPA_PLATFORM="offscreen"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has a display always")
def test_missing_display_is_reported(tmp_path: Path) -> None:
    done = run([], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("There is no display")
    assert done.stderr.count("\n") == 1


def test_smoke_run_without_a_model_reports_how_to_get_one(tmp_path: Path) -> None:
    done = run(["--smoke"], tmp_path)
    assert done.returncode == 1
    assert "packaging/dev.py run" in done.stderr
    assert done.stdout == ""


def test_a_python_without_the_packages_reports_how_to_get_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "app"],  # -S: without site-packages
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "packaging/dev.py run" in done.stderr
    assert "Traceback" not in done.stderr


def test_smoke_run_with_a_damaged_model_reports_the_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    done = run(["--smoke", str(broken)], tmp_path)
    assert done.returncode == 1
    assert "broken.gguf" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.real
def test_a_smoke_run_prints_question_and_answer(tmp_path: Path, starter_model: Path) -> None:
    done = run(["--smoke", str(starter_model)], tmp_path / "home")
    assert done.returncode == 0, done.stderr
    smoke_frozen.check_errors(done.stderr)
    assert "> What is the capital of France?" in done.stdout
    assert "Paris" in done.stdout
    assert "tokens/s" in done.stdout
    assert not (tmp_path / "home").exists(), "the user's profile was touched"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_signal_quits_like_closing_the_window(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "app", "--home", str(tmp_path / "profile")],
        cwd=ROOT,
        env=environment(tmp_path, QT_QPA_PLATFORM="offscreen", PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    database = tmp_path / "profile" / "data" / "conversations.sqlite"
    limit = time.monotonic() + 60
    while not database.exists() and time.monotonic() < limit:
        with pytest.raises(subprocess.TimeoutExpired):  # it keeps running
            child.wait(0.05)
    child.send_signal(signal.SIGTERM)
    told, said = child.communicate(timeout=60)
    assert child.returncode == 0
    assert "starter model is not installed" in told
    assert "packaging/dev.py run" in told
    slow = "not done within"  # a warning of a busy machine
    assert [line for line in said.splitlines() if slow not in line] == []
    assert (tmp_path / "profile" / "config" / "settings.json").exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_quitting_while_nothing_can_be_saved_touches_no_timer_of_another_thread(
    tmp_path: Path,
) -> None:
    database = tmp_path / "profile" / "data" / "conversations.sqlite"
    other = Store.open(database)  # holds the lock, so that saving fails
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "app", "--home", str(tmp_path / "profile")],
            cwd=ROOT,
            env=environment(tmp_path, QT_QPA_PLATFORM="offscreen"),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stderr is not None
        said = child.stderr.readline()
        assert "the store failed" in said
        time.sleep(0.5)  # time for the error to reach the window
        child.send_signal(signal.SIGTERM)
        _, rest = child.communicate(timeout=60)
    finally:
        other.close()
    assert child.returncode == 0
    assert "Timers cannot be stopped" not in rest, rest


def test_size_of_everything_is_set_before_the_window_is_made(tmp_path: Path) -> None:
    code = (
        "import sys; from app import __main__ as m; from app.settings.table import Settings;"
        "m._session = lambda application, *rest: ratio(application);\n"
        "async def ratio(application): print(application.devicePixelRatio()); return 0\n"
        "sys.exit(m._run([], Settings(scale=150), smoke_test=True))"
    )
    done = run_code(code, tmp_path)
    assert done.stdout.strip() == "1.5", done.stderr


def test_garbage_is_collected_only_after_the_first_paint(tmp_path: Path) -> None:
    code = (
        "import gc, runpy, sys; sys.argv = ['app', '--version']\n"
        "try: app = runpy.run_module('app', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(gc.isenabled()); from app.__main__ import _enable_garbage_collection as enable\n"
        "enable(); print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    done = run_code(code, tmp_path)
    assert done.stdout.split()[-3:] == ["False", "True", "True"], done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_all_is_saved_when_qt_ends_its_event_loop_itself(tmp_path: Path) -> None:
    """As when the desktop's session ends: no window is closed, and the loop just returns."""
    code = (
        "import sys; from PySide6.QtCore import QTimer; from PySide6.QtWidgets import QApplication;"
        "from app import __main__ as m; from app.chat.controller import Controller as C;\n"
        "start = C.start\n"
        "def leave():\n"
        "    [w for w in QApplication.topLevelWidgets() if w.objectName() == 'window' or hasattr(w, 'chat')]"
        "[0].composer.insert('unsent words')\n"
        "    QTimer.singleShot(0, lambda: QApplication.exit(0))\n"
        "def begin(self, model=None):\n"
        "    start(self, model); QTimer.singleShot(500, leave)\n"
        "C.start = begin\n"
        f"sys.exit(m.main(['--home', {str(tmp_path / 'profile')!r}]))"
    )
    done = run_code(code, tmp_path)
    assert done.returncode == 0, done.stderr
    with closing(Store.open(tmp_path / "profile" / "data" / "conversations.sqlite")) as store:
        assert store.draft(None).text == "unsent words"
    assert (tmp_path / "profile" / "config" / "settings.json").exists()


@pytest.mark.skipif(
    sys.platform == "win32", reason="the event loop there is woken by sockets of this computer"
)
def test_with_everything_off_no_socket_leaves_this_computer_or_listens(tmp_path: Path) -> None:
    """With every page opened; the one of connections looks for engines of this computer."""
    code = (
        "import socket, sys; seen = []\n"
        "def watch(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.bind', 'socket.sendto', 'socket.sendmsg'):\n"
        "        here = event == 'socket.connect' and arguments[1][0] == '127.0.0.1'\n"
        "        if arguments[0].family != socket.AF_UNIX and not here:\n"
        "            seen.append((event, arguments[1]))\n"
        "    elif event.startswith('socket.get') and event != 'socket.gethostname':\n"
        "        seen.append((event, arguments[0]))\n"
        "sys.addaudithook(watch)\n"
        "from PySide6.QtCore import QTimer; from PySide6.QtWidgets import QApplication\n"
        "from app import __main__ as m; from app.chat.controller import Controller as C\n"
        "start = C.start\n"
        "def pages():\n"
        "    w = next(each for each in QApplication.topLevelWidgets() if hasattr(each, 'chat'))\n"
        "    w.library.open(); w.preferences.open(); w.connections.toggle(); w.open_picker()\n"
        "    assert w.connections.page.isVisible(); print('opened', flush=True)\n"
        "    QTimer.singleShot(1500, w.quit)\n"
        "def begin(self, model=None):\n"
        "    start(self, model); QTimer.singleShot(300, pages)\n"
        "C.start = begin\n"
        f"status = m.main(['--home', {str(tmp_path / 'profile')!r}]); print(seen); sys.exit(status)"
    )
    done = run_code(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["opened", "[]"], done.stdout


NOT_BEFORE_THE_FIRST_PAINT = (  # each is imported when it is first opened or needed
    "app.chat.controller",
    "app.documents",
    "app.engines.local",
    "app.engines.remote",
    "app.library",
    "app.smoke",
    "app.store",
    "app.ui.chat.sidebar.archive",
    "app.ui.chat.sidebar.trash",
    "app.ui.collections.page",
    "app.ui.comparison.card",
    "app.ui.connections.page",
    "app.ui.documents.card",
    "app.ui.export",
    "app.ui.library.page",
    "app.ui.panel.content",
    "app.ui.performance.page",
    "app.ui.presets.page",
    "app.ui.settings.page",
    "app.wiring",
)
NOT_WITH_THE_CONTROLLER = (  # which is imported next
    "app.chat.tools.calls",
    "app.chat.tools.grants",
    "app.chat.tools.offered",
    "app.chat.tools.running_servers",
    "app.chat.tools.servers",
    "app.chat.tools.sources",
    "app.chat.tools.thread",
    "app.chat.transfer.markdown_export",
    "app.chat.transfer.native_json",
    "app.chat.transfer.sources",
    "app.documents.index",
    "app.documents.readers",
    "app.markdown.word",
    "app.domain.forms",
    "app.domain.tool_servers",
    "app.domain.tools",
    "app.store.salvage",
    "app.tools",
    "app.ui.tools.questions",
    "app.ui.tools.servers",
    "app.ui.transcript.message.call_painter",
    "app.ui.transcript.message.consent",
)
OF_OTHERS = ("chardet", "httpx", "mcp", "numpy", "pypdfium2", "starlette", "torch", "uvicorn")
AT_FIRST_PAINT = (
    "from app.ui.window import Window as C; old = C.__init__\n"
    "def init(self, *rest): old(self, *rest); self.painted.connect(lambda: done(self))\n"
    "C.__init__ = init\n"
)
WITH_THE_CONTROLLER = (
    "from app.chat.controller import Controller as C\n"
    "from PySide6.QtWidgets import QApplication as A\n"
    "C.start = lambda *_: done(next(w for w in A.topLevelWidgets() if hasattr(w, 'chat')))\n"
)


def modules_at(moment: str, home: Path) -> set[str]:
    """The names of what is imported at a moment of the app's start."""
    code = (
        "import os, sys; from app import __main__ as m\n"
        "def done(_): print(*sys.modules, flush=True); os._exit(0)\n"
        f"{moment}m.main([])"
    )
    done = run_code(code, home)
    names = set(done.stdout.split())
    assert "app.ui.chat.page" in names, done.stderr
    return names


def within(names: set[str], rooms: tuple[str, ...]) -> set[str]:
    """Those that are one of the rooms, or lie in one."""
    return {name for name in names for room in rooms if f"{name}.".startswith(f"{room}.")}


def test_the_first_paint_waits_for_no_controller_and_no_page_that_is_not_shown(
    tmp_path: Path,
) -> None:
    names = modules_at(AT_FIRST_PAINT, tmp_path)
    assert within(names, (*NOT_BEFORE_THE_FIRST_PAINT, *NOT_WITH_THE_CONTROLLER)) == set()
    assert within(names, ("sqlite3", *OF_OTHERS)) == set()
    assert within(names, ("app.chat",)) == {
        "app.chat",
        "app.chat.models",
        "app.chat.models.model_loader",
        "app.chat.settings",
        "app.chat.settings.builtin_presets",
    }
    for name in (*NOT_BEFORE_THE_FIRST_PAINT, *NOT_WITH_THE_CONTROLLER):
        place = ROOT / name.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), name


def test_the_controller_waits_for_nothing_that_is_needed_later(tmp_path: Path) -> None:
    names = modules_at(WITH_THE_CONTROLLER, tmp_path)
    assert "app.chat.controller" in names
    assert within(names, (*NOT_WITH_THE_CONTROLLER, *OF_OTHERS)) == set()
    needed = {"addresses", "connections", "engines", "errors", "keys", "values"}
    assert within(names, ("app.engines.remote",)) == {
        "app.engines.remote",
        *(f"app.engines.remote.{name}" for name in needed),
    }


@pytest.mark.parametrize("last", ["", "/away/Some-Model.gguf"])
def test_what_is_painted_first_stays_as_it_is_with_the_controller(
    tmp_path: Path, last: str
) -> None:
    """Else the page would jump under the pointer."""
    settings = tmp_path / "config" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(f'{{"last_model": "{last}"}}', encoding="utf-8")
    code = (
        "import os; from app import __main__ as m\n"
        "from PySide6.QtWidgets import QApplication as A\n"
        "shots = []\n"
        "def done(window):\n"
        "    A.setCursorFlashTime(0); A.sendPostedEvents(); shots.append(window.grab().toImage())\n"
        "    if shots[1:]: print('same' if shots[0] == shots[1] else 'other', flush=True)\n"
        "    if shots[1:]: os._exit(0)\n"
        f"{AT_FIRST_PAINT}{WITH_THE_CONTROLLER}m.main([])"
    )
    done = run_code(code, tmp_path)
    assert done.stdout.split()[-1:] == ["same"], done.stderr


def test_a_program_without_a_console_has_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    start = importlib.import_module("app.__main__")
    start._open_streams()
    with sys.stdout, sys.stderr:
        print("é", file=sys.stderr)
        assert sys.stdout.writable()  # Windows calls its null device a terminal
