"""Safe file names: untrusted names made valid on every file system, without path traversal."""

from __future__ import annotations

import re

_LONGEST = 180  # bytes; most file systems allow 255, including the suffix ".part.json"
_ENDING = re.compile(r"((-\d{5}-of-\d{5})?\.gguf)$", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def safe_name(file: str) -> str:
    """Local name of a repository file, without its folders; always ends in .gguf.

    The mapping is deterministic; the pieces of a split model keep their numbers.
    """
    name = _plain(re.split(r"[/\\]", file)[-1])
    match = _ENDING.search(name)
    ending = match[1] if match else ".gguf"
    stem = name[: match.start()] if match else name
    stem = _cut(stem, _LONGEST - len(ending)).rstrip(". ")
    return f"{stem or 'model'}{ending}"


def safe_folder(path: str) -> str:
    """A safe relative folder from any text; "" when nothing usable is left."""
    segments = (_cut(_plain(one), 100).rstrip(". ") for one in re.split(r"[/\\]", path))
    return "/".join(one for one in segments if one)


def _plain(text: str) -> str:
    """A path segment without characters and names that are special on some system."""
    text = _FORBIDDEN.sub("", text.encode("utf-8", "ignore").decode("utf-8"))
    text = text.strip().lstrip(".").rstrip(". ").strip()
    return f"_{text}" if _RESERVED.fullmatch(text) else text


def _cut(text: str, most: int) -> str:
    """Truncate a text to a number of UTF-8 bytes."""
    return text.encode("utf-8")[:most].decode("utf-8", "ignore")
