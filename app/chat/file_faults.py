"""Sentences about files that cannot be attached: what is wrong, and what the user can do."""

from __future__ import annotations

from app.documents.source import MOST_BYTES, ExtractionError, ExtractionFault
from app.system.byte_size import size
from app.system.translation import tr


def fault_words(error: ExtractionError, name: str) -> tuple[str, str]:
    """Why there is no text of the file of this name, and what to do about it; "": nothing."""
    match error.fault:
        case ExtractionFault.UNKNOWN:
            return (
                tr("{name} is of a kind that cannot be read.", name=name),
                tr("Attach it as text, PDF or a document of an office program."),
            )
        case ExtractionFault.PROTECTED:
            return (
                tr("{name} is protected with a password.", name=name),
                tr("Save a copy without the password, and attach that."),
            )
        case ExtractionFault.DAMAGED:
            return (
                tr("{name} is damaged.", name=name),
                tr("Open it in the program that made it, save it again, and attach that."),
            )
        case ExtractionFault.TOO_LARGE:
            return (
                tr("{name} is too large to be read.", name=name),
                tr(
                    "Attach a part of it. Files of up to {size} can be read.", size=size(MOST_BYTES)
                ),
            )
        case ExtractionFault.TOO_SLOW:
            return (
                tr("Reading {name} took too long, so it was stopped.", name=name),
                tr("Attach a part of it."),
            )
        case ExtractionFault.MEMORY:
            return (
                tr("Reading {name} would take too much memory, so it was stopped.", name=name),
                tr("Attach a part of it."),
            )
        case ExtractionFault.CRASHED:
            return (
                tr("{name} could not be read: the reader has failed.", name=name),
                tr("Try again, or save the file in another format."),
            )
        case ExtractionFault.UNREADABLE:
            words = tr("{name} cannot be read.", name=name)
            if error.detail:
                words = tr("{name} cannot be read: {reason}.", name=name, reason=error.detail)
            return words, tr("Check that the file exists and can be read, then try again.")
        case ExtractionFault.CANCELLED:
            return tr("Reading {name} was cancelled.", name=name), ""
