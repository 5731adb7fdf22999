"""The tree of folders: what is in one, where one is, and where one may go.

A folder whose parent is not among the folders is at the top. A cycle, which only damage makes, is
read as if its folders were at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.domain.chat import Folder


def chain(folders: Sequence[Folder], folder_id: int | None) -> list[Folder]:
    """A folder and those around it, the innermost first; empty if there is no such folder."""
    by_id = {folder.id: folder for folder in folders}
    found: list[Folder] = []
    while folder_id in by_id and by_id[folder_id] not in found:
        found.append(by_id[folder_id])
        folder_id = by_id[folder_id].parent
    return found


def path_text(folders: Sequence[Folder], folder_id: int | None) -> str:
    """The names from the outermost folder to this one; empty if there is no such folder."""
    return " / ".join(folder.name for folder in reversed(chain(folders, folder_id)))


def inside(folders: Sequence[Folder], folder_ids: Sequence[int]) -> frozenset[int]:
    """The ids of these folders and of all below them."""
    wanted = frozenset(folder_ids)
    return frozenset(
        folder.id
        for folder in folders
        if any(each.id in wanted for each in chain(folders, folder.id))
    )


def in_order(folders: Sequence[Folder]) -> list[tuple[Folder, int]]:
    """Every folder with its depth, from 0: each followed by those below it, by position."""
    known = {folder.id for folder in folders}
    below: dict[int | None, list[Folder]] = {}
    for folder in sorted(folders, key=lambda folder: (folder.position, folder.id)):
        below.setdefault(folder.parent if folder.parent in known else None, []).append(folder)

    found: list[tuple[Folder, int]] = []
    left = [(folder, 0) for folder in reversed(below.get(None, ()))]
    while left:
        folder, depth = left.pop()
        found.append((folder, depth))
        left += [(each, depth + 1) for each in reversed(below.get(folder.id, ()))]
    reached = {folder.id for folder, _ in found}
    return found + [(folder, 0) for folder in folders if folder.id not in reached]


def moved(
    folders: Sequence[Folder], folder_id: int, parent: int | None, before: int | None
) -> list[Folder]:
    """The folders that change when one moves into `parent`, before its child `before` (None: last).

    Empty if it stays where it is, or cannot go there: a folder cannot be inside itself.
    """
    by_id = {folder.id: folder for folder in folders}
    own = by_id.get(folder_id)
    around = {folder.id for folder in chain(folders, parent)}
    if own is None or folder_id in around or (parent is not None and parent not in by_id):
        return []
    beside = [f for f, _ in in_order(folders) if f.id != folder_id and _parent(f, by_id) == parent]
    at = next((i for i, folder in enumerate(beside) if folder.id == before), len(beside))
    placed = [*beside[:at], replace(own, parent=parent), *beside[at:]]
    was = [f.id for f, _ in in_order(folders) if _parent(f, by_id) == parent]
    if own.parent == parent and was == [folder.id for folder in placed]:
        return []
    renumbered = [replace(folder, position=float(i)) for i, folder in enumerate(placed)]
    return [folder for folder in renumbered if folder != by_id[folder.id]]


def _parent(folder: Folder, by_id: dict[int, Folder]) -> int | None:
    return folder.parent if folder.parent in by_id else None
