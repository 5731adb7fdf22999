"""Snapshot folder operations for the window: path, total size, deletion.

It opens no file and does not import torch, so the window can use it before torch is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from engine.loading.library import data_folder

SUFFIX = ".safetensors"
_PREFIX_DIGITS = 16  # hex digits of a conversation's hash


def snapshots_folder() -> Path:
    """Path of the snapshot folder; it may not exist yet."""
    return data_folder() / "sessions"


def snapshots_size() -> int:
    """Disk space of all snapshots in bytes."""
    return sum(size for _, size in _files())


def delete_snapshots(conversations: Collection[str] | None = None) -> int:
    """Delete the snapshots of these conversations, or all; returns the bytes freed.

    Raises OSError.
    """
    prefixes = None if conversations is None else tuple(map(conversation_prefix, conversations))
    freed = 0
    for path, size in _files():
        if prefixes is None or path.name.startswith(prefixes):
            path.unlink(missing_ok=True)
            freed += size
    return freed


def conversation_prefix(conversation: str) -> str:
    """File name prefix of a conversation's snapshots: digits of its SHA-256."""
    return hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[
        :_PREFIX_DIGITS
    ]


def _files() -> list[tuple[Path, int]]:
    """Snapshots and temporary files with their sizes; files deleted meanwhile are left out."""
    found: list[tuple[Path, int]] = []
    for path in snapshots_folder().glob(f"*{SUFFIX}*"):
        try:
            found.append((path, path.stat().st_size))
        except FileNotFoundError:
            continue
    return found
