"""Why a file has no text, as sentences for the window: what is wrong with it, and what to do."""

from __future__ import annotations

from app.documents.source import ExtractionFault, Look
from app.system.translation import tr


def fault_sentence(name: str, fault: ExtractionFault, detail: str = "") -> tuple[str, str]:
    """Sentence and remedy for the file that the user knows as `name`."""
    match fault:
        case ExtractionFault.UNKNOWN:
            return _look_words(name, detail)
        case ExtractionFault.PROTECTED:
            return (
                tr("{file} is protected with a password.", file=name),
                tr("Save a copy without the password, and attach that."),
            )
        case ExtractionFault.DAMAGED:
            return (
                tr("{file} is damaged or incomplete.", file=name),
                tr("Open it in the program it was made with, and save it again."),
            )
        case ExtractionFault.TOO_LARGE:
            return (
                tr("{file} is too large, or unpacks to too much.", file=name),
                tr("Attach a part of it."),
            )
        case ExtractionFault.TOO_SLOW:
            return (
                tr("Reading {file} took too long and was stopped.", file=name),
                tr("Attach a part of it, or save it in another format."),
            )
        case ExtractionFault.MEMORY:
            return (
                tr("Reading {file} needs too much memory.", file=name),
                tr("Attach a part of it, or save it in another format."),
            )
        case ExtractionFault.CRASHED:
            return (
                tr("{file} could not be read.", file=name),
                tr("Save it in another format, such as PDF or plain text."),
            )
        case ExtractionFault.CANCELLED:
            return tr("Reading {file} was stopped.", file=name), ""
        case _:
            return _access_words(name, fault, detail)


def _access_words(name: str, fault: ExtractionFault, detail: str) -> tuple[str, str]:
    """Of a file that the system does not give."""
    match fault:
        case ExtractionFault.MISSING:
            return tr("{file} was not found.", file=name), tr("It may have been moved or deleted.")
        case ExtractionFault.CHANGED:
            return (
                tr("{file} changed while it was read.", file=name),
                tr("Attach it again when it is complete."),
            )
        case ExtractionFault.NOT_A_FILE if detail == "folder":
            return tr("{file} is a folder.", file=name), tr("Attach the files in it.")
        case ExtractionFault.NOT_A_FILE:
            return tr("{file} is not a file.", file=name), tr("Attach a file.")
        case _:
            return (
                tr("{file} cannot be read: {reason}.", file=name, reason=detail.rstrip(".")),
                tr("Check its permissions and its disk."),
            )


def _look_words(name: str, look: str) -> tuple[str, str]:
    """Of a file in whose format there is no text, or none that can be read."""
    match look:
        case Look.PICTURE:
            return tr("{file} is a picture, which has no text.", file=name), ""
        case Look.AUDIO:
            return tr("{file} is a sound recording, which has no text.", file=name), ""
        case Look.VIDEO:
            return tr("{file} is a video, which has no text.", file=name), ""
        case Look.MODEL:
            text = tr("{file} is a model or data for one, and no document.", file=name)
            return text, tr("Open GGUF files in Models.")
        case Look.PROGRAM | Look.FONT | Look.DATABASE | Look.DISK:
            return _file_of_programs(name, look), ""
        case Look.COMPRESSED:
            return tr("{file} is an archive of an unknown kind.", file=name), tr(
                "Unpack it, and attach its files."
            )
        case Look.OLD_WORD:
            return _old(name), tr("Save it as DOCX, and attach that.")
        case Look.OLD_SHEETS:
            return _old(name), tr("Save it as XLSX, and attach that.")
        case Look.OLD_SLIDES:
            return _old(name), tr("Save it as PPTX, and attach that.")
        case Look.OUTLOOK:
            text = tr("{file} is a message of Outlook in a format that cannot be read.", file=name)
            return text, tr("Save it as EML or plain text, and attach that.")
        case Look.PAGES:
            text = tr("{file} is a document of Pages, Numbers or Keynote.", file=name)
            return text, tr("Export it as PDF or in an Office format, and attach that.")
        case Look.EBOOK:
            text = tr("{file} is an electronic book in a format that cannot be read.", file=name)
            return text, tr("Convert it to EPUB or PDF, and attach that.")
        case Look.DRAWING:
            return tr("{file} is a drawing.", file=name), tr("Export it as PDF, and attach that.")
        case _:
            return (
                tr("{file} is in a format that cannot be read.", file=name),
                tr("Save it as PDF or plain text, and attach that."),
            )


def _file_of_programs(name: str, look: str) -> str:
    match look:
        case Look.PROGRAM:
            return tr("{file} is a program, and no document.", file=name)
        case Look.FONT:
            return tr("{file} is a font, and no document.", file=name)
        case Look.DATABASE:
            return tr("{file} is a database, and no document.", file=name)
        case _:
            return tr("{file} is a disk image, and no document.", file=name)


def _old(name: str) -> str:
    return tr("{file} is in an old Office format, which cannot be read.", file=name)
