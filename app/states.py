"""All that is shown, in one value: what the window reads and the controller changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.adapter_state import AdapterState
from app.library_state import LibraryState
from app.session_state import SessionState
from app.state import State


@dataclass(frozen=True, slots=True)
class States:
    """One observable for each part of the window."""

    chat: State = field(default_factory=State)
    library: LibraryState = field(default_factory=LibraryState)
    adapters: AdapterState = field(default_factory=AdapterState)
    sessions: SessionState = field(default_factory=SessionState)
