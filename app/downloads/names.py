"""Safe file names: untrusted names made valid on every file system, without path traversal."""

from __future__ import annotations

import re
from pathlib import Path

from app.system.file_names import FORBIDDEN, name_room, not_reserved

LONGEST_ENDING = ".part.json.new"  # of the files beside a download while it runs
_LONGEST = 180  # bytes; most file systems allow 255, including the suffix of a partial download
_ENDING = re.compile(r"((-\d{5}-of-\d{5})?\.gguf)$", re.IGNORECASE)


def safe_name(file: str, folder: Path | None = None) -> str:
    """Local name of a repository file, without its folders; always ends in .gguf.

    The mapping is deterministic; the pieces of a split model keep their numbers. In a folder with
    a long path, Windows allows shorter names.
    """
    room = _LONGEST if folder is None else min(_LONGEST, name_room(folder, LONGEST_ENDING))
    name = _plain(re.split(r"[/\\]", file)[-1])
    match = _ENDING.search(name)
    ending = match[1] if match else ".gguf"
    stem = name[: match.start()] if match else name
    stem = _cut(stem, room - len(ending)).rstrip(". ")
    return f"{stem or 'model'}{ending}"


def safe_folder(path: str) -> str:
    """A safe relative folder from any text; "" when nothing usable is left."""
    segments = (_cut(_plain(one), 100).rstrip(". ") for one in re.split(r"[/\\]", path))
    return "/".join(one for one in segments if one)


def _plain(text: str) -> str:
    """A path segment without characters and names that are special on some system."""
    text = FORBIDDEN.sub("", text.encode("utf-8", "ignore").decode("utf-8"))
    text = text.strip().lstrip(".").rstrip(". ").strip()
    return not_reserved(text)


def _cut(text: str, most: int) -> str:
    """Truncate a text to a number of UTF-8 bytes."""
    return text.encode("utf-8")[:most].decode("utf-8", "ignore")
