"""Reads and walks the app's accessible tree, as a screen reader and the keyboard reach it.

`access_check.py` runs this file, in the Python that has the AT-SPI bindings (`gi`), beside a
running app: `access_walk.py tree|all FOLDER`, where `FOLDER` has the files to be imported. Prints
what it found as JSON.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402

ROLE, STATE = Atspi.Role, Atspi.StateType
TIMEOUT_SECONDS = 60.0  # for something to appear
QUIET_SECONDS = 0.12  # without an event: the app has handled a key
LATEST_SECONDS = 3.0  # for a key that causes events again and again
MOST_TABS = 400
SAME_STOPS = 8  # after so many the same stops Tab has come around
CONVERSATION = "Chat"  # the list whose items are checked also when scrolled out of view
LINKS = ["[1]", "read on", "write", "cell"]
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
    "1 passage from 1 document",
]
PRESSED = {
    ROLE.PUSH_BUTTON,
    ROLE.TOGGLE_BUTTON,
    ROLE.CHECK_BOX,
    ROLE.RADIO_BUTTON,
    ROLE.LINK,
    ROLE.MENU_ITEM,
    ROLE.CHECK_MENU_ITEM,
    ROLE.TABLE_CELL,  # Qt reports the items of trees so
}
CONTROLS = PRESSED | {
    ROLE.TEXT,
    ROLE.ENTRY,
    ROLE.SPIN_BUTTON,
    ROLE.SLIDER,
    ROLE.COMBO_BOX,
    ROLE.LIST,
    ROLE.LIST_ITEM,
    ROLE.TREE,
}
ROWS = {ROLE.LIST_ITEM, ROLE.TABLE_CELL}  # reached with the arrow keys in what holds them
VALUED = {ROLE.SLIDER, ROLE.SPIN_BUTTON}


class Spot(NamedTuple):
    """What tells one item from another while nothing moves: the bindings have no identity."""

    role: int
    name: str
    place: tuple[int, int, int, int]  # x, y, width, height on the screen


class Screen:
    """Pictures of parts of the X screen, to compare."""

    def __init__(self) -> None:
        self._x = ctypes.CDLL("libX11.so.6")
        self._x.XOpenDisplay.restype = self._x.XGetImage.restype = ctypes.c_void_p
        self._display = ctypes.c_void_p(self._x.XOpenDisplay(None))
        self._x.XDefaultRootWindow.restype = ctypes.c_ulong
        self._root = ctypes.c_ulong(self._x.XDefaultRootWindow(self._display))
        width, height = self._x.XDisplayWidth, self._x.XDisplayHeight
        self._size = width(self._display, 0), height(self._display, 0)

    def part(self, spot: Spot) -> bytes:
        """The pixels of an item, and around it, where the frame of a text field is."""
        x, y, width, height = spot.place
        around = 14 if spot.role == int(ROLE.TEXT) else 3
        left, top = max(x - around, 0), max(y - around, 0)
        right = min(x + width + around, self._size[0])
        bottom = min(y + height + around, self._size[1])
        if right <= left or bottom <= top:
            return b""
        image = self._x.XGetImage(
            self._display, self._root, left, top, right - left, bottom - top, ctypes.c_ulong(-1), 2
        )
        # XImage: width, height, xoffset, format; data; 4 numbers, the depth, the bytes of a line.
        data = ctypes.cast(image + 16, ctypes.POINTER(ctypes.c_void_p)).contents.value
        assert data is not None
        line = ctypes.cast(image + 44, ctypes.POINTER(ctypes.c_int)).contents.value
        pixels = ctypes.string_at(data, line * (bottom - top))
        self._x.XFree(ctypes.c_void_p(data))
        self._x.XFree(ctypes.c_void_p(image))
        return pixels


class Walker:
    """Presses keys, hears the events of a screen reader; collects counts and problems."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {
            "items": 0,
            "controls": 0,
            "stops": 0,
            "pages": [],
            "problems": [],
            "heard": {},
        }
        self.events: list[tuple[str, Any]] = []  # "focus" and the item, "said" and the words
        self._listener = Atspi.EventListener.new(self._on_event)
        self._listener.register("object:state-changed:focused")
        self._listener.register("object:announcement")
        self._loop = GLib.MainContext.default()
        self.screen = Screen()
        self.app = self.wait(self._find_app)

    # --- the tree -------------------------------------------------------------------------------

    def wait(self, find: Callable[[], Any]) -> Any:
        """Wait until `find` returns something."""
        limit = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < limit:
            if (found := find()) is not None:
                return found
            time.sleep(0.1)
        raise SystemExit(f"never found: {find.__qualname__}")

    def _find_app(self) -> Any:
        desktop = Atspi.get_desktop(0)
        apps = [desktop.get_child_at_index(n) for n in range(desktop.get_child_count())]
        return next((app for app in apps if app and app.get_name() == "Tokonoma"), None)

    def items(self, top: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple]]:
        """Every item below `top`, with the names of its ancestors."""
        top = top or self.app
        for number in range(top.get_child_count()):
            item = top.get_child_at_index(number)
            if item is None:
                self.problem(f"{'/'.join(path)}: child {number} does not exist")
                continue
            yield item, path
            yield from self.items(item, (*path, item.get_name() or item.get_role_name()))

    def problem(self, words: str) -> None:
        """Report a problem."""
        self.found["problems"].append(words)

    def named(self, name: str, role: Any = None) -> list[Any]:
        """Items with this name that are showing, or are in the conversation."""
        return [
            item
            for item, path in self.items()
            if item.get_name() == name
            and (role is None or item.get_role() == role)
            and (has(item, STATE.SHOWING) or CONVERSATION in path)
        ]

    def scope(self, name: str) -> Any:
        """The innermost pane, group, menu or dialog of this name that is showing."""
        kinds = {ROLE.PANEL, ROLE.DIALOG, ROLE.FILLER, ROLE.FRAME, ROLE.GROUPING, ROLE.POPUP_MENU}
        found = [item for item in self.named(name) if item.get_role() in kinds]
        if not found:
            self.problem(f"nothing named {name!r} is showing")
        return found[-1] if found else None

    # --- checking -------------------------------------------------------------------------------

    def check_page(self, page: str, *, whole: bool = False) -> None:
        """Check all showing items; with `whole` also the rest of the conversation."""
        self.found["pages"].append(page)
        for item, path in self.items():
            self.found["items"] += 1
            if has(item, STATE.SHOWING) or (whole and CONVERSATION in path):
                self._check(item, f"{page}: {'/'.join(path[-3:])}")

    def _check(self, item: Any, place: str) -> None:
        role = item.get_role()
        label = f"{place}: {item.get_role_name()} {item.get_name()[:40]!r}"
        if role not in CONTROLS and not has(item, STATE.FOCUSABLE):
            return
        self.found["controls"] += 1
        if not item.get_name():
            self.problem(f"{label} has no name")
        if role in (ROLE.INVALID, ROLE.UNKNOWN, ROLE.FILLER):
            self.problem(f"{label} has no role")
        if role in VALUED and item.get_value_iface() is None:
            self.problem(f"{label} has no value")
        if role in (ROLE.TEXT, ROLE.ENTRY) and item.get_text_iface() is None:
            self.problem(f"{label} has no text")
        if role in PRESSED and has(item, STATE.SENSITIVE):
            actions = [item.get_action_name(n) for n in range(item.get_n_actions())]
            if not any(name and name != "SetFocus" for name in actions):
                self.problem(f"{label} has no action: {actions}")

    def expect(self, names: list[str], role: Any) -> None:
        """Report a problem for each name with which no item of this role begins."""
        existing = [
            item.get_name()
            for item, path in self.items()
            if item.get_role() == role and CONVERSATION in path
        ]
        for name in names:
            if not any(found.startswith(name) for found in existing):
                self.problem(f"the conversation has no {role.value_nick} {name!r}: {existing}")

    # --- keys -----------------------------------------------------------------------------------

    def _on_event(self, event: Any) -> None:
        if event.type.startswith("object:announcement"):
            self.events.append(("said", str(event.any_data)))
        elif event.detail1:
            self.events.append(("focus", event.source))

    def settle(self) -> None:
        """Wait until the app sends no more events."""
        end = time.monotonic() + LATEST_SECONDS
        quiet = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < min(quiet, end):
            count = len(self.events)
            while self._loop.iteration(False):
                pass
            if len(self.events) != count:
                quiet = time.monotonic() + QUIET_SECONDS
            time.sleep(0.01)

    def key(self, *names: str, slow: float = 0.0) -> None:
        """Press keys, and wait until they are handled; `slow`: seconds for an animation."""
        subprocess.run(["xdotool", "key", "--clearmodifiers", *names], check=True)
        time.sleep(slow)
        self.settle()

    def come_back(self) -> None:
        """Give the window the focus after a dialog, as a window manager does."""
        search = ["xdotool", "search", "--onlyvisible", "--name", "Tokonoma", "windowfocus"]
        subprocess.run(search, check=False, capture_output=True)
        self.settle()

    def type(self, text: str) -> None:
        """Type a text."""
        subprocess.run(["xdotool", "type", "--delay", "8", text], check=True)
        self.settle()

    @property
    def focus(self) -> Any:
        """The item that was heard last to have the focus."""
        return next((item for kind, item in reversed(self.events) if kind == "focus"), None)

    def at(self, name: str) -> bool:
        """Whether the focused item's name begins so."""
        return self.focus is not None and name_of(self.focus).startswith(name)

    def seek(self, name: str, key: str = "Tab", most: int = MOST_TABS) -> bool:
        """Press a key until the focus is on an item whose name begins so; whether it came there."""
        for _ in range(most):
            if self.at(name):
                return True
            self.key(key)
        heard = spoken(self.focus) if self.focus else None
        self.problem(f"{key} never reaches {name!r}; the focus is on {heard!r}")
        return False

    def expect_focus(self, name: str, after: str) -> None:
        """Report a problem unless the focus comes to an item whose name begins so."""
        limit = time.monotonic() + LATEST_SECONDS
        while not self.at(name) and time.monotonic() < limit:
            self.settle()
        if not self.at(name):
            heard = spoken(self.focus) if self.focus else None
            self.problem(f"after {after} the focus is on {heard!r}, not on {name!r}")

    def hear(self, label: str) -> None:
        """Note what a screen reader says about the focused item."""
        self.found["heard"][label] = spoken(self.focus) if self.focus else ""

    def check_tabs(self, page: str, scope: str, *, is_modal: bool = True) -> None:
        """Tab once around: every control is reached, shows the focus, and is left again.

        `scope` is the name of the part whose controls are to be reached; "": the whole window.
        """
        self.settle()
        seen: list[tuple[Any, Spot, Spot | None]] = []
        before: tuple[Spot, bytes] | None = None
        while len(seen) < MOST_TABS:
            if (item := self.focus) is None:
                break
            spot = spot_of(item)
            if before is not None and before[0] == spot and spot.name == scope:
                break  # a card without controls
            if before is not None and before[0] == spot:
                self.problem(f"{page}: Tab does not leave {spot.name!r}")
                break
            same = before is not None and before[1] == self.screen.part(before[0])
            if before is not None and same and not self._shows_focus(seen[-1][0]):
                self.problem(f"{page}: the focus on {before[0].name[:40]!r} is not visible")
            if _is_round([each for _, each, _ in seen] + [spot]):
                break
            if not has(item, STATE.SHOWING):
                self.problem(f"{page}: Tab goes to {spot.name[:40]!r}, which is not showing")
            seen.append((item, spot, parent_of(item)))
            self.found["stops"] += 1
            before = spot, self.screen.part(spot)
            self.key("Tab")
        else:
            self.problem(f"{page}: Tab does not come around in {MOST_TABS} steps")
        top = self.scope(scope) if scope else self.app
        if top is not None:
            self._check_reached(page, top, seen, is_modal=is_modal)

    def _shows_focus(self, item: Any) -> bool:
        """Whether the item before the focused one shows the focus, now that nothing scrolls."""
        self.key("shift+Tab", slow=0.2)
        spot = spot_of(item)
        with_focus = self.screen.part(spot)
        self.key("Tab", slow=0.2)
        return with_focus != self.screen.part(spot)

    def _check_reached(
        self, page: str, top: Any, seen: list[tuple[Any, Spot, Spot | None]], *, is_modal: bool
    ) -> None:
        """Report controls of a page that Tab did not reach."""
        names = {(spot.role, spot.name) for _, spot, _ in seen}
        groups = {
            setting_of(spot.name) for _, spot, _ in seen if spot.role == int(ROLE.RADIO_BUTTON)
        }
        lists = {parent for _, spot, parent in seen if spot.role in map(int, ROWS) and parent}
        names |= {(parent.role, parent.name) for parent in lists}
        inside: set[tuple[int, str]] = set()
        for item, reached in self._with_reached(top, names):
            inside.add((int(item.get_role()), item.get_name()))
            wanted = has(item, STATE.FOCUSABLE) and has(item, STATE.SENSITIVE)
            if not wanted or not has(item, STATE.SHOWING) or item.get_role() not in CONTROLS:
                continue
            radio = item.get_role() == ROLE.RADIO_BUTTON and setting_of(item.get_name()) in groups
            if not reached and not radio:
                self.problem(f"{page}: Tab does not reach {item.get_name()[:40]!r}")
        outside = [
            spot.name
            for _, spot, _ in seen
            if (spot.role, spot.name) not in inside and spot.name != top.get_name()
        ]
        if is_modal and outside:
            self.problem(f"{page}: Tab leaves it, to {outside[:3]}")

    def _with_reached(self, top: Any, names: set, reached: bool = False) -> Iterator:
        """Every item below `top`, and whether it or an item around it was reached."""
        for number in range(top.get_child_count()):
            item = top.get_child_at_index(number)
            if item is not None and has(item, STATE.SHOWING):
                here = reached or (int(item.get_role()), item.get_name()) in names
                yield item, here
                yield from self._with_reached(item, names, here)


def _is_round(spots: list[Spot]) -> bool:
    """Whether the last stops were made before: rows that scroll repeat a few names and places."""
    last, count = spots[-SAME_STOPS:], len(spots) - SAME_STOPS
    return any(spots[at : at + SAME_STOPS] == last for at in range(count))


def has(item: Any, state: Any) -> bool:
    """Whether an item has a state."""
    return item.get_state_set().contains(state)


def name_of(item: Any) -> str:
    """The name of an item; "" once it is deleted."""
    try:
        return item.get_name() or ""
    except GLib.GError:
        return ""


def spot_of(item: Any) -> Spot:
    """The role, name and place of an item."""
    box = item.get_extents(Atspi.CoordType.SCREEN)
    place = box.x, box.y, box.width, box.height
    return Spot(int(item.get_role()), item.get_name() or "", place)


def setting_of(name: str) -> str:
    """The setting that a choice belongs to, by its name: "Theme: Dark"."""
    return name.partition(":")[0]


def parent_of(item: Any) -> Spot | None:
    """What tells the item around one from others."""
    parent = item.get_parent()
    return spot_of(parent) if parent else None


def spoken(item: Any) -> str:
    """What a screen reader says about an item: name, role, states, level, value, description."""
    try:
        return _spoken(item)
    except GLib.GError:
        return "(gone)"


def _spoken(item: Any) -> str:
    parts = [item.get_name() or "(no name)", item.get_role_name()]
    for state, words in (
        (STATE.EXPANDED, "expanded"),
        (STATE.COLLAPSED, "collapsed"),
        (STATE.CHECKED, "checked"),
        (STATE.SELECTED, "selected"),
        (STATE.EDITABLE, "editable"),
    ):
        if has(item, state):
            parts.append(words)
    if not has(item, STATE.SENSITIVE):
        parts.append("unavailable")
    if level := (item.get_attributes() or {}).get("level"):
        parts.append(f"level {level}")
    if item.get_text_iface() is not None:
        text = Atspi.Text.get_text(item, 0, -1)
        parts.append(f"text {text!r}")
    elif item.get_value_iface() is not None:
        parts.append(f"value {Atspi.Value.get_current_value(item):g}")
    if words := item.get_description():
        parts.append(f"({words})")
    return ", ".join(parts)


def main() -> int:
    """Walk, and print the findings as JSON."""
    from access_screens import walk_screens

    Atspi.init()
    walker = Walker()
    walker.wait(lambda: True if walker.named("cell", ROLE.LINK) else None)
    walker.check_page("conversation", whole=True)
    walker.expect(LINKS, ROLE.LINK)
    walker.expect(TOOLS, ROLE.PUSH_BUTTON)
    if sys.argv[1] == "all":
        walk_screens(walker, Path(sys.argv[2]))
    print(json.dumps(walker.found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
