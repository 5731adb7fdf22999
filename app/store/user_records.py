"""Records of the user beside the chats: presets, saved prompts, collections, and those of tools."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from app.domain.chat import Preset
from app.domain.collection import Collection
from app.domain.snippet import Snippet
from app.domain.tool_activity import Grant, ToolActivity
from app.store import collections, presets, snippets, tool_records
from app.store.queries import find_record, set_record

_MAY_ALWAYS = "tools allowed always"


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

    # --- tools ------------------------------------------------------------------------------

    def grants(self) -> list[Grant]:
        """What is allowed to tools, the newest first."""
        with self._reading() as database:
            return tool_records.read_grants(database)

    def write_grant(self, grant: Grant) -> None:
        """Allow later calls of a tool."""
        with self._writing(durable=True) as database:
            tool_records.write_grant(database, grant)

    def delete_grant(self, grant: Grant) -> None:
        """Allow later calls of a tool no more."""
        with self._writing(durable=True) as database:
            tool_records.delete_grants(database, grant.tool, grant.scope, grant.conversation)

    def delete_grants(self) -> None:
        """Allow nothing to tools any more."""
        with self._writing(durable=True) as database:
            tool_records.delete_all_grants(database)

    def may_always(self) -> frozenset[str]:
        """The ids of the tools that may be allowed in all chats although they change something."""
        with self._reading() as database:
            return frozenset(find_record(database, _MAY_ALWAYS).split("\n")) - {""}

    def set_may_always(self, tools: frozenset[str]) -> None:
        """Save the ids of the tools that may be allowed in all chats."""
        with self._writing(durable=True) as database:
            set_record(database, _MAY_ALWAYS, "\n".join(sorted(tools)))

    def write_call(self, call: ToolActivity) -> None:
        """Insert a call of a tool, or replace the one with its id."""
        with self._writing(durable=True) as database:
            tool_records.write_call(database, call)

    def tool_calls(self, most: int) -> tuple[list[ToolActivity], int]:
        """The last calls of tools, the newest first, and how many there are."""
        with self._reading() as database:
            return tool_records.read_calls(database, most)

    def begun_calls(self, message_id: int) -> frozenset[str]:
        """The ids of a message's calls that have begun and have no end."""
        with self._reading() as database:
            return tool_records.begun_calls(database, message_id)
