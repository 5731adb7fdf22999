"""Runs the app under a screen reader's bus: counts crashes at quitting, and checks the whole tree.

`python -m tests.drivers.access_check [--quits 20]` from the repository's root. It starts its own X server,
session bus and AT-SPI bus with `--screen-reader=1`, so it needs Xvfb, dbus-daemon, xdotool,
at-spi2-core, and a Python with the Atspi bindings (`gi`), which then runs this file with `--walk`.
Exits 1 when a quit crashed or a control has no name, no role or no action.
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

ROOT = Path(__file__).parents[2]
LAUNCHERS = [
    Path(folder) / "at-spi-bus-launcher" for folder in ("/usr/libexec", "/usr/lib/at-spi2-core")
]
PROGRAMS = ("Xvfb", "dbus-daemon", "xdotool")
SECONDS = 60.0  # for the window to come, or the app to end
STAYS = "Conversation"  # the list whose items count also where they are scrolled out of sight

QUESTION = "What is gravity?"
ANSWER = (
    "<think>Short.</think>A force; [read on](https://example.org/force) or "
    "[write](mailto:a@example.org).\n\n| Where |\n|---|\n| [cell](https://example.org/cell) |\n\n"
    "```python\nprint(9.81)\n```\n"
)
LINKS = ["read on", "write", "cell"]
TOOLS = [  # of the question, of the answer that was stopped, and of the one below it
    "Copy as Markdown",
    "Edit and send again",
    "Previous version",
    "Next version",
    "Written with pirate-speech at 0.80",
    "Continue this answer",
    "Answer again",
    "Answer again without adapters",
    "Copy code",
    "Thought",
]


# --- the part that starts things ----------------------------------------------------------------


def missing() -> list[str]:
    """The programs this needs and does not find."""
    found = [name for name in PROGRAMS if shutil.which(name) is None]
    if not any(path.exists() for path in LAUNCHERS):
        found.append("at-spi-bus-launcher")
    if reader() is None:
        found.append("a Python with gi and Atspi 2.0")
    return found


@cache
def reader() -> str | None:
    """A Python that has the bindings of AT-SPI; the app's own need not."""
    asked = "import gi; gi.require_version('Atspi', '2.0'); from gi.repository import Atspi"
    for python in (sys.executable, "/usr/bin/python3"):
        if Path(python).exists():
            done = subprocess.run([python, "-c", asked], capture_output=True, check=False)
            if done.returncode == 0:
                return python
    return None


@contextmanager
def running(
    command: list[str], environment: dict[str, str], **pipes: object
) -> Iterator[subprocess.Popen[str]]:
    """A helper process that ends with the block."""
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
    """The environment of an X server, a session bus and an AT-SPI bus, all fresh."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="access-"))
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("QT_QPA_PLATFORM", "WAYLAND_DISPLAY", "AT_SPI_BUS_ADDRESS")
        } | {"XDG_RUNTIME_DIR": folder}
        out, into = os.pipe()
        server = [
            "Xvfb",
            "-displayfd",
            str(into),
            "-screen",
            "0",
            "1400x1000x24",
            "-nolisten",
            "tcp",
        ]
        stack.enter_context(running(server, environment, pass_fds=(into,)))
        os.close(into)
        with os.fdopen(out) as told:
            environment["DISPLAY"] = f":{told.readline().strip()}"
        bus = ["dbus-daemon", "--session", "--nofork", "--print-address"]
        daemon = stack.enter_context(running(bus, environment, stdout=subprocess.PIPE))
        assert daemon.stdout is not None
        environment["DBUS_SESSION_BUS_ADDRESS"] = daemon.stdout.readline().strip()
        launcher = next(path for path in LAUNCHERS if path.exists())
        options = ["--launch-immediately", "--a11y=1", "--screen-reader=1"]
        stack.enter_context(running([str(launcher), *options], environment))
        yield environment


def furnish(home: Path) -> None:
    """Put a conversation there whose messages have every control there is."""
    from app.store.store import AdapterMark, MessageState, Store
    from engine import Role

    store = Store.open(home / "data" / "conversations.sqlite")
    told = store.create_conversation("Gravity")
    store.add_message(told.id, None, Role.USER, "Asked otherwise")
    question = store.add_message(told.id, None, Role.USER, QUESTION)
    stopped = store.add_message(
        told.id, question.id, Role.ASSISTANT, ANSWER, MessageState.STOPPED, model="Tiny"
    )
    store.mark_message(stopped.id, [AdapterMark("pirate-speech", 0.8, "5f3a")])
    again = store.add_message(told.id, stopped.id, Role.USER, "And on the moon?")
    store.add_message(told.id, again.id, Role.ASSISTANT, "A sixth of it.", model="Tiny")
    store.close()


def window_of(environment: dict[str, str]) -> str:
    """The number X gave the app's window, once it is on the screen."""
    search = ["xdotool", "search", "--onlyvisible", "--name", "Tokonoma"]
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        done = subprocess.run(search, env=environment, capture_output=True, text=True, check=False)
        if done.stdout.split():
            return done.stdout.split()[0]
        time.sleep(0.2)
    raise SystemExit("the window never came")


def xdotool(environment: dict[str, str], *words: str) -> None:
    """Press keys, or give the window the focus, as the user's hands would."""
    subprocess.run(["xdotool", *words], env=environment, check=True, capture_output=True)


def one_run(environment: dict[str, str], *, pages: bool) -> tuple[int, dict[str, object]]:
    """Start the app, read its tree, quit by its key: the exit status, and what the reader found."""
    with tempfile.TemporaryDirectory(prefix="access-home-") as folder:
        home = Path(folder)
        furnish(home)
        here = environment | {"TOKONOMA_HOME": folder, "QT_QPA_PLATFORM": "xcb"}
        app = subprocess.Popen([sys.executable, "-m", "app"], cwd=ROOT, env=here)
        try:
            xdotool(environment, "windowfocus", "--sync", window_of(environment))
            xdotool(
                environment, "key", "--clearmodifiers", "ctrl+k"
            )  # the list opens by the keyboard
            xdotool(environment, "type", "gravity")
            xdotool(environment, "key", "Return")
            python = reader()
            assert python is not None
            walk = [python, "-W", "ignore", __file__, "--walk", "pages" if pages else "tree"]
            read = subprocess.run(
                walk, env=environment, capture_output=True, text=True, check=False
            )
            if read.returncode:
                raise SystemExit(f"the reader failed:\n{read.stdout}{read.stderr}")
            xdotool(environment, "key", "--clearmodifiers", "ctrl+q")
            status = app.wait(SECONDS)
        finally:
            app.kill()
            app.wait()
        return status, json.loads(read.stdout)


def check(quits: int) -> tuple[list[int], dict[str, object]]:
    """The exit status of each run, and what the first found on all pages."""
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
    """What ended a process, in words."""
    return signal.Signals(-status).name if status < 0 else str(status)


# --- the part that reads, under the Python that has the bindings -----------------------------------


def walk(*, pages: bool) -> int:
    """Read the tree, page by page if asked, and print what was found as JSON."""
    import gi

    gi.require_version("Atspi", "2.0")
    from gi.repository import Atspi

    Atspi.init()
    reading = Reading(Atspi)
    reading.wait_for_conversation()
    reading.read("conversation", whole=True)
    reading.expect(LINKS, Atspi.Role.LINK)
    reading.expect(TOOLS, Atspi.Role.PUSH_BUTTON)
    if pages:
        reading.read_pages()
    print(json.dumps(reading.found))
    return 0


class Reading:
    """What a screen reader finds in the app, and what it misses."""

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

    def _wait(self, ask):
        limit = time.monotonic() + SECONDS
        while time.monotonic() < limit:
            answer = ask()
            if answer is not None:
                return answer
            time.sleep(0.1)
        raise SystemExit(f"never found: {ask.__qualname__}")

    def _find_app(self):
        desktop = self._atspi.get_desktop(0)
        apps = [desktop.get_child_at_index(n) for n in range(desktop.get_child_count())]
        return next((app for app in apps if app and app.get_name() == "Tokonoma"), None)

    def items(self, top=None, path=()):
        """Every item below one, with the names above it."""
        top = top or self._app
        for number in range(top.get_child_count()):
            item = top.get_child_at_index(number)
            if item is None:
                self.found["problems"].append(f"{'/'.join(path)}: child {number} is not there")
                continue
            yield item, path
            yield from self.items(item, (*path, item.get_name() or item.get_role_name()))

    def showing(self, item):
        """Whether an item is on the screen."""
        return item.get_state_set().contains(self._atspi.StateType.SHOWING)

    def named(self, name, role=None):
        """Items of a name that are on the screen, and, in the conversation, beyond it."""
        return [
            item
            for item, path in self.items()
            if item.get_name() == name
            and (role is None or item.get_role() == role)
            and (self.showing(item) or STAYS in path)
        ]

    def press(self, item):
        """Use an item by its first action."""
        if not item.do_action(0):
            self.found["problems"].append(f"{item.get_name()}: its action was refused")

    # --- checking -------------------------------------------------------------------------------

    def read(self, page, *, whole=False):
        """Check everything that can be seen now; of the conversation everything there is."""
        self.found["pages"].append(page)
        for item, path in self.items():
            self.found["items"] += 1
            if self.showing(item) or (whole and STAYS in path):
                self._check(item, f"{page}: {'/'.join(path[-3:])}")

    def _check(self, item, place):
        states, types = item.get_state_set(), self._atspi.StateType
        role = item.get_role()
        said = f"{place}: {item.get_role_name()} {item.get_name()[:40]!r}"
        focusable = states.contains(types.FOCUSABLE)
        if role not in self._controls and not focusable:
            return
        self.found["controls"] += 1
        problems = self.found["problems"]
        if not item.get_name():
            problems.append(f"{said} has no name")
        if role in (self._atspi.Role.INVALID, self._atspi.Role.UNKNOWN, self._atspi.Role.FILLER):
            problems.append(f"{said} has no role")
        if role in self._pressed and states.contains(types.SENSITIVE):
            actions = [item.get_action_name(n) for n in range(item.get_n_actions())]
            if not any(name and name != "SetFocus" for name in actions):
                problems.append(f"{said} has no action: {actions}")

    def expect(self, names, role):
        """These have to be there; the first of each is found by the beginning of its name."""
        there = [
            item.get_name()
            for item, path in self.items()
            if item.get_role() == role and STAYS in path
        ]
        for name in names:
            if not any(found.startswith(name) for found in there):
                self.found["problems"].append(
                    f"the conversation has no {role.value_nick} {name!r}: {there}"
                )

    # --- going about ----------------------------------------------------------------------------

    def wait_for_conversation(self):
        """Wait until all of the conversation is laid out."""
        links = self._atspi.Role.LINK
        self._wait(lambda: True if self.named("cell", links) else None)

    def read_pages(self):
        """Open each page and panel by the action of its button, and check it."""
        for button, page in (
            ("Edit and send again", "editor"),
            ("Cancel", ""),
            ("Model: Choose a model", "picker"),
            ("Models (Ctrl+M)", "models"),
            ("Settings (Ctrl+,)", "settings"),
            ("Adapters (Ctrl+J)", "adapters"),
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
                self.read(page)


if __name__ == "__main__":
    sys.exit(main())
