"""Why a picture is not read, as codes that child processes tell and sentences that users get."""

from __future__ import annotations

from enum import StrEnum

from engine.errors import Fault, FaultKind, RequestError
from engine.processes.pool import ChildFault

MOST_BYTES = 200_000_000  # of a file
MOST_PIXELS = 110_000_000


class Refusal(StrEnum):
    """What a child process found in a file."""

    EMPTY = "empty"
    SVG = "svg"
    HEIC = "heic"
    OTHER = "other"  # no picture, or of a format that is not read
    DAMAGED = "damaged"
    LARGE = "large"  # too many pixels
    MISSING = "missing"  # found by the engine itself


_CHOOSE = "Choose a PNG, JPEG, WebP, GIF, TIFF, AVIF or BMP picture."
_SMALLER = "Make it smaller in another program, and add it again."
_SENTENCES = {
    Refusal.EMPTY: ("{} is empty.", "Add it again, or choose another one."),
    Refusal.SVG: (
        "{} is a drawing of lines and shapes (SVG), which cannot be read.",
        "Save it as PNG in another program, and add that.",
    ),
    Refusal.HEIC: (
        "{} is a HEIC picture, which this version cannot read.",
        "Save it as JPEG or PNG in another program, and add that.",
    ),
    Refusal.OTHER: ("{} is no picture of a format that can be read.", _CHOOSE),
    Refusal.DAMAGED: (
        "{} is damaged or incomplete.",
        "Copy or download it again, or choose another one.",
    ),
    Refusal.LARGE: (
        f"{{}} has {{:,}} x {{:,}} pixels, of which at most {MOST_PIXELS:,} in all can be read.",
        _SMALLER,
    ),
    Refusal.MISSING: ("{} is not there any more.", "Add the picture again."),
    ChildFault.TIMEOUT: ("{} takes too long to read.", _SMALLER),
    ChildFault.MEMORY: ("{} needs too much memory to read.", _SMALLER),
    ChildFault.OUTPUT: ("{} needs too much memory to read.", _SMALLER),
    ChildFault.CRASHED: (
        "{} cannot be read, it ends the process that tries.",
        "Save it as PNG or JPEG in another program, and add that.",
    ),
    ChildFault.NOT_STARTED: (
        "{} cannot be read, the process that decodes pictures does not start.",
        "Close other programs and try again, or restart this one.",
    ),
}


_ABOUT = {  # what users are told in short; "other" of those that are not here
    Refusal.EMPTY: "damaged",
    Refusal.DAMAGED: "damaged",
    Refusal.MISSING: "missing",
    Refusal.LARGE: "large",
    ChildFault.TIMEOUT: "large",
    ChildFault.MEMORY: "large",
    ChildFault.OUTPUT: "large",
}


class PictureRefused(RequestError):
    """Raised for a picture that is not read."""

    def __init__(self, message: str, remedy: str, reason: Refusal | ChildFault) -> None:
        super().__init__(message, remedy, Fault(FaultKind.PICTURE, _ABOUT.get(reason, "other")))
        self.reason = reason


def refused(
    reason: Refusal | ChildFault, name: str = "", width: int = 0, height: int = 0
) -> PictureRefused:
    """The error for a picture that users know by a name, quoted, or by none."""
    message, remedy = _SENTENCES[reason]
    return PictureRefused(message.format(called(name), width, height), remedy, reason)


def called(name: str) -> str:
    """What a picture is called at the beginning of a sentence."""
    return f"The picture {name}" if name else "The picture"
