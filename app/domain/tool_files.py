"""Files that tools return: names that are safe to show and to save, and words about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from app.domain.parts import ImagePart, Part, ToolResultPart
from app.domain.visible_text import on_one_line
from app.system.file_names import FORBIDDEN, not_reserved
from app.system.translation import trn

_MOST_BYTES = 120  # of a name; file systems allow 255 bytes or characters
_MOST_ENDING = 20  # characters
_MOST_GIVEN = 4  # pictures of a result


def safe_file_name(text: str, others: Collection[str] = ()) -> str:
    r"""A name that every system takes for a file, unlike `others` (casefolded).

    Of a path it is the last part. A hidden character is shown as in `_u202e`.
    """
    last = text.replace("\\", "/").rstrip("/").rpartition("/")[2]
    name = FORBIDDEN.sub("_", on_one_line(last[: 4 * _MOST_BYTES])).strip(" .") or "file"
    ending = PurePosixPath(name).suffix
    ending = ending if len(ending) <= _MOST_ENDING else ""
    stem = name.removesuffix(ending)
    while len(f"{stem}{ending}".encode()) > _MOST_BYTES:
        stem = stem[:-1]
    stem = stem.strip(" .") or "file"
    made, number = not_reserved(f"{stem}{ending}"), 1
    while made.casefold() in others:
        number += 1
        made = f"{stem} {number}{ending}"
    return made


def shown_pictures(parts: Iterable[Part]) -> tuple[ImagePart, ...]:
    """The pictures among parts, with those that tools returned."""
    made: list[ImagePart] = []
    for part in parts:
        if isinstance(part, ImagePart):
            made.append(part)
        elif isinstance(part, ToolResultPart):
            made += (image for file in part.files if (image := file.image))
    return tuple(made)


def result_pictures(result: ToolResultPart) -> tuple[ImagePart, ...]:
    """The pictures of a result that a model is given: the first ones, as each is many tokens."""
    return shown_pictures((result,))[:_MOST_GIVEN]


def left_out_sentence(result: ToolResultPart) -> str:
    """That some files of a result were not kept; "": all were."""
    count = result.files_left_out
    if not count:
        return ""
    return trn(
        "{count} file was not kept: there were too many, it was too large, or the disk is full.",
        "{count} files were not kept: there were too many, they were too large, or the disk is full.",
        count,
    )
