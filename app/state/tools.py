"""Observable state of tools: those that there are, calls in progress, consent, and all calls made.

Only `app.chat.tools` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal

from app.state.observable import EMPTY, Observable, ReadOnly, changed

if TYPE_CHECKING:
    from app.domain.tool_activity import Grant, ToolActivity
    from app.domain.tools import ToolSpec


class CallPhase(Enum):
    """What a call without a result does."""

    ASKING = auto()  # it waits for the user's consent
    RUNNING = auto()


class Consent(Enum):
    """What the user answers when a tool is to be called."""

    ONCE = auto()
    CHAT = auto()  # this and later calls in this chat
    ALWAYS = auto()  # this and later calls in all chats
    DENY = auto()


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A call that waits for consent, or is being carried out."""

    conversation: int
    message: int
    call: str  # id of its part
    tool: ToolSpec
    arguments: str  # JSON text on several lines, which the user can edit while it waits
    phase: CallPhase
    changes: tuple[str, ...] = ()  # what it changes or sends, one sentence each
    scope: str = ""  # such as the host that consent is bound to
    output: str = ""  # the end of what it has printed
    began: float = 0.0  # monotonic seconds, when it began to run
    may_always: bool = False  # consent can be for all chats
    differences: tuple[str, ...] = ()  # lines: how the tool was changed since it was allowed
    repeated: bool = False  # it had begun before the app ended: it may have been carried out


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool as the chat's panel shows it."""

    tool: ToolSpec
    tokens: int = 0  # of its description in each prompt; 0: not counted


class PathKind(Enum):
    """What is at a path that tools may use."""

    FILE = auto()
    FOLDER = auto()
    GONE = auto()


class ToolsState(Observable):
    """Observable; each signal is sent after the value has changed."""

    live_changed = Signal(object)  # id of the message
    asked = Signal(object)  # LiveCall: consent is wanted; for screen readers and notifications
    rows_changed = Signal()
    paths_changed = Signal()
    activity_changed = Signal()
    grants_changed = Signal()

    live = ReadOnly[Mapping[tuple[int, str], LiveCall]](EMPTY)  # by message and call
    rows = ReadOnly[tuple[ToolRow, ...]](())  # all tools that there are
    reason = ReadOnly("")  # why the model of the shown chat cannot use tools; "": it can
    paths = ReadOnly[Mapping[Path, PathKind]](EMPTY)  # those that were asked for last
    activity: ReadOnly[tuple[ToolActivity, ...]] = ReadOnly(())  # the last ones, the newest first
    activity_count = ReadOnly(0)  # of all calls
    grants: ReadOnly[tuple[Grant, ...]] = ReadOnly(())
    may_always = ReadOnly[frozenset[str]](frozenset())  # writing tools that can be allowed always

    def of_message(self, message: int) -> Mapping[str, LiveCall]:
        """The calls of a message that have no result, by their ids."""
        return {call: live for (id, call), live in self.live.items() if id == message}

    @property
    def asking(self) -> tuple[LiveCall, ...]:
        """The calls that wait for consent, in the order in which they began to."""
        return tuple(live for live in self.live.values() if live.phase is CallPhase.ASKING)

    # --- changing: app.chat.tools only ----------------------------------------------------------

    def set_live(self, live: LiveCall) -> None:
        """Show a call that waits or runs."""
        key = live.message, live.call
        before = self.live.get(key)
        self._live = changed(self.live, key, live)
        self.live_changed.emit(live.message)
        if live.phase is CallPhase.ASKING and before is None:
            self.asked.emit(live)

    def end_live(self, message: int, call: str) -> None:
        """Remove a call: it has a result, or was stopped."""
        if (message, call) in self.live:
            self._live = changed(self.live, (message, call), None)
            self.live_changed.emit(message)

    def set_rows(self, rows: Sequence[ToolRow], reason: str) -> None:
        """Set the tools, and why the model of the shown chat cannot use them."""
        self._set(self.rows_changed, rows=tuple(rows), reason=reason)

    def set_paths(self, paths: Mapping[Path, PathKind]) -> None:
        """Set what is at the paths of the shown chat."""
        self._set(self.paths_changed, paths=MappingProxyType(dict(paths)))

    def set_activity(self, activity: Sequence[ToolActivity], count: int) -> None:
        """Set the last calls, and how many there are in all."""
        self._set(self.activity_changed, activity=tuple(activity), activity_count=count)

    def set_grants(self, grants: Sequence[Grant], may_always: frozenset[str]) -> None:
        """Set what is allowed."""
        self._set(self.grants_changed, grants=tuple(grants), may_always=may_always)
