"""Observable collections of documents, and how far their files are read.

Only `app.chat.documents.collections` changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from PySide6.QtCore import Signal

from app.domain.collection import Collection, CollectionView
from app.state.observable import EMPTY, Observable, ReadOnly


@dataclass(frozen=True, slots=True)
class ShownCollection:
    """A collection that a chat is answered from, and what is known of its files."""

    collection: Collection
    view: CollectionView


class CollectionsState(Observable):
    """Observable; every signal is sent after the values have changed."""

    changed = Signal()  # `collections` or `deleted`
    views_changed = Signal()

    collections = ReadOnly[tuple[Collection, ...]](())  # by name
    deleted = ReadOnly[Collection | None](None)  # that can be restored
    views = ReadOnly[Mapping[int, CollectionView]](EMPTY)  # by id

    def collection(self, id: int | None) -> Collection | None:
        """A collection that is not deleted."""
        return next((each for each in self.collections if each.id == id), None)

    def view(self, id: int) -> CollectionView:
        """What is known of the files of a collection."""
        return self.views.get(id, CollectionView())

    def shown(self, ids: Iterable[int]) -> tuple[ShownCollection, ...]:
        """Those of these collections that are not deleted."""
        found = (self.collection(id) for id in ids)
        return tuple(ShownCollection(each, self.view(each.id)) for each in found if each)

    # --- changing: `app.chat.documents.collections` only --------------------------------------------------

    def set(self, collections: Sequence[Collection], deleted: Collection | None = None) -> None:
        """Replace the collections, and what can be restored."""
        self._collections = tuple(
            sorted(collections, key=lambda each: (each.name.casefold(), each.id))
        )
        self._deleted = deleted
        self.changed.emit()

    def set_views(self, views: Mapping[int, CollectionView]) -> None:
        """Replace what is known of their files."""
        self._set(self.views_changed, views=MappingProxyType(dict(views)))
