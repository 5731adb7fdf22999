"""Choices of folders and files for collections: taken, or refused with one sentence.

Paths are compared as they are written: a drive that does not respond must not stop the window.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from app.chat.documents.collections import Collections
from app.chat.settings.chat_settings import ChatSettingsController
from app.domain.collection import Collection
from app.state.chat import Notice, State
from app.system.translation import tr

NOTICE = "collection"  # kind of the notice about what cannot be in a collection


class CollectionChoices:
    """Makes and extends collections as the user asks; every method returns at once."""

    def __init__(
        self, state: State, collections: Collections, settings: ChatSettingsController, own: Path
    ) -> None:
        """`own` is the folder of the app's own data."""
        self._state, self._collections, self._settings = state, collections, settings
        self._own = os.path.abspath(own)

    def make(self, paths: Sequence[Path]) -> int | None:
        """Make a collection, unless there is one of just these; returns its id, None if refused."""
        sources = self._usable(paths)
        if not sources:
            return None
        there = self._collections.state.collections
        same = (each.id for each in there if set(each.sources) == set(sources))
        found = next(same, None)
        if found is not None:
            return found
        name = _name(sources, {each.name for each in there})
        return self._collections.add(map(Path, sources), name)

    def use(self, paths: Sequence[Path]) -> None:
        """Let the shown chat be answered from a collection of these."""
        if (id := self.make(paths)) is not None:
            self._settings.use_collection(id)

    def extend(self, id: int, paths: Sequence[Path]) -> None:
        """Add folders and files to a collection; sources inside of them are merged into them."""
        collection = self._collections.state.collection(id)
        sources = self._usable(paths, collection) if collection else []
        if collection and sources:
            self._collections.add_sources(id, map(Path, sources))
            for each in collection.sources:
                if _holder(each, sources):
                    self._collections.remove_source(id, each)

    def _usable(self, paths: Iterable[Path], collection: Collection | None = None) -> list[str]:
        """The paths that can be added; a notice says what cannot."""
        notices: list[Notice] = []
        sources = dict.fromkeys(map(os.path.abspath, paths))
        for each in tuple(sources):
            if (notice := self._refusal(each, collection)) is not None:
                notices.append(notice)
            if notice is not None or _holder(each, [other for other in sources if other != each]):
                del sources[each]
        self._state.set_notice(NOTICE, notices[0] if notices else None)
        return list(sources)

    def _refusal(self, path: str, collection: Collection | None) -> Notice | None:
        if path == os.path.dirname(path):
            sentence = tr("The whole disk {path} cannot be a collection.", path=path)
            return Notice(sentence, tr("Choose a folder on it."))
        if _holder(path, [self._own]):
            sentence = tr("The folder {path} has the app's own data.", path=path)
            return Notice(sentence, tr("Choose a folder of documents."))
        if collection is not None and _holder(path, collection.sources):
            name = os.path.basename(path)
            return Notice(tr("{file} is in “{name}” already.", file=name, name=collection.name))
        return None


def _holder(path: str, folders: Iterable[str]) -> str | None:
    """The one of some paths that is a path, or the folder it is in."""
    own = os.path.normcase(path)
    for each in folders:
        other = os.path.normcase(each)
        if own == other or own.startswith(other.rstrip(os.sep) + os.sep):
            return each
    return None


def _name(sources: Sequence[str], taken: set[str]) -> str:
    """That of the only source, or of the folder that several are in, and a number if need be."""
    first = Path(sources[0])
    several = len(sources) > 1 and len({os.path.dirname(each) for each in sources}) == 1
    name = (first.parent.name if several else first.name) or tr("Documents")
    numbered = (f"{name} {n}" for n in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)
