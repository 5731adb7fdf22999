"""The table of actions: id, text, keyboard shortcuts and group in the shortcut list.

The window makes one `QAction` per row, and the shortcut list shows the same rows. `keys` are Qt's
portable names, in which Ctrl means Command on macOS; `standard` is a Qt standard key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Action:
    """A command of the window with its keyboard shortcuts."""

    id: str
    text: str
    keys: tuple[str, ...] = ()
    mac_keys: tuple[str, ...] = ()  # instead of `keys` on macOS, where the system has those
    standard: str = ""  # a name of QKeySequence.StandardKey; its keys come first
    group: str = "Chat"


class OtherKey(NamedTuple):
    """A key that one widget handles itself."""

    group: str
    text: str
    key: str


ACTIONS = (
    Action("new", "New chat", standard="New"),
    Action("presets", "Presets", ("Ctrl+Shift+K",)),
    Action("collections", "Collections of documents", ("Ctrl+Shift+B",)),
    Action("undo", "Undo the last deletion or move", standard="Undo"),
    Action("rename", "Rename the chat", ("F2",)),
    Action("panel", "Chat settings", ("Ctrl+Shift+O",)),
    Action("search", "Search chats", ("Ctrl+K",)),
    Action("prompts", "Saved prompts", ("Ctrl+Shift+S",)),
    Action("attach", "Attach files", ("Ctrl+Shift+A",)),
    Action("attach_folder", "Attach a folder", ("Ctrl+Shift+D",)),
    Action("screenshot", "Take a screenshot", ("Ctrl+Shift+X",)),
    Action("find", "Find in this chat", standard="Find"),
    Action("find_next", "Next match", ("F3",), standard="FindNext"),
    Action("find_previous", "Previous match", ("Shift+F3",), standard="FindPrevious"),
    Action("regenerate", "Answer again", ("Ctrl+R",), group="Answer"),
    Action("consent", "Answer what a tool asks", ("Ctrl+Shift+J",), group="Answer"),
    Action("copy_answer", "Copy the last answer", ("Ctrl+Shift+C",), group="Answer"),
    Action("model", "Choose a model", ("Ctrl+L",), group="Model"),
    Action("open", "Open a model file", standard="Open", group="Model"),
    Action("library", "Manage models", ("Ctrl+M",), ("Ctrl+Shift+M",), group="Model"),
    Action("adapters", "Adapters of the chat", ("Ctrl+J",), group="Model"),
    Action("sidebar", "Show or hide the sidebar", ("Ctrl+B",), group="Window"),
    Action("zoom_in", "Larger text", ("Ctrl+=",), standard="ZoomIn", group="Window"),
    Action("zoom_out", "Smaller text", standard="ZoomOut", group="Window"),
    Action("zoom_reset", "Normal text size", ("Ctrl+0",), group="Window"),
    Action("settings", "Settings", ("Ctrl+,",), group="Window"),
    Action("theme", "Switch theme", ("Ctrl+Shift+L",), group="Window"),
    Action("performance", "Performance", ("Ctrl+Shift+P",), group="Window"),
    Action("activity", "Activity of tools", ("Ctrl+Shift+T",), group="Window"),
    Action("connections", "Connections", ("Ctrl+Shift+N",), group="Window"),
    Action("shortcuts", "Keyboard shortcuts", ("Ctrl+/", "F1"), group="Window"),
    Action("quit", "Quit", ("Ctrl+Q",), standard="Quit", group="Window"),
)

# In the shortcut list, but not bound to an action.
OTHER_KEYS = (
    OtherKey("Answer", "Stop the answer", "Esc"),
    OtherKey("Answer", "Keep the edited answer", "Ctrl+Return"),
    OtherKey("Chat", "Send", "Return"),
    OtherKey("Chat", "New line", "Shift+Return"),
    OtherKey("Chat", "Insert a saved prompt (in an empty field)", "/"),
    OtherKey("Chat", "Name or attach a file, or use a collection", "@"),
    OtherKey("Chat", "Edit your last message (in an empty field)", "Up"),
    OtherKey("Chat", "Delete what is selected (in the sidebar)", "Del"),
)
