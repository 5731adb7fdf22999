"""Words for collections: how many files, and how far they are read."""

from __future__ import annotations

from app.domain.collection import Collection, CollectionView
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
