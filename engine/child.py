"""What a child process of the engine does: its tasks, each imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from engine.processes.child import Task

TASKS: dict[str, Task] = {}


def be_child(others: Mapping[str, Task] | None = None) -> NoReturn:
    """Do the tasks that come, these and others, until the parent ends."""
    from engine.processes.child import serve

    serve({**TASKS, **(others or {})})
