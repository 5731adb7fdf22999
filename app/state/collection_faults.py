"""Sentences about files of collections that cannot be read, or are not there."""

from __future__ import annotations

from pathlib import Path

from app.documents.source import ExtractionFault
from app.domain.collection import CollectionFile, Problem
from app.domain.documents import DocumentWarning
from app.state.document_faults import fault_sentence
from app.system.translation import tr, trn


def problem_of(file: CollectionFile) -> Problem | None:
    """Why there is no text of a file; None: it is of a kind that has none."""
    name = Path(file.path).name
    match file.fault:
        case ExtractionFault.UNKNOWN:
            return None
        case DocumentWarning.EMPTY:
            return Problem(file.path, tr("There is no text in {file}.", file=name))
        case DocumentWarning.SCANNED:
            return Problem(
                file.path, tr("The pages of {file} are pictures without text.", file=name)
            )
        case _:
            known = file.fault in list(ExtractionFault)
            fault = ExtractionFault(file.fault) if known else ExtractionFault.CRASHED
            return Problem(file.path, *fault_sentence(name, fault, file.detail))


def source_problem(path: str, reason: str = "", kept: int = 0) -> Problem:
    """A folder or a file that cannot be reached, or the reason why it cannot be read.

    `kept` is how many files were read of it before.
    """
    if reason:
        sentence = tr("{path} cannot be read: {reason}.", path=path, reason=reason.rstrip("."))
        return Problem(path, sentence, tr("Check its permissions and its disk."), kept)
    return Problem(
        path,
        tr("{path} cannot be reached.", path=path),
        tr("Questions are answered from what was read of it before. Connect its drive again."),
        kept,
    )


def emptied_problem(path: str, kept: int) -> Problem:
    """A folder of which all files are gone at once, as when its drive is taken out."""
    return Problem(
        path,
        trn(
            "{path} is empty now: the {count} file that was in it is gone.",
            "{path} is empty now: all {count} files that were in it are gone.",
            kept,
            path=path,
        ),
        tr("Questions are answered from what was read of it before. Connect its drive again."),
        kept,
    )


def gone_problem(path: str) -> Problem:
    """A file that was there before."""
    sentence = tr("{file} is no longer there.", file=Path(path).name)
    return Problem(path, sentence, tr("Questions are no longer answered from it."))


def more_gone_problem(path: str, count: int) -> Problem:
    """More files that were there before, in or below a folder."""
    return Problem(
        path,
        trn(
            "{count} more file is no longer there.",
            "{count} more files are no longer there.",
            count,
        ),
        tr("Questions are no longer answered from them."),
    )


def more_problem(path: str, count: int) -> Problem:
    """More files that cannot be read, in or below a folder."""
    return Problem(
        path,
        trn("{count} more file cannot be read.", "{count} more files cannot be read.", count),
    )
