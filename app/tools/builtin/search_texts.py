"""The tools `search_documents` (of the chat) and `search_chats` (all of them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.tools import CallContext, Effect, ToolError, ToolSpec
from app.tools.builtin.tool import Changeless, schema, spec
from app.tools.services import Found, Services

_COUNT, _MOST = 5, 20  # results
_LONGEST_QUERY = 1000  # characters
_LONGEST_TEXT = 3000  # of one result
_DOCUMENTS = (
    "Search the documents of this chat for passages about something."
    ' Example: {"query": "notice period of the lease"}'
)
_CHATS = (
    "Search all earlier chats of the user, when something said there is needed."
    ' Example: {"query": "name of the hotel in Lisbon"}'
)


class SearchDocuments(Changeless):
    """Finds passages in the documents of the chat."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        return spec("search_documents", _DOCUMENTS, _form(), Effect.READS)

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The passages; raises ToolError."""
        query, count = _asked(arguments)
        found = await self._services.passages(context.conversation, query, count)
        return _shown(found[:count], f'No passage of this chat\'s documents fits "{query}".')


class SearchChats(Changeless):
    """Finds messages in all chats."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        return spec("search_chats", _CHATS, _form(), Effect.READS)

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The messages; raises ToolError."""
        del context
        query, count = _asked(arguments)
        found = await self._services.chats(query, count)
        return _shown(found[:count], f'No message fits "{query}".')


def _form() -> str:
    return schema(
        ("query",),
        query=("string", "what to search for"),
        count=("integer", f"results, 1 to {_MOST}; default {_COUNT}"),
    )


def _asked(arguments: Mapping[str, Any]) -> tuple[str, int]:
    query = str(arguments["query"]).strip()
    if not query or len(query) > _LONGEST_QUERY:
        raise ToolError(f'Send a "query" of 1 to {_LONGEST_QUERY:,} characters.')
    return query, min(max(int(arguments.get("count") or _COUNT), 1), _MOST)


def _shown(found: Sequence[Found], none: str) -> str:
    """Results with a line above each that says where it is from."""
    made: list[str] = []
    for number, each in enumerate(found, 1):
        text = each.text.strip()
        text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
        place = f", {each.place}" if each.place else ""
        made.append(f"({number}) {each.name}{place}\n{text}")
    return "\n\n".join(made) or none
