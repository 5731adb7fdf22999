"""Journal of the download queue: writes and reads `downloads.json`, which may be damaged.

Progress is stored in the sidecar of each partial file, so a lost journal loses only the order: a
partial file without a row is listed again, paused. So it is where a newer version wrote the journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import cast

from app.downloads.entry import Entry
from app.downloads.names import safe_name
from app.downloads.partial import part_path, read_part, sidecar_path
from app.downloads.policy import Phase
from app.net.hub import HubError, Piece, Source
from app.net.hub_links import parse_link
from app.system.json_file import replace_file
from engine import disk_files

NAME = "downloads.json"
_VERSION = 1
_SIDECAR = ".part.json"
_KEPT = (Phase.PAUSED, Phase.FAILED)


def rows_of(folder: Path, entries: Iterable[Entry]) -> list[dict[str, object]]:
    """The unfinished downloads as they are now, for `write_rows`."""
    return [_row(folder, entry) for entry in entries if entry.phase is not Phase.DONE]


def write_rows(folder: Path, rows: list[dict[str, object]]) -> None:
    """Write the unfinished downloads; raises OSError. The file of a newer version stays as it is."""
    if _is_newer(_content(folder / NAME)):
        return
    if not rows and not (folder / NAME).exists():
        return
    disk_files.make_folder(folder)
    text = json.dumps({"version": _VERSION, "downloads": rows}, indent=1)
    replace_file(folder / NAME, text.encode("ascii"))


def read_queue(folder: Path, endpoint: str) -> list[Entry]:
    """Read the downloads of an earlier run, the oldest first; those that were running are QUEUED.

    Invalid rows are skipped. The ids of the entries are 0.
    """
    entries: list[Entry] = []
    for row in _rows(folder / NAME):
        entry = _entry(folder, row)
        if entry is not None and not any(entry.path == other.path for other in entries):
            _count_parts(entry)
            entries.append(entry)
    return entries + _orphans(
        folder, endpoint, {place for one in entries for place in _places(one)}
    )


def _row(folder: Path, entry: Entry) -> dict[str, object]:
    return {
        "source": asdict(entry.source),
        "path": entry.path.relative_to(folder).as_posix(),
        "phase": entry.phase.value if entry.phase in _KEPT else Phase.QUEUED.value,
        "error": entry.error,
        "remedy": entry.remedy,
        "done": dict(entry.done),
        "fetched": list(entry.fetched),
        "pieces": [asdict(piece) for piece in entry.pieces],
        "encoder_name": entry.encoder_name,
        "lacking": entry.lacking,
    }


def _content(path: Path) -> dict[str, object]:
    try:
        stored: object = json.loads(disk_files.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", stored) if isinstance(stored, dict) else {}


def _is_newer(content: dict[str, object]) -> bool:
    """Whether a newer version of the app wrote the journal, in a form that is not known here."""
    version = content.get("version")
    return type(version) is int and version > _VERSION


def _rows(path: Path) -> list[dict[str, object]]:
    content = _content(path)
    rows = content.get("downloads")
    if _is_newer(content) or not isinstance(rows, list):
        return []
    listed = cast("list[object]", rows)
    return [cast("dict[str, object]", row) for row in listed if isinstance(row, dict)]


def _entry(folder: Path, row: dict[str, object]) -> Entry | None:
    """One row as an entry; None when a field is missing or invalid, or its path leaves `folder`."""
    source, path = _source(row.get("source")), row.get("path")
    if source is None or not isinstance(path, str):
        return None
    inside = PurePosixPath(path)
    if inside.is_absolute() or ".." in inside.parts or "\\" in path or inside.suffix != ".gguf":
        return None
    phase = next((one for one in _KEPT if one.value == row.get("phase")), Phase.QUEUED)
    done, fetched = row.get("done"), row.get("fetched")
    encoder_name, pieces = _text(row.get("encoder_name")), list(_pieces(row.get("pieces")))
    if source.encoder is not None and pieces and pieces[-1].file != source.encoder.file:
        return None
    counts = cast("dict[str, object]", done) if isinstance(done, dict) else {}
    names = cast("list[object]", fetched) if isinstance(fetched, list) else []
    try:
        return Entry(
            0,
            source,
            folder / inside,
            phase,
            error=_text(row.get("error")),
            remedy=_text(row.get("remedy")),
            pieces=pieces,
            done={name: count for name, count in counts.items() if type(count) is int},
            fetched=[name for name in names if isinstance(name, str)],
            encoder_name=safe_name(encoder_name) if encoder_name else "",
            lacking=_text(row.get("lacking")),
        )
    except HubError:
        return None


def _count_parts(entry: Entry) -> None:
    """Set the progress of the pieces from their files: the journal is not written while running."""
    for index, piece in enumerate(entry.pieces):
        unnamed = index == entry.encoder_index and not entry.encoder_name
        if piece.file in entry.fetched or unnamed:
            continue
        place = entry.place(index)
        part, path = read_part(sidecar_path(place)), part_path(place)
        here = path.stat().st_size if part is not None and path.is_file() else 0
        entry.done[piece.file] = min(here, piece.size_bytes or here)


def _source(stored: object) -> Source | None:
    if not isinstance(stored, dict):
        return None
    values = cast("dict[str, object]", stored)
    source = Source(
        _text(values.get("repository")),
        _text(values.get("revision")),
        _text(values.get("file")),
        _count(values.get("size_bytes")),
        _text(values.get("sha256")),
        _text(values.get("url")),
        _text(values.get("folder")),
        _pieces(values.get("pieces")),
        next(iter(_pieces([values.get("encoder")])), None),
        _text(values.get("name")),
    )
    return source if source.file and (source.repository or source.url) else None


def _pieces(stored: object) -> tuple[Piece, ...]:
    rows = cast("list[object]", stored) if isinstance(stored, list | tuple) else []
    pieces: list[Piece] = []
    for row in rows:
        values = cast("dict[str, object]", row) if isinstance(row, dict) else {}
        file = _text(values.get("file"))
        if not file:
            return ()
        pieces.append(Piece(file, _count(values.get("size_bytes")), _text(values.get("sha256"))))
    return tuple(pieces)


def _orphans(folder: Path, endpoint: str, known: set[Path]) -> list[Entry]:
    """Partial files that the journal does not list, as paused downloads."""
    entries: list[Entry] = []
    found = sorted(folder.rglob(f"*.gguf{_SIDECAR}")) if folder.is_dir() else []
    for sidecar in found:
        place = sidecar.with_name(sidecar.name.removesuffix(_SIDECAR))
        part = None if place in known or place.exists() else read_part(sidecar)
        if part is None:
            continue
        try:
            source = parse_link(part.url, endpoint)
            if isinstance(source, Source):
                entry = Entry(0, source, place, Phase.PAUSED, done={source.file: part.done_bytes})
                known |= _places(entry)
                entries.append(entry)
        except HubError:
            continue
    return entries


def _places(entry: Entry) -> set[Path]:
    return {entry.place(index) for index in range(len(entry.pieces))}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
