"""What one row of the page of models shows, and what can be done with it: plain values.

The page turns its state into these, the list keeps those that can be seen on the screen, and a row
only draws one: so thousands of rows cost no more than the dozen that are visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Verb(Enum):
    """Everything a row can ask for."""

    USE = "use"
    CANCEL_LOAD = "cancel load"
    UNLOAD = "unload"
    DOWNLOAD = "download"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    UNLINK = "unlink"
    SHOW_FOLDER = "show folder"
    DEFAULTS = "defaults"
    OPEN_FILE = "open file"
    ADD_FOLDER = "add folder"
    REMOVE_FOLDER = "remove folder"
    SEARCH = "search"
    OPEN_REPOSITORY = "open repository"
    OPEN_LINK = "open link"
    JUMP = "jump"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: what its button says, and about what."""

    verb: Verb
    text: str
    about: object = None  # Path, Offer, id, address: what the verb needs
    icon: str = ""
    name: str = ""  # for screen readers; empty: the text


@dataclass(frozen=True, slots=True)
class Meter:
    """A thin bar with words over it."""

    share: float
    words: str
    tip: str = ""
    tone: str = "secondary"
    under: str = ""  # a second line of words, under the bar


@dataclass(frozen=True, slots=True)
class RowView:
    """One row; what is empty is not there."""

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
    meter: Meter | None = None
    progress: float | None = None  # of what is under way
    action: Action | None = None  # the one thing
    status: str = ""  # in the action's place
    icons: tuple[Action, ...] = ()
    menu: tuple[Action, ...] = ()
    indent: int = 0
    ruled: bool = True  # whether a hairline closes it


@dataclass(frozen=True, slots=True)
class HeadingView:
    """The heading of a section, or of a family in it."""

    key: str
    text: str
    detail: str = ""
    links: tuple[Action, ...] = ()
    small: bool = False


class LaterView(Protocol):
    """A row whose words are put together only when it can be seen; equal to one that says the same."""

    @property
    def key(self) -> str:
        """As of the row it becomes."""
        ...

    def made(self) -> RowView:
        """The row."""
        ...


View = RowView | HeadingView | LaterView
