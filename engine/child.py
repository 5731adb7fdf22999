"""What a child process of the engine does: its tasks, each imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from engine.processes.child import Task


def _picture(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    from engine.vision.decoding import picture

    return picture(request, report)


TASKS: dict[str, Task] = {"picture": _picture}


def be_child(others: Mapping[str, Task] | None = None) -> NoReturn:
    """Do the tasks that come, these and others, until the parent ends."""
    from engine.processes.child import serve

    serve({**TASKS, **(others or {})})
