"""Accessibility check over AT-SPI: counts crashes at quitting, and checks the accessible tree.

`python -m tests.drivers.access_check [--quits 20]` from the repository's root. It starts an X
server, a session bus and an AT-SPI bus with `--screen-reader=1`, so it needs Xvfb, dbus-daemon,
xdotool, at-spi2-core, and a Python with the Atspi bindings (`gi`), which runs this file with
`--walk`. Exits 1 when the app crashed or a control has no accessible name, role or action.
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
PROGRAMS = ("Xvfb", "dbus-daemon", "xdotool")
TIMEOUT_SECONDS = 60.0  # for the window to appear, or the app to exit
CONVERSATION = "Chat"  # the list whose items are checked also when scrolled out of view

QUESTION = "What is gravity?"
ANSWER = (
    "<think>Short.</think>A force; [read on](https://example.org/force) or "
    "[write](mailto:a@example.org).\n\n| Where |\n|---|\n| [cell](https://example.org/cell) |\n\n"
    "```python\nprint(9.81)\n```\n"
)
LINKS = ["read on", "write", "cell"]
TOOLS = [  # buttons of the question, of the stopped answer, and of the answer below it
    "Copy as Markdown",
    "Edit and send again",
    "Previous version",
    "Next version",
    "Written with pirate-speech at 0.80",
    "Continue this answer",
    "Answer again",
    "Compare two answers…",
    "Copy code",
    "Thought",
]


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


def create_conversation(home: Path) -> None:
    """Store a conversation whose messages show every kind of control."""
    from app.domain.chat import Folder
    from app.domain.message import AdapterMark, MessageState
    from app.store.store import Store
    from engine import Role

    store = Store.open(home / "data" / "conversations.sqlite")
    store.save_folders([Folder(1, "Physics")])
    conversation = store.create_conversation("Gravity", folder=1).id
    archived = store.create_conversation("Archived before").id
    store.set_places([(archived, None, True)])
    store.add_message(conversation, None, Role.USER, "Asked otherwise")
    question = store.add_message(conversation, None, Role.USER, QUESTION)
    stopped = store.add_message(
        conversation, question.id, Role.ASSISTANT, ANSWER, MessageState.STOPPED, model="Tiny"
    )
    store.mark_message(stopped.id, [AdapterMark("pirate-speech", 0.8, "5f3a")])
    second = store.add_message(conversation, stopped.id, Role.USER, "And on the moon?")
    store.add_message(
        conversation, second.id, Role.ASSISTANT, "A sixth", MessageState.STOPPED, model="Tiny"
    )
    store.close()


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
        create_conversation(home)
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
            walk = [python, "-W", "ignore", __file__, "--walk", "pages" if pages else "tree"]
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
    parser.add_argument("--walk", choices=["pages", "tree"])
    options = parser.parse_args()
    if options.walk:
        return walk(pages=options.walk == "pages")
    if missing():
        print(f"missing: {', '.join(missing())}", file=sys.stderr)
        return 2
    statuses, found = check(options.quits)
    crashes = [status for status in statuses if status]
    print(
        f"{len(statuses)} quits, {len(crashes)} crashes {[signal_name(status) for status in crashes]}"
    )
    print(f"{found['items']} items, {found['controls']} controls on {', '.join(found['pages'])}")
    for problem in found["problems"]:
        print(f"  {problem}")
    return 1 if crashes or found["problems"] else 0


def signal_name(status: int) -> str:
    """The signal that ended a process, or its exit status, as text."""
    return signal.Signals(-status).name if status < 0 else str(status)


# --- the tree, in the Python with the AT-SPI bindings -------------------------------------------


def walk(*, pages: bool) -> int:
    """Check the accessible tree, of all pages with `pages`, and print the findings as JSON."""
    import gi

    gi.require_version("Atspi", "2.0")
    from gi.repository import Atspi

    Atspi.init()
    checker = TreeChecker(Atspi)
    checker.wait_for_conversation()
    checker.check_page("conversation", whole=True)
    checker.expect(LINKS, Atspi.Role.LINK)
    checker.expect(TOOLS, Atspi.Role.PUSH_BUTTON)
    if pages:
        checker.check_pages()
    print(json.dumps(checker.found))
    return 0


class TreeChecker:
    """Checks the app's accessible tree as a screen reader sees it; collects counts and problems."""

    def __init__(self, atspi: object) -> None:
        self._atspi = atspi
        self.found: dict[str, object] = {"items": 0, "controls": 0, "pages": [], "problems": []}
        role = atspi.Role
        self._pressed = {
            role.PUSH_BUTTON,
            role.TOGGLE_BUTTON,
            role.CHECK_BOX,
            role.RADIO_BUTTON,
            role.LINK,
            role.MENU_ITEM,
        }
        self._controls = self._pressed | {
            role.TEXT,
            role.ENTRY,
            role.SPIN_BUTTON,
            role.SLIDER,
            role.COMBO_BOX,
            role.LIST,
            role.LIST_ITEM,
        }
        self._app = self._wait(self._find_app)

    def _wait(self, find):
        limit = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < limit:
            found = find()
            if found is not None:
                return found
            time.sleep(0.1)
        raise SystemExit(f"never found: {find.__qualname__}")

    def _find_app(self):
        desktop = self._atspi.get_desktop(0)
        apps = [desktop.get_child_at_index(n) for n in range(desktop.get_child_count())]
        return next((app for app in apps if app and app.get_name() == "Tokonoma"), None)

    def items(self, top=None, path=()):
        """Every item below `top`, with the names of its ancestors."""
        top = top or self._app
        for number in range(top.get_child_count()):
            item = top.get_child_at_index(number)
            if item is None:
                self.found["problems"].append(f"{'/'.join(path)}: child {number} does not exist")
                continue
            yield item, path
            yield from self.items(item, (*path, item.get_name() or item.get_role_name()))

    def showing(self, item):
        """Whether an item has the state SHOWING."""
        return item.get_state_set().contains(self._atspi.StateType.SHOWING)

    def named(self, name, role=None):
        """Items with this name that are showing, or are in the conversation."""
        return [
            item
            for item, path in self.items()
            if item.get_name() == name
            and (role is None or item.get_role() == role)
            and (self.showing(item) or CONVERSATION in path)
        ]

    def press(self, item):
        """Perform an item's first action."""
        if not item.do_action(0):
            self.found["problems"].append(f"{item.get_name()}: its action failed")

    # --- checking -------------------------------------------------------------------------------

    def check_page(self, page, *, whole=False):
        """Check all showing items; with `whole` also the rest of the conversation."""
        self.found["pages"].append(page)
        for item, path in self.items():
            self.found["items"] += 1
            if self.showing(item) or (whole and CONVERSATION in path):
                self._check(item, f"{page}: {'/'.join(path[-3:])}")

    def _check(self, item, place):
        states, types = item.get_state_set(), self._atspi.StateType
        role = item.get_role()
        label = f"{place}: {item.get_role_name()} {item.get_name()[:40]!r}"
        focusable = states.contains(types.FOCUSABLE)
        if role not in self._controls and not focusable:
            return
        self.found["controls"] += 1
        problems = self.found["problems"]
        if not item.get_name():
            problems.append(f"{label} has no name")
        if role in (self._atspi.Role.INVALID, self._atspi.Role.UNKNOWN, self._atspi.Role.FILLER):
            problems.append(f"{label} has no role")
        if role in self._pressed and states.contains(types.SENSITIVE):
            actions = [item.get_action_name(n) for n in range(item.get_n_actions())]
            if not any(name and name != "SetFocus" for name in actions):
                problems.append(f"{label} has no action: {actions}")

    def expect(self, names, role):
        """Report a problem for each name with which no item of this role begins."""
        existing = [
            item.get_name()
            for item, path in self.items()
            if item.get_role() == role and CONVERSATION in path
        ]
        for name in names:
            if not any(found.startswith(name) for found in existing):
                self.found["problems"].append(
                    f"the conversation has no {role.value_nick} {name!r}: {existing}"
                )

    # --- navigation -----------------------------------------------------------------------------

    def wait_for_conversation(self):
        """Wait until all of the conversation is laid out."""
        links = self._atspi.Role.LINK
        self._wait(lambda: True if self.named("cell", links) else None)

    def check_pages(self):
        """Open each page and panel by the action of its button, and check it."""
        for button, page in (
            ("Edit and send again", "editor"),
            ("Cancel", ""),
            ("Model: Choose a model", "picker"),
            ("Models (Ctrl+M)", "models"),
            ("Archived", "archive"),
            ("Settings (Ctrl+,)", "settings"),
            ("Chat settings (Ctrl+Shift+O)", "chat settings"),
            ("Keyboard shortcuts (F1)", "shortcuts"),
        ):
            role = self._atspi.Role.PUSH_BUTTON
            found = self.named(button, role)
            if not found:
                self.found["problems"].append(f"no button {button!r} opens the page {page}")
                continue
            self.press(found[0])
            time.sleep(0.7)
            if page:
                self.check_page(page)


if __name__ == "__main__":
    sys.exit(main())
