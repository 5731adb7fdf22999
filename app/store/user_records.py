"""Records of the user beside the chats: presets, saved prompts and collections."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from app.domain.chat import Preset
from app.domain.collection import Collection
from app.domain.snippet import Snippet
from app.store import collections, presets, snippets


class UserRecords(ABC):
    """The part of the store that has them."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _writing(self, *, durable: bool) -> AbstractContextManager[sqlite3.Connection]: ...

    # --- presets ----------------------------------------------------------------------------

    def presets(self) -> list[Preset]:
        """The presets of the user, and those of the app that the user changed or deleted."""
        with self._reading() as database:
            return presets.read_presets(database)

    def set_preset(self, preset: Preset) -> None:
        """Insert a preset, or replace the one with its id."""
        with self._writing(durable=True) as database:
            presets.set_preset(database, preset)

    def delete_preset(self, id: int) -> None:
        """Remove a preset; one of the app is again as it came."""
        with self._writing(durable=True) as database:
            presets.delete_preset(database, id)

    # --- saved prompts ----------------------------------------------------------------------

    def snippets(self) -> list[Snippet]:
        """The saved prompts, the oldest first."""
        with self._reading() as database:
            return snippets.read_snippets(database)

    def write_snippet(self, snippet: Snippet) -> None:
        """Save a prompt in place of the one with its id."""
        with self._writing(durable=True) as database:
            snippets.write_snippet(database, snippet)

    def delete_snippet(self, snippet_id: int) -> None:
        """Delete a saved prompt."""
        with self._writing(durable=True) as database:
            snippets.delete_snippet(database, snippet_id)

    # --- collections ------------------------------------------------------------------------

    def collections(self) -> list[Collection]:
        """The collections, the oldest first."""
        with self._reading() as database:
            return collections.read_collections(database)

    def write_collection(self, collection: Collection) -> None:
        """Save a collection in place of the one with its id."""
        with self._writing(durable=True) as database:
            collections.write_collection(database, collection)

    def delete_collection(self, collection_id: int) -> None:
        """Delete a collection; its files stay where they are."""
        with self._writing(durable=True) as database:
            collections.delete_collection(database, collection_id)
