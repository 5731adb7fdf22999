"""A chat as a row of the list, its folder, a deleted chat, and a search result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from app.domain.chat_settings import NO_SETTINGS, PARTS, ChatSettings

_NOTHING = MappingProxyType[str, Any]({})


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row of the list of conversations."""

    id: int
    title: str
    created: float  # seconds since 1970
    updated: float  # seconds since 1970, of the last message started or ended
    branch_tip: int | None  # last message of the shown branch
    settings: ChatSettings = NO_SETTINGS
    folder: int | None = None  # id of its folder
    pinned: bool = False  # listed first
    archived: bool = False  # not listed, but found by search


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of chats, perhaps in another folder."""

    id: int
    name: str
    parent: int | None = None  # id of the folder it is in
    instructions: str | None = None  # of its chats that have none; None: as in its parent
    preset: int | None = None  # id of the preset that its new chats begin with
    position: float = 0.0  # among its siblings


BUILT_IN = 1000  # presets of the app have ids up to this; `new_id` makes larger ones


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings with a name: all parts of them, or some."""

    id: int
    name: str
    settings: ChatSettings = NO_SETTINGS
    parts: frozenset[str] = frozenset(PARTS)  # of `PARTS`: those that it sets
    description: str = ""
    greeting: str = ""  # the first message of a new chat, by the model
    greetings: tuple[str, ...] = ()  # other ones: versions of that message
    hidden: bool = False  # one of the app that the user deleted
    unknown: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)  # keys of a newer version

    @property
    def built_in(self) -> bool:
        """Whether it is one of the app's, perhaps changed by the user."""
        return 0 < self.id <= BUILT_IN


KEEP_DELETED_SECONDS = 30 * 24 * 3600  # how long deleted conversations can be restored


@dataclass(frozen=True, slots=True)
class TrashedConversation:
    """A deleted conversation."""

    id: int
    title: str
    deleted: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class Hit:
    """The best message of a conversation that was found; one found by its title has none."""

    message: int
    snippet: str
