"""The built-in tools as a ToolSource: arguments fitted to the schema, faults as ToolError."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.domain.tools import CallContext, ToolError, ToolOutcome, ToolSpec
from app.tools.arguments import fit
from app.tools.builtin.calculate import Calculator
from app.tools.builtin.date_and_time import DateAndTime
from app.tools.builtin.fetch_page import FetchPage
from app.tools.builtin.read_file import ListFolder, ReadFile
from app.tools.builtin.search_texts import SearchChats, SearchDocuments
from app.tools.builtin.search_web import SearchWeb, WebSearch
from app.tools.builtin.tool import PREFIX, BuiltIn
from app.tools.builtin.write_file import WriteFile
from app.tools.services import Services

_log = logging.getLogger(__name__)


def _no_search() -> WebSearch | None:
    """No service is named."""
    return None


def _no_proxy() -> str:
    """The system's proxy."""
    return ""


class BuiltInTools:
    """The tools of the app itself; other sources are joined to it by `JoinedTools`."""

    def __init__(
        self,
        services: Services,
        *,
        web_search: Callable[[], WebSearch | None] = _no_search,
        proxy: Callable[[], str] = _no_proxy,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """`web_search` and `proxy` give the user's settings, on any thread; `now` the time."""
        tools: tuple[BuiltIn, ...] = (
            Calculator(),
            DateAndTime(now),
            ReadFile(services),
            ListFolder(),
            WriteFile(services),
            SearchDocuments(services),
            SearchChats(services),
            FetchPage(services, proxy),
            SearchWeb(web_search, proxy),
        )
        self._tools = {PREFIX + tool.spec.name: tool for tool in tools}

    def tools(self) -> Sequence[ToolSpec]:
        """The tools as they are now."""
        return [tool.spec for tool in self._tools.values()]

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """What a call changes or sends; raises ToolError for one that will fail."""
        tool = self._of(id)
        return tuple(tool.changes(fit(arguments, tool.spec.schema), context))

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        """What else consent is bound to; nothing for a call that will fail."""
        try:
            tool = self._of(id)
            return tool.scope(fit(arguments, tool.spec.schema))
        except ToolError:
            return ""

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        """Carry out a call; raises ToolError, and nothing else."""
        tool = self._of(id)
        spec = tool.spec
        try:
            return ToolOutcome(await tool.call(fit(arguments, spec.schema), context))
        except ToolError:
            raise
        except Exception as error:
            _log.exception("a built-in tool failed: %s", spec.name)
            raise ToolError(f"The tool failed: {type(error).__name__}.") from error

    def _of(self, id: str) -> BuiltIn:
        tool = self._tools.get(id)
        if tool is None:
            raise ToolError(f'There is no tool "{id[:80]}".')
        return tool
