"""The rows of the sidebar: pinned chats, folders with their chats, and the rest by day."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from app.domain.chat import Conversation, Folder
from app.domain.folders import in_order
from app.system.translation import tr


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder in the list."""

    folder: Folder
    depth: int  # 0: not in another folder
    open: bool  # what is in it is listed
    chats: int  # in it and in the folders below


Row = Conversation | FolderRow | str  # a text is a heading


def rows_of(
    conversations: Sequence[Conversation], folders: Sequence[Folder], closed: Collection[int]
) -> tuple[list[Row], int]:
    """The rows, and how many of them come before the chats that are in no folder.

    Archived chats are left out. `closed` are ids of folders whose content is not listed.
    """
    known = {folder.id for folder in folders}
    pinned: list[Row] = []
    loose: list[Conversation] = []
    held: dict[int, list[Conversation]] = {}
    for conversation in conversations:
        if conversation.archived:
            continue
        if conversation.pinned:
            pinned.append(conversation)
        elif conversation.folder in known:
            held.setdefault(conversation.folder, []).append(conversation)  # type: ignore[arg-type]
        else:
            loose.append(conversation)
    above: list[Row] = [tr("Pinned"), *pinned] if pinned else []
    if folders:
        above += [tr("Folders"), *_in_folders(folders, held, closed)]
    return [*above, *_by_day(loose)], len(above)


def _in_folders(
    folders: Sequence[Folder], held: dict[int, list[Conversation]], closed: Collection[int]
) -> Iterator[Row]:
    """Each folder, followed by the folders in it and then its chats."""
    order = in_order(folders)
    counts = {folder.id: len(held.get(folder.id, ())) for folder in folders}
    for folder, _ in reversed(order):
        if folder.parent in counts and folder.parent != folder.id:
            counts[folder.parent] += counts[folder.id]
    around: list[tuple[int, int]] = []  # depth and id of the open folders around
    hidden: int | None = None  # depth of the closed folder around
    for folder, depth in order:
        while around and around[-1][0] >= depth:
            yield from held.get(around.pop()[1], ())
        if hidden is not None and depth > hidden:
            continue
        is_open = folder.id not in closed
        hidden = None if is_open else depth
        yield FolderRow(folder, depth, is_open, counts[folder.id])
        if is_open:
            around.append((depth, folder.id))
    while around:
        yield from held.get(around.pop()[1], ())


def _by_day(conversations: Sequence[Conversation]) -> Iterator[Row]:
    """The conversations with a heading before each group of days."""
    today = date.fromtimestamp(time.time())
    heading = ""
    for conversation in conversations:
        day = date.fromtimestamp(conversation.updated)
        if (group := heading_for(day, today)) != heading:
            heading = group
            yield heading
        yield conversation


def heading_for(day: date, today: date) -> str:
    """The heading of the group that a day belongs to."""
    if day >= today:
        return tr("Today")
    if day == today - timedelta(days=1):
        return tr("Yesterday")
    return tr("Previous 7 days") if day >= today - timedelta(days=7) else tr("Older")


def keys(rows: Sequence[Row]) -> list[object]:
    """What tells whether rows were added, removed or moved."""
    return [
        row.id
        if isinstance(row, Conversation)
        else (row if isinstance(row, str) else (row.folder.id, row.depth, row.open))
        for row in rows
    ]
