"""Observable state of pictures of messages: their copies, as they are read for what is shown.

Only `app.chat.documents.pictures` changes it. It keeps no copy: what shows a picture does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from PySide6.QtCore import QObject, Signal


@dataclass(frozen=True, slots=True)
class PictureCopy:
    """A copy of a picture in a size that was asked for, or why there is none."""

    sha256: str  # of the file
    longest: int  # pixels that were asked for
    width: int = 0  # pixels of the copy
    height: int = 0
    pixels: bytes = field(default=b"", repr=False)  # u8 [height, width, 3]
    ending: str = ""  # of names of such files, with the dot; "": not known
    fault: str = ""  # one sentence; "": there is a copy


@dataclass(frozen=True, slots=True)
class EmbeddedPictures:
    """The pictures in a document."""

    sha256: str  # of the document's file
    names: tuple[str, ...]


def embedded_key(sha256: str, index: int) -> str:
    """The cache key of picture number `index` in a document: the document's hash and the index."""
    return f"{sha256}/{index}"


class PicturesState(QObject):
    """Tells of the copies that were read."""

    read = Signal(object)  # PictureCopy
    embedded = Signal(object)  # EmbeddedPictures
