"""Reaches each screen of the app with the keyboard alone, and checks it with `access_walk`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gi.repository import Atspi

if TYPE_CHECKING:
    from access_walk import Walker

ROLE, STATE = Atspi.Role, Atspi.StateType
PAGE_SECONDS = 0.6  # for a page or the panel to slide in
MESSAGE = "Message"  # the message field


def walk_screens(w: Walker, folder: Path) -> None:
    """Walk all screens; `folder` has the file to be imported."""
    for screen in (
        _sidebar,
        _row_menu,
        _several,
        _folder_card,
        _export,
        _answer,
        _passages,
        _panel,
        _new_with_preset,
        _presets,
        _prompts,
        _files,
        _collections,
        _archive,
        _language,
        _import,
        _connections,
        _other_pages,
    ):
        screen(w, folder)


def _start(w: Walker) -> None:
    """Put the focus into the message field."""
    for _ in range(4):
        if w.at(MESSAGE) and w.focus.get_role() == ROLE.TEXT:
            return
        w.key("Escape", slow=0.3)
    w.expect_focus(MESSAGE, "Escape")


def _list(w: Walker, row: str) -> None:
    """Put the focus on a row of the sidebar, with the keys that a user would press."""
    _start(w)
    w.key("ctrl+k")
    w.expect_focus("Search all chats", "Ctrl+K")
    w.key("Down", slow=0.2)
    w.key("Home")
    w.seek(row, "Down", 20)


def _menu(w: Walker, words: str, key: str = "Down") -> bool:
    """Open the menu of the focused row, and go to an entry."""
    w.key("Menu", slow=0.3)
    w.key("Down")
    return w.seek(words, key, 20)


def _expect(w: Walker, what: str, *states: Any, level: str = "") -> None:
    """Report what the focused item lacks."""
    item = w.focus
    for state in states:
        if not item.get_state_set().contains(state):
            w.problem(f"{what}: {item.get_name()!r} is not {state.value_nick}")
    if level and (item.get_attributes() or {}).get("level") != level:
        w.problem(f"{what}: the level of {item.get_name()!r} is {item.get_attributes()}")


# --- the sidebar --------------------------------------------------------------------------------


def _expect_said(w: Walker, before: int, words: str, what: str) -> None:
    """Check that the screen reader was told these words since so many events."""
    said = [said for kind, said in w.events[before:] if kind == "said"]
    if not any(words in each for each in said):
        w.problem(f"{what} says {said}, not {words!r}")
    w.found["heard"][what] = said


def _sidebar(w: Walker, _: Path) -> None:
    w.key("ctrl+k")  # the first focus that is heard
    _list(w, "Physics")
    w.check_page("sidebar")
    _expect(w, "sidebar", STATE.EXPANDABLE, STATE.EXPANDED, STATE.SELECTED, level="1")
    w.hear("a folder")
    w.key("Left")
    _expect(w, "sidebar", STATE.EXPANDABLE, STATE.COLLAPSED, level="1")
    w.hear("a closed folder")
    w.key("Right")
    _expect(w, "sidebar", STATE.EXPANDED)
    w.key("Down")
    w.hear("a folder in it")
    _expect(w, "sidebar", STATE.EXPANDED, level="2")
    w.key("Down")
    w.hear("a chat in that folder")
    _expect(w, "sidebar", STATE.SELECTABLE, STATE.SELECTED, level="3")
    w.key("Left")
    w.expect_focus("Optics", "Left on a chat in a folder")
    w.key("F2")
    w.expect_focus("Name of the folder", "F2")
    w.key("Escape", slow=0.3)
    w.expect_focus("Optics", "Escape in the name of a folder")
    _start(w)
    w.check_tabs("window", "", is_modal=False)


def _row_menu(w: Walker, _: Path) -> None:
    _list(w, "Rainbows")
    if _menu(w, "Move to"):
        w.check_page("row menu")
        w.key("Right", slow=0.3)
        w.seek("Physics", "Down", 10)
        w.check_page("submenu of the row menu")
        w.hear("an entry of the menu of places")
        w.key("Left", slow=0.3)
    w.key("Escape", slow=0.3)
    w.expect_focus("Rainbows", "Escape in the menu of a row")


def _several(w: Walker, _: Path) -> None:
    _list(w, "Rainbows")
    w.key("shift+Down")
    w.hear("the second of two selected chats")
    tree = w.focus.get_parent()
    if (count := Atspi.Selection.get_n_selected_children(tree)) != 2:
        w.problem(f"several: {count} rows are selected, not 2")
    if _menu(w, "Delete 2 chats", "Up"):
        w.check_page("menu of several rows")
    w.key("Escape", slow=0.3)
    _start(w)


def _folder_card(w: Walker, _: Path) -> None:
    _list(w, "Physics")
    if _menu(w, "Folder settings"):
        w.key("Return", slow=PAGE_SECONDS)
        w.check_page("folder card")
        w.check_tabs("folder card", "Folder")
        w.seek("New chats begin with", most=12)
        _drop_down(w, "folder card", "New chats begin with")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus("Physics", "Escape in the card of a folder")


def _drop_down(w: Walker, page: str, button: str) -> None:
    """Open the menu of a focused button, go down in it, and close it again."""
    w.key("space", slow=0.4)
    w.key("Down")
    if w.focus.get_role() not in (ROLE.MENU_ITEM, ROLE.CHECK_MENU_ITEM, ROLE.RADIO_MENU_ITEM):
        w.problem(f"{page}: {button!r} opens no menu, but {w.focus.get_role_name()!r}")
    w.check_page(f"menu of {button}")
    w.key("Escape", slow=0.3)
    w.expect_focus(button, f"Escape in the menu of {button!r}")


def _export(w: Walker, _: Path) -> None:
    _list(w, "Gravity")
    if _menu(w, "Export"):
        w.key("Right", slow=0.3)
        w.seek("Markdown", "Down", 6)
        w.check_page("menu of formats")
        w.key("Return", slow=PAGE_SECONDS)
        w.check_page("export dialog")
        w.hear("the first field of the export dialog")
        w.key("Escape", slow=PAGE_SECONDS)
        w.come_back()
    w.expect_focus("Gravity", "Escape in the dialog of an export")


# --- a chat -------------------------------------------------------------------------------------


def _answer(w: Walker, _: Path) -> None:
    _list(w, "Gravity")
    w.key("Return", slow=PAGE_SECONDS)
    _start(w)
    w.key("shift+Tab")
    w.seek("Answer, stopped", "Up", 6)
    w.hear("an answer")
    w.seek("Answer again", "Right", 15)
    w.check_page("answer")
    w.seek("Compare", "Right", 10)
    _drop_down_if(w, "Compare")
    w.seek("Answer again", "Left", 10)
    _drop_down_if(w, "Answer again")
    _start(w)


def _passages(w: Walker, _: Path) -> None:
    """Unfold the passages of a question, strike one out, and follow a reference of the answer."""
    _list(w, "Gravity")
    w.key("Return", slow=PAGE_SECONDS)
    _start(w)
    w.key("shift+Tab")
    w.seek("You: notes.txt", "Up", 8)
    w.seek("1 passage", "Right", 4)
    w.key("Return", slow=PAGE_SECONDS)
    _expect(w, "the unfolded row of passages", STATE.EXPANDED)
    w.seek("[1] notes.txt", "Right", 3)
    w.hear("a passage")
    w.seek("Read this passage", "Right", 3)
    w.seek("Strike this passage out", "Right", 3)
    w.check_page("passages")
    w.key("Return", slow=PAGE_SECONDS)
    w.key("Left")
    w.seek("Use this passage again", "Right", 3)
    w.hear("a passage that was struck out")
    w.seek("Answer again with", "Right", 4)
    w.seek("Use this passage again", "Left", 4)
    w.key("Return", slow=PAGE_SECONDS)
    w.seek("Answer, stopped", "Down", 8)
    w.seek("[1]", "Right", 4)
    w.hear("a reference")
    w.key("Return", slow=PAGE_SECONDS)
    w.check_page("the document of a passage")
    w.hear("the document of a passage")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus("[1]", "Escape")
    _start(w)


def _drop_down_if(w: Walker, tool: str) -> None:
    """Open what a focused tool opens, and close it."""
    before = len(w.events)
    w.key("Return", slow=PAGE_SECONDS)
    w.key("Down")
    w.check_page(f"what {tool!r} opens")
    w.hear(f"what {tool!r} opens")
    if len(w.events) == before:
        w.problem(f"{tool!r} opens nothing that is heard")
    w.key("Escape", slow=PAGE_SECONDS)


def _panel(w: Walker, _: Path) -> None:
    _start(w)
    w.key("ctrl+shift+o", slow=PAGE_SECONDS)
    w.expect_focus("Chat settings", "Ctrl+Shift+O")
    w.seek("Temperature")
    w.key("ctrl+a")
    w.type("0.3")
    w.seek("More values")
    w.key("space", slow=0.3)
    w.check_page("chat settings")
    w.check_tabs("chat settings", "Chat settings", is_modal=False)
    w.seek("Temperature")
    w.hear("a changed setting of the chat")
    if "Changed" not in (w.focus.get_description() or ""):
        w.problem("chat settings: a changed setting is not heard to be changed")
    w.seek("Top-p")
    w.hear("a setting that is not changed")
    for button in ("Model: The model in use", "Answer format"):
        if w.seek(button):
            _drop_down(w, "chat settings", button)
    if w.seek("Reset Temperature"):
        w.hear("the button that resets it")
        w.key("space", slow=0.3)
        w.hear("what has the focus after a reset")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the chat settings")


def _new_with_preset(w: Walker, _: Path) -> None:
    _start(w)
    if w.seek("New chat with a preset"):
        _drop_down(w, "new chat", "New chat with a preset")
    _start(w)


def _prompts(w: Walker, _: Path) -> None:
    _start(w)
    w.key("ctrl+shift+s", slow=PAGE_SECONDS)
    w.expect_focus("Saved prompts", "Ctrl+Shift+S")
    w.check_page("saved prompts")
    w.key("Tab")
    w.check_tabs("saved prompts", "Saved prompts")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the saved prompts")
    before = len(w.events)
    w.key("slash", slow=0.3)
    w.check_page("prompt list")
    said = [words for kind, words in w.events[before:] if kind == "said"]
    if not any("Shorten" in words for words in said):
        w.problem(f"a typed slash says {said}, not the first saved prompt")
    w.found["heard"]["a slash in the message field"] = said
    w.key("Return", slow=0.3)
    text = Atspi.Text.get_text(w.focus, 0, -1)
    if text != "Say it in one sentence.":
        w.problem(f"Return in the list of prompts left {text!r}")
    w.key("ctrl+a", "BackSpace")


def _files(w: Walker, folder: Path) -> None:
    """Attach a file, open its text from its chip, name it, and remove it."""
    _start(w)
    w.key("ctrl+shift+a", slow=PAGE_SECONDS)
    w.check_page("attach dialog")
    before = len(w.events)
    w.type(str(folder / "notes.md"))
    w.key("Return", slow=PAGE_SECONDS)
    w.come_back()
    _start(w)
    _wait(
        w,
        lambda: any(
            "3 lines" in i.get_name() or "characters" in i.get_name() for i, _ in w.items()
        ),
    )
    _expect_said(w, before, "notes.md, Markdown", "a file that was read")
    w.check_page("attached file")
    if w.seek("notes.md", "shift+Tab", 12):
        w.hear("the chip of an attached file")
        if "Markdown" not in w.focus.get_name():
            w.problem(f"the chip of a file does not say what it is: {w.focus.get_name()!r}")
        w.key("Return", slow=PAGE_SECONDS)
        w.expect_focus("Text that the model reads", "Enter on the chip of a file")
        w.check_page("card of a file")
        w.check_tabs("card of a file", "File")
        w.key("Escape", slow=PAGE_SECONDS)
        w.expect_focus("notes.md", "Escape in the card of a file")
    _start(w)
    before = len(w.events)
    w.key("at", slow=0.3)
    w.check_page("list of files")
    _expect_said(w, before, "notes.md", "an at sign in the message field")
    w.key("Escape", "BackSpace")
    if w.seek("notes.md", "shift+Tab", 12):
        w.key("Delete", slow=0.4)
        w.expect_focus(MESSAGE, "Delete on the only chip")


def _collections(w: Walker, folder: Path) -> None:
    """Make a collection of a file, use it in the chat, open it from its chip, and delete it."""
    _start(w)
    w.key("ctrl+shift+b", slow=PAGE_SECONDS)
    w.expect_focus("New from a folder", "Ctrl+Shift+B without a collection")
    w.check_page("no collections")
    if w.seek("New from files"):
        w.key("space", slow=PAGE_SECONDS)
        w.check_page("dialog for files of a collection")
        w.type(str(folder / "notes.md"))
        w.key("Return", slow=PAGE_SECONDS)
        w.come_back()
    _wait(w, lambda: any("1 file" in item.get_name() for item, _ in w.items()))
    w.check_page("collections")
    w.check_tabs("collections", "Collections", is_modal=False)
    if w.seek("Folders, files and problems"):
        w.hear("what is in a collection")
    if w.seek("Use in this chat"):
        w.key("space", slow=PAGE_SECONDS)
    _start(w)
    if w.seek("notes.md", "shift+Tab", 12):
        w.hear("the chip of a collection")
        if "collection, 1 file" not in w.focus.get_name():
            w.problem(f"the chip does not say what it is: {w.focus.get_name()!r}")
        w.key("Return", slow=PAGE_SECONDS)
        w.expect_focus("Collections", "Enter on the chip of a collection")
        before = len(w.events)
        w.key("Delete", slow=0.4)
        w.expect_focus("New from a folder", "Delete on the only collection")
        _expect_said(w, before, "was deleted", "a deleted collection")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the collections")


# --- pages --------------------------------------------------------------------------------------


def _presets(w: Walker, _: Path) -> None:
    _start(w)
    w.key("ctrl+shift+k", slow=PAGE_SECONDS)
    w.hear("the page of presets")
    w.check_page("presets")
    w.check_tabs("presets", "Presets", is_modal=False)
    w.seek("Presets")
    w.key("Down", "Up")
    w.key("Return", slow=PAGE_SECONDS)
    w.check_page("preset")
    w.check_tabs("preset", "Presets", is_modal=False)
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus("Writing help", "Escape in a preset")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the presets")


def _archive(w: Walker, _: Path) -> None:
    _start(w)
    if w.seek("Archived"):
        w.key("space", slow=PAGE_SECONDS)
        w.hear("the page of archived chats")
        w.check_page("archive")
        w.check_tabs("archive", "Archived chats", is_modal=False)
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the archive")


def _language(w: Walker, _: Path) -> None:
    _start(w)
    w.key("ctrl+comma", slow=PAGE_SECONDS)
    w.check_page("settings")
    w.check_tabs("settings", "Settings", is_modal=False)
    if w.seek("Language"):
        w.hear("the setting of the language")
        _drop_down(w, "settings", "Language")
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the settings")


def _import(w: Walker, folder: Path) -> None:
    _start(w)
    w.key("ctrl+comma", slow=PAGE_SECONDS)
    if w.seek("Import chats"):
        w.key("space", slow=PAGE_SECONDS)
        w.check_page("file dialog")
        w.type(str(folder / "conversations.json"))
        w.key("Return", slow=PAGE_SECONDS)
        w.come_back()
        _wait(w, lambda: bool(w.named("Import 1 chat")))
        w.check_page("import preview")
        w.hear("the focus in the import preview")
        _hear_dialog(w, "Import chats from ChatGPT")
        w.check_tabs("import preview", "Import chats")
        w.key("Escape", slow=PAGE_SECONDS)
        w.expect_focus("Import chats", "Escape in the preview of an import")
    w.key("Escape", slow=PAGE_SECONDS)


def _hear_dialog(w: Walker, name: str) -> None:
    """Note what a screen reader says when a card opens: its name and what it is about."""
    from access_walk import spoken

    dialogs = [item for item in w.named(name) if item.get_role() == ROLE.DIALOG]
    if not dialogs or "Not imported: 1 attached file" not in (dialogs[0].get_description() or ""):
        w.problem(f"the card {name!r} does not say what is left out")
    w.found["heard"]["the import preview"] = [spoken(item) for item in dialogs]


def _wait(w: Walker, until: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not until() and time.monotonic() < limit:
        w.settle()


def _connections(w: Walker, _: Path) -> None:
    """The page with its server on, and with the editor of an engine."""
    _start(w)
    w.key("ctrl+shift+n", slow=PAGE_SECONDS)
    if w.seek("Let other programs use your models"):
        w.hear("the switch of the server")
        w.key("space", slow=PAGE_SECONDS)
        _wait(w, lambda: bool(w.named("Make a key")))
    if w.seek("Make a key"):
        w.key("space", slow=PAGE_SECONDS)
    if w.seek("Add an engine…"):
        w.key("space", slow=PAGE_SECONDS)
        w.hear("the editor of an engine")
    w.check_page("connections")
    w.check_tabs("connections", "Connections", is_modal=False)
    w.key("Escape", slow=PAGE_SECONDS)  # the editor
    w.key("Escape", slow=PAGE_SECONDS)
    w.expect_focus(MESSAGE, "Escape in the connections")


def _other_pages(w: Walker, _: Path) -> None:
    for keys, page, scope, is_modal in (
        ("ctrl+l", "picker", "Models", True),
        ("ctrl+m", "models", "Models", False),
        ("F1", "shortcuts", "Keyboard shortcuts", True),
        ("ctrl+shift+p", "performance", "Performance", False),
    ):
        _start(w)
        w.key(keys, slow=PAGE_SECONDS)
        w.check_page(page)
        w.check_tabs(page, scope, is_modal=is_modal)
        w.key("Escape", slow=PAGE_SECONDS)
        _start(w)
