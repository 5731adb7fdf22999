"""Collections: folders and files with a name, whose passages chats are answered from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.documents import PageUnit


class FileState(StrEnum):
    """How far a file of a collection is."""

    WAITING = "waiting"  # its text is not extracted yet
    READY = "ready"
    FAILED = "failed"  # there is no text of it


UNSURE = -1


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection of the user."""

    id: int
    name: str
    sources: tuple[str, ...]  # absolute paths of folders and files
    created: float = 0.0  # seconds since 1970


@dataclass(frozen=True, slots=True)
class CollectionFile:
    """A file of a collection, as it was when it was looked at last."""

    path: str
    size: int  # bytes
    modified: int  # nanoseconds since 1970; UNSURE: it may have changed since it was read
    sha256: str = ""  # of its bytes; "": not read yet
    state: FileState = FileState.WAITING
    version: str = ""  # of its text in the index
    unit: PageUnit = PageUnit.NONE
    fault: str = ""  # an `ExtractionFault`, why there is no text of it
    detail: str = ""  # technical


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or a folder that cannot be read, and why."""

    path: str
    sentence: str
    remedy: str = ""
    kept: int = 0  # files in it whose texts are kept, which the user may let go


@dataclass(frozen=True, slots=True)
class CollectionView:
    """What is known of the files of a collection."""

    files: int = 0
    done: int = 0  # files that were read, with a text or without
    left_out: int = 0  # hidden files, and links to what is read anyway
    problems: tuple[Problem, ...] = ()
    scanned: bool = False  # the sources were looked at in this run
    cut: bool = False  # there are more files than a collection may have
