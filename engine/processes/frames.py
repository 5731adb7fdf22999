"""Frames between a process and its child process: a kind, a length, and as many bytes."""

from __future__ import annotations

import struct
from typing import BinaryIO

START = b"S"  # to the child: JSON of its limits, once
CONTENT = b"B"  # to the child: bytes that the next task is about
CALL = b"C"  # to the child: JSON of a task
PIECE = b"P"  # of a result
DONE = b"D"  # the end of a result; the child waits for the next call
LAST = b"L"  # the same, and the child ends
FAULT = b"F"  # JSON of why there is no result; the child ends
PROGRESS = b"N"  # how much of the task is done, 0 to 1, in decimal digits
MEMORY = b"M"  # the peak of its memory in bytes, as decimal digits

_HEADER = struct.Struct(">cQ")


class FrameError(Exception):
    """Raised for a frame that ends early or is longer than it may be."""


def write_frame(stream: BinaryIO, kind: bytes, content: bytes = b"") -> None:
    """Write a frame; raises OSError."""
    stream.write(_HEADER.pack(kind, len(content)))
    stream.write(content)


def read_frame(stream: BinaryIO, most_bytes: int) -> tuple[bytes, bytes] | None:
    """The kind and the content of the next frame; None at the end. Raises FrameError, OSError."""
    header = stream.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise FrameError("a frame ends in its header")
    kind, length = _HEADER.unpack(header)
    if length > most_bytes:
        raise FrameError(f"a frame of {length} bytes, of which {most_bytes} are allowed")
    content = stream.read(length)
    if len(content) < length:
        raise FrameError(f"a frame of {length} bytes ends after {len(content)}")
    return kind, content
