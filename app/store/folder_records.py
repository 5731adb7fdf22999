"""The folders of an export, with their instructions and presets; and those that an import makes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from app.domain.chat import BUILT_IN, Folder, Preset
from app.domain.chat_tree import FolderRecord
from app.domain.folders import chain, in_order
from app.domain.ids import new_id
from app.domain.presets import preset_of, preset_text
from app.store.folders import read_folders
from app.store.presets import read_presets, set_preset
from app.store.search import clean

FolderRecords = Mapping[tuple[str, ...], FolderRecord]  # by path
NO_FOLDERS: FolderRecords = MappingProxyType({})


def read_records(database: sqlite3.Connection, conversations: Iterable[int]) -> list[FolderRecord]:
    """The folders around these chats, or all if these are all chats; parents come first."""
    wanted = set(conversations)
    rows = database.execute("SELECT id, folder FROM conversation WHERE deleted IS NULL").fetchall()
    folders = read_folders(database)
    around = {folder for number, folder in rows if number in wanted}
    if wanted.issuperset(number for number, _ in rows):
        kept = {folder.id for folder in folders}
    else:
        kept = {each.id for folder in around for each in chain(folders, folder)}
    presets = {preset.id: preset for preset in read_presets(database)}
    return [
        _record(folders, folder, presets) for folder, _ in in_order(folders) if folder.id in kept
    ]


def _record(folders: Sequence[Folder], folder: Folder, presets: dict[int, Preset]) -> FolderRecord:
    path = tuple(each.name for each in reversed(chain(folders, folder.id)))
    number = folder.preset or 0
    preset = presets.get(number, Preset(number, "") if 0 < number <= BUILT_IN else None)
    if preset is not None and preset.hidden:
        preset = None
    return FolderRecord(path, folder.instructions, preset, folder.position)


def make_folders(
    database: sqlite3.Connection, path: Sequence[str], records: FolderRecords
) -> tuple[int | None, list[int]]:
    """The folder with this path, and the ids of those made on the way, as the records say."""
    folder: int | None = None
    made: list[int] = []
    for depth, name in enumerate(map(clean, path), 1):
        row = database.execute(
            "SELECT id FROM folder WHERE name = ? AND parent IS ? AND deleted IS NULL LIMIT 1",
            (name, folder),
        ).fetchone()
        if row is not None:
            folder = row[0]
            continue
        record = records.get(tuple(path[:depth]), FolderRecord(()))
        text = None if record.instructions is None else clean(record.instructions)
        made.append(new_id())
        database.execute(
            "INSERT INTO folder(id, parent, name, instructions, preset, position, created)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (made[-1], folder, name, text, _preset(database, record.preset), record.position,
            time.time()),
        )  # fmt: skip
        folder = made[-1]
    return folder, made


def _preset(database: sqlite3.Connection, preset: Preset | None) -> int | None:
    """The id of an equal preset, which is inserted where there is none."""
    if preset is None or 0 < preset.id <= BUILT_IN:
        return None if preset is None else preset.id
    name, wanted = clean(preset.name), clean(preset_text(preset))
    rows = database.execute(
        "SELECT id, name, CAST(data AS TEXT) FROM preset WHERE name = ?", (name,)
    )
    for row in rows:
        if preset_text(preset_of(*row)) == wanted:
            return row[0]
    made = Preset(
        new_id(), preset.name, preset.settings, preset.parts,
        preset.description, preset.greeting, preset.greetings,
    )  # fmt: skip
    set_preset(database, made)
    return made.id


def remove_empty(database: sqlite3.Connection, folders: Iterable[int]) -> None:
    """Remove those of these folders that nothing is in."""
    for number in sorted(folders, reverse=True):  # later ids are of inner folders
        database.execute(
            "DELETE FROM folder WHERE id = ?1"
            " AND NOT EXISTS (SELECT 1 FROM folder WHERE parent = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM conversation WHERE folder = ?1)",
            (number,),
        )
