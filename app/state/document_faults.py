"""Why a file has no text, as sentences for the window: what is wrong with it, and what to do."""

from __future__ import annotations

from app.documents.source import ExtractionFault, Look
from app.system.translation import tr


def fault_sentence(name: str, fault: ExtractionFault, detail: str = "") -> tuple[str, str]:
    """Sentence and remedy for the file that the user knows as `name`."""
    if fault is ExtractionFault.UNKNOWN:
        return _look_words(name, detail)
    if fault is ExtractionFault.NOT_A_FILE and detail == "folder":
        return tr("{file} is a folder.", file=name), tr("Attach the files in it.")
    other_format = tr("Attach a part of it, or save it in another format.")
    return {
        ExtractionFault.PROTECTED: (
            tr("{file} is protected with a password.", file=name),
            tr("Save a copy without the password, and attach that."),
        ),
        ExtractionFault.DAMAGED: (
            tr("{file} is damaged or incomplete.", file=name),
            tr("Open it in the program it was made with, and save it again."),
        ),
        ExtractionFault.TOO_LARGE: (
            tr("{file} is too large, or unpacks to too much.", file=name),
            tr("Attach a part of it."),
        ),
        ExtractionFault.TOO_SLOW: (
            tr("Reading {file} took too long and was stopped.", file=name),
            other_format,
        ),
        ExtractionFault.MEMORY: (
            tr("Reading {file} needs too much memory.", file=name),
            other_format,
        ),
        ExtractionFault.CRASHED: (
            tr("{file} could not be read.", file=name),
            tr("Save it in another format, such as PDF or plain text."),
        ),
        ExtractionFault.MISSING: (
            tr("{file} was not found.", file=name),
            tr("It may have been moved or deleted."),
        ),
        ExtractionFault.NOT_A_FILE: (tr("{file} is not a file.", file=name), tr("Attach a file.")),
        ExtractionFault.CHANGED: (
            tr("{file} changed while it was read.", file=name),
            tr("Attach it again when it is complete."),
        ),
        ExtractionFault.UNREADABLE: (
            tr("{file} cannot be read: {reason}.", file=name, reason=detail.rstrip(".")),
            tr("Check its permissions and its disk."),
        ),
        ExtractionFault.CANCELLED: (tr("Reading {file} was stopped.", file=name), ""),
    }[fault]


def _look_words(name: str, look: str) -> tuple[str, str]:
    """Of a file in whose format there is no text, or none that can be read."""
    old = tr("{file} is in an old Office format, which cannot be read.", file=name)
    words: dict[str, tuple[str, str]] = {
        Look.PICTURE: (tr("{file} is a picture, which has no text.", file=name), ""),
        Look.UNREAD_PICTURE: (
            tr("{file} is a picture in a format that cannot be read.", file=name),
            tr("Save it as JPEG or PNG, and attach that."),
        ),
        Look.AUDIO: (tr("{file} is a sound recording, which has no text.", file=name), ""),
        Look.VIDEO: (tr("{file} is a video, which has no text.", file=name), ""),
        Look.MODEL: (
            tr("{file} is a model or data for one, and no document.", file=name),
            tr("Open GGUF files in Models."),
        ),
        Look.PROGRAM: (tr("{file} is a program, and no document.", file=name), ""),
        Look.FONT: (tr("{file} is a font, and no document.", file=name), ""),
        Look.DATABASE: (tr("{file} is a database, and no document.", file=name), ""),
        Look.DISK: (tr("{file} is a disk image, and no document.", file=name), ""),
        Look.COMPRESSED: (
            tr("{file} is an archive of an unknown kind.", file=name),
            tr("Unpack it, and attach its files."),
        ),
        Look.OLD_WORD: (old, tr("Save it as DOCX, and attach that.")),
        Look.OLD_SHEETS: (old, tr("Save it as XLSX, and attach that.")),
        Look.OLD_SLIDES: (old, tr("Save it as PPTX, and attach that.")),
        Look.OUTLOOK: (
            tr("{file} is a message of Outlook in a format that cannot be read.", file=name),
            tr("Save it as EML or plain text, and attach that."),
        ),
        Look.PAGES: (
            tr("{file} is a document of Pages, Numbers or Keynote.", file=name),
            tr("Export it as PDF or in an Office format, and attach that."),
        ),
        Look.EBOOK: (
            tr("{file} is an electronic book in a format that cannot be read.", file=name),
            tr("Convert it to EPUB or PDF, and attach that."),
        ),
        Look.DRAWING: (
            tr("{file} is a drawing.", file=name),
            tr("Export it as PDF, and attach that."),
        ),
    }
    other = (
        tr("{file} is in a format that cannot be read.", file=name),
        tr("Save it as PDF or plain text, and attach that."),
    )
    return words.get(look, other)
