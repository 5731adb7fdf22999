"""The folder of saved sessions as the window sees it: where it is, how large, and emptying it.

It opens no file and needs no torch, so a window can ask before either is there.
"""

from __future__ import annotations

from pathlib import Path

from engine.library import data_folder

SUFFIX = ".safetensors"


def snapshots_folder() -> Path:
    """Where sessions are saved; the folder may not exist yet."""
    return data_folder() / "sessions"


def snapshots_size() -> int:
    """Bytes that all saved sessions take on the disk."""
    return sum(size for _, size in _files())


def delete_snapshots() -> int:
    """Delete every saved session; returns the bytes that were freed. Raises OSError."""
    freed = 0
    for path, size in _files():
        path.unlink(missing_ok=True)
        freed += size
    return freed


def _files() -> list[tuple[Path, int]]:
    """Saved sessions and unfinished ones with their sizes; one that vanishes meanwhile is left out."""
    found: list[tuple[Path, int]] = []
    for path in snapshots_folder().glob(f"*{SUFFIX}*"):
        try:
            found.append((path, path.stat().st_size))
        except FileNotFoundError:
            continue
    return found
