"""The folder of saved sessions as the window sees it: where it is, how large, and emptying it.

It opens no file and needs no torch, so a window can ask before either is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from engine.loading.library import data_folder

SUFFIX = ".safetensors"
_NAME_DIGITS = 16  # of a conversation's hash


def snapshots_folder() -> Path:
    """Where sessions are saved; the folder may not exist yet."""
    return data_folder() / "sessions"


def snapshots_size() -> int:
    """Bytes that all saved sessions take on the disk."""
    return sum(size for _, size in _files())


def delete_snapshots(conversations: Collection[str] | None = None) -> int:
    """Delete what was saved of these conversations, or of all; returns the bytes freed.

    Raises OSError.
    """
    owners = (
        None
        if conversations is None
        else tuple(conversation_prefix(each) for each in conversations)
    )
    freed = 0
    for path, size in _files():
        if owners is None or path.name.startswith(owners):
            path.unlink(missing_ok=True)
            freed += size
    return freed


def conversation_prefix(conversation: str) -> str:
    """What the names of a conversation's files begin with."""
    return hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[:_NAME_DIGITS]


def _files() -> list[tuple[Path, int]]:
    """Saved sessions and unfinished ones with their sizes; one that vanishes meanwhile is left out."""
    found: list[tuple[Path, int]] = []
    for path in snapshots_folder().glob(f"*{SUFFIX}*"):
        try:
            found.append((path, path.stat().st_size))
        except FileNotFoundError:
            continue
    return found
