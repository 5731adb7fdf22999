"""What a child process of the app does: its tasks, each imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from app.processes.child import Report, serve


def _extract(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    from app.documents.extraction import extraction

    return extraction(request, report)


TASKS = {"extract": _extract}


def main() -> NoReturn:
    """Do the tasks that come until the parent ends."""
    serve(TASKS)
