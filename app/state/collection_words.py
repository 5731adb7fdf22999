"""Words about collections: how far they are read, and which files cannot be or are not there."""

from __future__ import annotations

from pathlib import Path

from app.documents.source import ExtractionFault
from app.domain.collection import Collection, CollectionFile, CollectionView, Problem
from app.domain.documents import DocumentWarning
from app.state.document_faults import fault_sentence
from app.system.translation import listed, number, tr, trn


def state_words(collection: Collection, view: CollectionView) -> str:
    """How far a collection is read, and what is wrong with it, in one line."""
    out = trn("{count} left out", "{count} left out", view.left_out) if view.left_out else ""
    return " · ".join(filter(None, (files_words(collection, view), out, fault_words(view))))


def files_words(collection: Collection, view: CollectionView) -> str:
    """How far a collection is read."""
    if not collection.sources:
        return tr("No folder and no file yet")
    if not view.scanned and not view.files:
        return tr("Looking through the folders…")
    if view.done < view.files:
        done, files = number(view.done), number(view.files)
        return tr("Reading: {done} of {files} files", done=done, files=files)
    return trn("{count} file", "{count} files", view.files)


def fault_words(view: CollectionView) -> str:
    """What is wrong with a collection; "": nothing."""
    parts: list[str] = []
    if view.problems:
        parts.append(trn("{count} problem", "{count} problems", len(view.problems)))
    if view.cut:
        parts.append(tr("there are more files than a collection can have"))
    return " · ".join(parts)


def sources_words(collection: Collection) -> str:
    """Where its files are."""
    return listed(collection.sources)


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
