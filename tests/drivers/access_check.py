"""Accessibility check over AT-SPI: counts crashes at quitting, and walks all screens by keyboard.

`python -m tests.drivers.access_check [--quits 20]` from the repository's root. It starts an X
server, a session bus and an AT-SPI bus with `--screen-reader=1`, so it needs Xvfb, dbus-daemon,
xdotool, at-spi2-core, and a Python with the Atspi bindings (`gi`), which runs this file with
`access_walk.py`. Exits 1 when the app crashed, when a control has no accessible name, role or
action, or when the keyboard does not reach it, show its focus and come back from it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

_FOCUS_SECONDS = 1.0
ROOT = Path(__file__).parents[2]
LAUNCHERS = [
    Path(folder) / "at-spi-bus-launcher" for folder in ("/usr/libexec", "/usr/lib/at-spi2-core")
]
WALK = Path(__file__).with_name("access_walk.py")
IMPORTED = "conversations.json"  # in the home folder of the app
ATTACHED = "notes.md"  # the same
PROGRAMS = ("Xvfb", "dbus-daemon", "xdotool")
TIMEOUT_SECONDS = 60.0  # for the window to appear, or the app to exit

QUESTION = "What is gravity?"
NOTES = "The force by which masses attract one another."
ANSWER = (
    "<think>Short.</think>A force [1]; [read on](https://example.org/force) or "
    "[write](mailto:a@example.org).\n\n| Where |\n|---|\n| [cell](https://example.org/cell) |\n\n"
    "```python\nprint(9.81)\n```\n"
)


# --- the app, its display and its buses ---------------------------------------------------------


def missing() -> list[str]:
    """The required programs that are not installed."""
    found = [name for name in PROGRAMS if shutil.which(name) is None]
    if not any(path.exists() for path in LAUNCHERS):
        found.append("at-spi-bus-launcher")
    if reader() is None:
        found.append("a Python with gi and Atspi 2.0")
    return found


@cache
def reader() -> str | None:
    """A Python with the AT-SPI bindings, which may differ from the one that runs the app."""
    code = "import gi; gi.require_version('Atspi', '2.0'); from gi.repository import Atspi"
    for python in (sys.executable, "/usr/bin/python3"):
        if Path(python).exists():
            done = subprocess.run([python, "-c", code], capture_output=True, check=False)
            if done.returncode == 0:
                return python
    return None


@contextmanager
def running(
    command: list[str], environment: dict[str, str], **pipes: object
) -> Iterator[subprocess.Popen[str]]:
    """Run a process until the block ends."""
    process = subprocess.Popen(
        command, env=environment, text=True, stderr=subprocess.DEVNULL, **pipes
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def desktop() -> Iterator[dict[str, str]]:
    """Start an X server, a session bus and an AT-SPI bus; yields the environment to use them."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="access-"))
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("QT_QPA_PLATFORM", "WAYLAND_DISPLAY", "AT_SPI_BUS_ADDRESS")
        } | {"XDG_RUNTIME_DIR": folder}
        read_end, write_end = os.pipe()
        server = [
            "Xvfb",
            "-displayfd",
            str(write_end),
            "-screen",
            "0",
            "1400x1000x24",
            "-nolisten",
            "tcp",
        ]
        stack.enter_context(running(server, environment, pass_fds=(write_end,)))
        os.close(write_end)
        with os.fdopen(read_end) as display:
            environment["DISPLAY"] = f":{display.readline().strip()}"
        bus = ["dbus-daemon", "--session", "--nofork", "--print-address"]
        daemon = stack.enter_context(running(bus, environment, stdout=subprocess.PIPE))
        assert daemon.stdout is not None
        environment["DBUS_SESSION_BUS_ADDRESS"] = daemon.stdout.readline().strip()
        launcher = next(path for path in LAUNCHERS if path.exists())
        options = ["--launch-immediately", "--a11y=1", "--screen-reader=1"]
        stack.enter_context(running([str(launcher), *options], environment))
        yield environment


def fill(home: Path) -> None:
    """Store chats in folders, one whose messages show every kind of control, and a prompt."""
    from app.domain.chat import Folder
    from app.domain.documents import Passage, Reads
    from app.domain.message import AdapterMark, MessageState
    from app.domain.parts import FilePart, PassagesPart, TextPart
    from app.domain.snippet import Snippet
    from app.store.store import Store
    from engine import Role

    store = Store.open(home / "data" / "conversations.sqlite")
    store.save_folders([Folder(1, "Physics"), Folder(2, "Optics", parent=1)])
    store.create_conversation("Rainbows", folder=2)
    store.set_pinned([store.create_conversation("Kept at the top").id], pinned=True)
    store.write_snippet(Snippet(3, "Shorten", "Say it in one sentence.", 0.0))
    conversation = store.create_conversation("Gravity", folder=1).id
    archived = store.create_conversation("Archived before").id
    store.set_places([(archived, None, True)])
    store.add_message(conversation, None, Role.USER, "Asked otherwise")
    file = FilePart("notes.txt", NOTES, "a" * 64, reads=Reads.PASSAGES)
    passage = Passage(1, file.name, NOTES, sha256=file.sha256, end=len(NOTES), score=0.8)
    asked = (file, PassagesPart((passage,)), TextPart(QUESTION))
    question = store.add_message(conversation, None, Role.USER, asked)
    stopped = store.add_message(
        conversation, question.id, Role.ASSISTANT, ANSWER, MessageState.STOPPED, model="Tiny"
    )
    store.mark_message(stopped.id, [AdapterMark("pirate-speech", 0.8, "5f3a")])
    second = store.add_message(conversation, stopped.id, Role.USER, "And on the moon?")
    store.add_message(
        conversation, second.id, Role.ASSISTANT, "A sixth", MessageState.STOPPED, model="Tiny"
    )
    store.close()


def write_import(home: Path) -> None:
    """Write a file of chats as ChatGPT exports them, with a picture, which is left out."""
    texts = ("What is a lens?", "Curved glass.")
    parts = ({"parts": [texts[0], {"asset_pointer": "file://a"}]}, {"parts": [texts[1]]})
    mapping: dict[str, object] = {"0": {"id": "0", "parent": None, "children": ["1"]}}
    for number, (role, content) in enumerate(zip(("user", "assistant"), parts, strict=True), 1):
        message = {"id": f"m{number}", "author": {"role": role}, "create_time": 1.6e9}
        kind = "multimodal_text" if number == 1 else "text"
        mapping[str(number)] = {
            "id": str(number),
            "parent": str(number - 1),
            "children": [str(number + 1)] if number == 1 else [],
            "message": message | {"content": {"content_type": kind} | content},
        }
    chat = {"title": "Lenses", "create_time": 1.6e9, "update_time": 1.6e9, "mapping": mapping}
    chat |= {"conversation_id": "c1", "current_node": "2"}
    (home / IMPORTED).write_text(json.dumps([chat]), encoding="utf-8")
    (home / ATTACHED).write_text("# Notes\n\nThe harbour was rebuilt in 1926.\n", encoding="utf-8")


def window_of(environment: dict[str, str]) -> str:
    """Wait for the app's window; returns its X window id."""
    search = ["xdotool", "search", "--onlyvisible", "--name", "Tokonoma"]
    limit = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < limit:
        done = subprocess.run(search, env=environment, capture_output=True, text=True, check=False)
        if done.stdout.split():
            return done.stdout.split()[0]
        time.sleep(0.2)
    raise SystemExit("the window never appeared")


def xdotool(environment: dict[str, str], *arguments: str) -> None:
    """Send input to the app through the X server: keys, text, focus."""
    subprocess.run(["xdotool", *arguments], env=environment, check=True, capture_output=True)


def one_run(environment: dict[str, str], *, pages: bool) -> tuple[int, dict[str, object]]:
    """Start the app, check its tree, quit with Ctrl+Q; returns the exit status and the findings."""
    with tempfile.TemporaryDirectory(prefix="access-home-") as folder:
        home = Path(folder)
        fill(home)
        write_import(home)
        here = environment | {"TOKONOMA_HOME": folder, "QT_QPA_PLATFORM": "xcb"}
        app = subprocess.Popen([sys.executable, "-m", "app"], cwd=ROOT, env=here)
        try:
            xdotool(environment, "windowfocus", "--sync", window_of(environment))
            xdotool(
                environment, "key", "--clearmodifiers", "ctrl+k"
            )  # opens the search of the conversation list
            time.sleep(_FOCUS_SECONDS)  # on a busy machine the keys would arrive before the focus
            xdotool(environment, "type", "gravity")
            xdotool(environment, "key", "Return")
            python = reader()
            assert python is not None
            what = "all" if pages else "tree"
            walk = [python, "-W", "ignore", str(WALK), what, folder]
            read = subprocess.run(
                walk, env=environment, capture_output=True, text=True, check=False
            )
            if read.returncode:
                raise SystemExit(f"checking the tree failed:\n{read.stdout}{read.stderr}")
            xdotool(environment, "key", "--clearmodifiers", "ctrl+q")
            status = app.wait(TIMEOUT_SECONDS)
        finally:
            app.kill()
            app.wait()
        return status, json.loads(read.stdout)


def check(quits: int) -> tuple[list[int], dict[str, object]]:
    """The exit status of each run, and the findings of the first, which checks all pages."""
    statuses: list[int] = []
    first: dict[str, object] = {}
    with desktop() as environment:
        for number in range(quits):
            status, found = one_run(environment, pages=number == 0)
            statuses.append(status)
            first = first or found
    return statuses, first


def main() -> int:
    """Run the check and print what it found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quits", type=int, default=20)
    options = parser.parse_args()
    if missing():
        print(f"missing: {', '.join(missing())}", file=sys.stderr)
        return 2
    statuses, found = check(options.quits)
    crashes = [status for status in statuses if status]
    print(
        f"{len(statuses)} quits, {len(crashes)} crashes {[signal_name(status) for status in crashes]}"
    )
    print(f"{found['items']} items, {found['controls']} controls on {', '.join(found['pages'])}")
    print(f"{found['stops']} stops of Tab; what a screen reader says:")
    for what, words in found["heard"].items():
        print(f"  {what}: {words}")
    for problem in found["problems"]:
        print(f"  {problem}")
    return 1 if crashes or found["problems"] else 0


def signal_name(status: int) -> str:
    """The signal that ended a process, or its exit status, as text."""
    return signal.Signals(-status).name if status < 0 else str(status)


if __name__ == "__main__":
    sys.exit(main())
