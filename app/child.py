"""What a child process of the app does: its tasks, each imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from engine import be_child


def _extract(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    from app.documents.extraction import extraction

    return extraction(request, report)


def _page(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    from app.documents.extraction import page_picture

    return page_picture(request, report)


def _embedded(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    from app.documents.extraction import embedded

    return embedded(request, report)


TASKS = {"extract": _extract, "page": _page, "embedded": _embedded}


def main() -> NoReturn:
    """Do the tasks that come, these and the engine's, until the parent ends."""
    be_child(TASKS)
