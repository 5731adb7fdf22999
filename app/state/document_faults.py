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
                tr("{name} is protected with a password.", name=name),
                tr("Save a copy without the password, and attach that."),
            )
        case ExtractionFault.DAMAGED:
            return (
                tr("{name} is damaged or incomplete.", name=name),
                tr("Open it in the program it was made with, and save it again."),
            )
        case ExtractionFault.TOO_LARGE:
            return (
                tr("{name} is too large, or unpacks to too much.", name=name),
                tr("Attach a part of it."),
            )
        case ExtractionFault.TOO_SLOW:
            return (
                tr("Reading {name} took too long and was stopped.", name=name),
                tr("Attach a part of it, or save it in another format."),
            )
        case ExtractionFault.MEMORY:
            return (
                tr("Reading {name} needs too much memory.", name=name),
                tr("Attach a part of it, or save it in another format."),
            )
        case ExtractionFault.CRASHED:
            return (
                tr("{name} could not be read.", name=name),
                tr("Save it in another format, such as PDF or plain text."),
            )
        case ExtractionFault.CANCELLED:
            return tr("Reading {name} was stopped.", name=name), ""
        case _:
            return _access_words(name, fault, detail)


def _access_words(name: str, fault: ExtractionFault, detail: str) -> tuple[str, str]:
    """Of a file that the system does not give."""
    match fault:
        case ExtractionFault.MISSING:
            return tr("{name} was not found.", name=name), tr("It may have been moved or deleted.")
        case ExtractionFault.CHANGED:
            return (
                tr("{name} changed while it was read.", name=name),
                tr("Attach it again when it is complete."),
            )
        case ExtractionFault.NOT_A_FILE if detail == "folder":
            return tr("{name} is a folder.", name=name), tr("Attach the files in it.")
        case ExtractionFault.NOT_A_FILE:
            return tr("{name} is not a file.", name=name), tr("Attach a file.")
        case _:
            return (
                tr("{name} cannot be read: {reason}.", name=name, reason=detail.rstrip(".")),
                tr("Check its permissions and its disk."),
            )


def _look_words(name: str, look: str) -> tuple[str, str]:
    """Of a file in whose format there is no text, or none that can be read."""
    match look:
        case Look.PICTURE:
            return tr("{name} is a picture, which has no text.", name=name), ""
        case Look.AUDIO:
            return tr("{name} is a sound recording, which has no text.", name=name), ""
        case Look.VIDEO:
            return tr("{name} is a video, which has no text.", name=name), ""
        case Look.MODEL:
            text = tr("{name} is a model or data for one, and no document.", name=name)
            return text, tr("Open GGUF files in Models.")
        case Look.PROGRAM | Look.FONT | Look.DATABASE | Look.DISK:
            return _file_of_programs(name, look), ""
        case Look.COMPRESSED:
            return tr("{name} is an archive of an unknown kind.", name=name), tr(
                "Unpack it, and attach its files."
            )
        case Look.OLD_WORD:
            return _old(name), tr("Save it as DOCX, and attach that.")
        case Look.OLD_SHEETS:
            return _old(name), tr("Save it as XLSX, and attach that.")
        case Look.OLD_SLIDES:
            return _old(name), tr("Save it as PPTX, and attach that.")
        case Look.OUTLOOK:
            text = tr("{name} is a message of Outlook in a format that cannot be read.", name=name)
            return text, tr("Save it as EML or plain text, and attach that.")
        case Look.PAGES:
            text = tr("{name} is a document of Pages, Numbers or Keynote.", name=name)
            return text, tr("Export it as PDF or in an Office format, and attach that.")
        case Look.EBOOK:
            text = tr("{name} is an electronic book in a format that cannot be read.", name=name)
            return text, tr("Convert it to EPUB or PDF, and attach that.")
        case Look.DRAWING:
            return tr("{name} is a drawing.", name=name), tr("Export it as PDF, and attach that.")
        case _:
            return (
                tr("{name} is in a format that cannot be read.", name=name),
                tr("Save it as PDF or plain text, and attach that."),
            )


def _file_of_programs(name: str, look: str) -> str:
    match look:
        case Look.PROGRAM:
            return tr("{name} is a program, and no document.", name=name)
        case Look.FONT:
            return tr("{name} is a font, and no document.", name=name)
        case Look.DATABASE:
            return tr("{name} is a database, and no document.", name=name)
        case _:
            return tr("{name} is a disk image, and no document.", name=name)


def _old(name: str) -> str:
    return tr("{name} is in an old Office format, which cannot be read.", name=name)
