"""Snapshot folder operations for the window: path, total size, deletion.

It does not import torch, so the window can use it before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from engine.loading.library import data_folder
from engine.machine import disk_files
from engine.state.disk import cleanup, sequence_file
from engine.state.disk.atomic import folder_lock
from engine.state.disk.sequence_file import conversation_prefix

_WAIT_SECONDS = 10.0  # for a save in progress


def snapshots_folder() -> Path:
    """Path of the snapshot folder; it may not exist yet."""
    return data_folder() / "sessions"


def is_snapshots_folder(path: Path) -> bool:
    """Whether a folder holds snapshots, and not files of others."""
    return (path / cleanup.PAGES).is_dir()


def snapshots_size() -> int:
    """Disk space of all snapshots in bytes."""
    return cleanup.total_size(snapshots_folder())


def delete_snapshots(conversations: Collection[str] | None = None) -> int:
    """Delete the snapshots of these conversations, or all; returns the bytes freed.

    What memory has of them is not written until they continue. Pages that other conversations share
    stay. A save in progress is waited for, so that its file is deleted too. Raises OSError.
    """
    folder = snapshots_folder()
    pages = folder / cleanup.PAGES
    before = cleanup.total_size(folder)
    if not pages.is_dir():
        _delete_files(folder, conversations)
        return before - cleanup.total_size(folder)
    with folder_lock(pages, exclusive=True, seconds=_WAIT_SECONDS) as locked:
        if conversations is None or conversations:
            cleanup.record_deletion(folder, conversations)
        _delete_files(folder, conversations)
        if locked and conversations is not None:
            cleanup.Sweep(folder, sequence_file.read_all(folder)).remove_unreferenced()
    return before - cleanup.total_size(folder)


def _delete_files(folder: Path, conversations: Collection[str] | None) -> None:
    """Delete the conversations' sequences, or every file. Raises OSError."""
    prefixes = None if conversations is None else tuple(map(conversation_prefix, conversations))
    for path, _ in cleanup.files_of(folder):
        if prefixes is None or (path.parent == folder and path.name.startswith(prefixes)):
            disk_files.delete(path)
