"""Names of tools of servers, as a model writes them: safe letters, and never two alike."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.tools import ToolSpec

_MOST = 64  # letters
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Named:
    """A tool as its server calls it."""

    id: str  # "SERVER/NAME"
    server: str  # displayed name
    name: str


def safe_name(text: str) -> str:
    """A name of 1 to 64 ASCII letters, digits, "_" and "-"."""
    made = _UNSAFE.sub("_", text).strip("_")
    if len(made) > _MOST:
        made = f"{made[:55]}_{_mark(text)}"
    return made or f"tool_{_mark(text)}"


def unique_names(tools: Sequence[Named], reserved: Iterable[str]) -> Mapping[str, str]:
    """A name for each tool, by its id.

    A name that is reserved, or that tools of two servers want, belongs to none of these: they get
    the names of their servers before theirs. What is still alike gets a mark made from its id, so
    that the names do not depend on the order. Large and small letters count as alike.
    """
    taken = {each.casefold() for each in reserved}
    short = {each.id: safe_name(each.name) for each in tools}
    wanted = Counter(name.casefold() for name in short.values())
    names: dict[str, str] = {}
    for each in tools:
        name = short[each.id]
        if name.casefold() in taken or wanted[name.casefold()] > 1:
            name = safe_name(f"{safe_name(each.server)}_{each.name}")
        names[each.id] = name
    used = Counter(name.casefold() for name in names.values())
    for id, name in names.items():
        if name.casefold() in taken or used[name.casefold()] > 1:
            names[id] = f"{name[:55]}_{_mark(id)}"
    return names


def changes_of(before: Iterable[ToolSpec], after: Iterable[ToolSpec]) -> tuple[int, int, int]:
    """How many tools a server added, changed and took away."""
    old, new = ({each.id: each.digest for each in found} for found in (before, after))
    changed = sum(old[id] != new[id] for id in old.keys() & new.keys())
    return len(new.keys() - old.keys()), changed, len(old.keys() - new.keys())


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
