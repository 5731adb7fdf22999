"""View models of the model library: rows, headings, memory bars and actions as plain values.

The page builds them from its states, the list realises those in the viewport, and a row widget
shows one: thousands of rows cost no more than the dozen that are visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Verb(Enum):
    """The kind of an action; the page maps each to a signal."""

    USE = "use"
    SEARCH_WITH = "search documents with"
    CANCEL_LOAD = "cancel load"
    UNLOAD = "unload"
    DOWNLOAD = "download"
    CHOOSE_ENCODER = "choose encoder"
    ADD_PICTURES = "add pictures"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    UNLINK = "unlink"
    SHOW_FOLDER = "show folder"
    DEFAULTS = "defaults"
    DETAILS = "details"
    OPEN_FILE = "open file"
    ADD_FOLDER = "add folder"
    REMOVE_FOLDER = "remove folder"
    SEARCH = "search"
    EVERY_MATCH = "every match"
    OPEN_REPOSITORY = "open repository"
    OPEN_LINK = "open link"
    JUMP = "jump"


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a row: its kind, its button's text and its argument."""

    verb: Verb
    text: str
    about: object = None  # the argument of the verb: Path, Offer, id or address
    icon: str = ""
    name: str = ""  # accessible name; empty: the text


@dataclass(frozen=True, slots=True)
class Option:
    """A check box of a row: whether it is checked, and the action that changes that."""

    checked: bool
    action: Action


@dataclass(frozen=True, slots=True)
class Meter:
    """A thin bar with a label above it and optional text below it."""

    share: float
    words: str
    tip: str = ""
    tone: str = "secondary"
    under: str = ""  # text below the bar


@dataclass(frozen=True, slots=True)
class RowView:
    """One row; widgets of empty fields are hidden."""

    key: str
    name: str = ""
    name_tip: str = ""
    badge: str = ""
    detail: str = ""
    detail_tip: str = ""
    link: Action | None = None  # after the detail
    note: str = ""
    note_tone: str = "secondary"
    links: tuple[Action, ...] = ()  # after the note
    option: Option | None = None  # below the note
    meter: Meter | None = None
    progress: float | None = None  # of a download or a load, 0 to 1
    action: Action | None = None  # the main action
    status: str = ""  # shown instead of the action
    icons: tuple[Action, ...] = ()
    menu: tuple[Action, ...] = ()
    indent: int = 0
    ruled: bool = True  # whether a separator is drawn below it


@dataclass(frozen=True, slots=True)
class HeadingView:
    """The heading of a section or, if `small`, of a model family inside it."""

    key: str
    text: str
    detail: str = ""
    links: tuple[Action, ...] = ()
    small: bool = False


class DeferredView(Protocol):
    """A row view that is built only when it becomes visible; compares equal by its content."""

    @property
    def key(self) -> str:
        """The key of the built row."""
        ...

    def build(self) -> RowView:
        """The row."""
        ...


View = RowView | HeadingView | DeferredView
