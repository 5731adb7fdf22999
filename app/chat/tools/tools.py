"""Tools of the window: what the panel and the list of all calls show, and the parts that work on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.domain.model_ref import ModelRef
from app.domain.parts import ToolCallPart
from app.engines.capabilities import Capabilities
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, start
from app.settings.table import Settings
from app.state.chat import ModelPhase, State
from app.state.tool_servers import ToolServersState
from app.state.tools import ToolRow, ToolsState
from app.store.blobs import Blobs
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker
from engine import CountTokens, TokensCounted, disk_files

if TYPE_CHECKING:
    from app.chat.documents.file_texts import TextExtractor
    from app.chat.documents.retrieval import Retrieval
    from app.chat.tools.calls import ToolCalls
    from app.chat.tools.grants import Grants
    from app.chat.tools.offered import OfferedTools
    from app.chat.tools.server_offers import ServerOffers
    from app.chat.tools.servers import ToolServers
    from app.chat.tools.services import ToolServices
    from app.chat.tools.sources import ToolSources
    from app.chat.tools.thread import ToolThread
    from app.domain.tool_activity import ToolActivity
    from app.domain.tools import ToolSource, ToolSpec

_PAGE = 100  # calls that the list shows first
_MOST_EXPORTED = 1_000_000
_SERVERS = "tool servers.json"  # in the folder of the chats


class Tools(QObject):
    """Has what carries out calls, and keeps `ToolsState`.

    Each part is imported and made when it is first asked for: a chat without tools has none of them.
    """

    prompt_came = Signal(str)  # text of a prompt of a server, for the message that is written
    resource_came = Signal(object)  # AttachedResource, for the same

    def __init__(
        self,
        state: State,
        shown: ToolsState,
        servers: ToolServersState,
        store_queue: StoreQueue,
        engine: EngineClient,
        blobs: Blobs,
        retrieval: Retrieval,
        settings: Callable[[], Settings],
        capabilities: Callable[[ModelRef | None], Capabilities],
        files: BackgroundWorker,
        extractor: Callable[[], TextExtractor],
        report: Callable[[Exception], None],
        parent: QObject | None = None,
        *,
        source: Callable[[], ToolSource] | None = None,
    ) -> None:
        """`extractor` makes the extractor of texts; `report` is called with unexpected exceptions.
        `source` makes what all tools come from; None: those of `app.tools`.
        """
        super().__init__(parent)
        self._state, self._shown, self._store_queue = state, shown, store_queue
        self._shown_servers, self._engine, self._blobs = servers, engine, blobs
        self._retrieval, self._settings, self._capabilities = retrieval, settings, capabilities
        self._files, self._extractor, self._report = files, extractor, report
        self._source = source
        self._is_shown = self._is_closed = False  # rows were asked for; the app quits
        self._most = 0  # calls of the list that are shown; 0: none was asked for
        self._tokens: dict[tuple[str, str], int] = {}  # by model and digest of a tool
        state.conversation_changed.connect(self._refresh)
        state.conversation_changed.connect(self._look_for_calls)
        state.model_changed.connect(self._refresh)
        state.settings_changed.connect(self._on_settings)

    # --- the parts ------------------------------------------------------------------------------

    @cached_property
    def thread_of_tools(self) -> ToolThread:
        """What calls are carried out on."""
        from app.chat.tools.thread import ToolThread

        return ToolThread(self._report, self)

    @cached_property
    def servers(self) -> ToolServers:
        """The servers of tools."""
        from app.chat.tools.servers import ToolServers

        return ToolServers(
            self._state, self._shown_servers, self.thread_of_tools, self._servers_file, self._engine,
            lambda: self._settings().proxy, self._refresh, self._report, self,
        )  # fmt: skip

    @cached_property
    def server_offers(self) -> ServerOffers:
        """Resources and prompts of servers."""
        from app.chat.tools.server_offers import ServerOffers

        made = ServerOffers(self._state, self._shown_servers, self.servers, self)
        made.prompt_came.connect(self.prompt_came)
        made.resource_came.connect(self.resource_came)
        return made

    @cached_property
    def _services(self) -> ToolServices:
        from app.chat.tools.services import ToolServices

        return ToolServices(
            self.thread_of_tools, self._retrieval, self._store_queue, self._extractor
        )

    @cached_property
    def sources(self) -> ToolSources:
        """What all tools come from."""
        from app.chat.tools.sources import ToolSources

        keys = self._store_queue.path.with_name("tool-keys.json")
        return ToolSources(
            self.thread_of_tools, self._services, self._settings, keys,
            lambda: self.servers.source(), self._refresh,
        )  # fmt: skip

    @cached_property
    def offered(self) -> OfferedTools:
        """The tools of each chat."""
        from app.chat.tools.offered import OfferedTools

        make = self._source or (lambda: self.sources.make())
        return OfferedTools(self._state, make, self._capabilities)

    @cached_property
    def grants(self) -> Grants:
        """What the user has allowed."""
        from app.chat.tools.grants import Grants

        return Grants(self._shown, self._store_queue)

    @cached_property
    def calls(self) -> ToolCalls:
        """The calls in progress."""
        from app.chat.tools.calls import ToolCalls
        from app.chat.tools.kept_files import FileKeeper

        made = ToolCalls(
            self._state, self._shown, self._store_queue, self.offered, self.grants,
            self.thread_of_tools, self._blobs, FileKeeper(self._blobs, self._services.look),
            lambda: self._settings().tool_seconds, self._report, self._on_recorded,
        )  # fmt: skip
        if self._is_closed:
            made.close()
        return made

    # --- life -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the servers that start with the app, if any is stored; after the first paint."""
        if self._servers_file.is_file():
            self.servers.begin()

    def of(self, conversation: int | None) -> tuple[ToolSpec, ...]:
        """The tools that the model of a chat may call."""
        has_tools = bool(self._state.settings(conversation).tools)
        return self.offered.of(conversation) if has_tools else ()

    def look(self) -> None:
        """Show the tools that there are: the panel is open."""
        self._is_shown = True
        self._refresh()

    def close(self) -> None:
        """Stop all calls; answers that wait for them can be continued in the next run."""
        self._is_closed, made = True, vars(self)
        if "calls" in made:
            self.calls.close()
        if "servers" in made:
            self.servers.close()
        if "thread_of_tools" in made:
            self.thread_of_tools.stop()
        if "_services" in made:
            self._services.close()
        if "sources" in made:
            self.sources.close()

    @property
    def _servers_file(self) -> Path:
        return self._store_queue.path.with_name(_SERVERS)

    # --- the list of all calls ------------------------------------------------------------------

    def show_activity(self, count: int = _PAGE) -> None:
        """Show the last calls, and what is allowed."""
        self._most = max(self._most, count)
        self.grants.read()
        most = self._most
        self._store_queue.read(
            lambda store: store.tool_calls(most), lambda found: self._shown.set_activity(*found)
        )

    def export_activity(self, path: Path, failed: Callable[[OSError], None]) -> None:
        """Write all calls to a JSON file."""

        def found(result: tuple[list[ToolActivity], int]) -> None:
            def write() -> OSError | None:
                rows = [asdict(row) for row in result[0]]
                text = json.dumps({"version": 1, "calls": rows}, indent=1, ensure_ascii=False)
                try:
                    disk_files.write(path, [text.encode("utf-8", "replace")])
                except OSError as error:
                    return error
                return None

            self._files.run(write, lambda error: failed(error) if error else None)

        self._store_queue.read(lambda store: store.tool_calls(_MOST_EXPORTED), found)

    def _look_for_calls(self) -> None:
        """Read the last calls when a chat with some is shown: their cards say who allowed them."""
        parts = (part for message in self._state.messages for part in message.parts)
        if not self._most and any(isinstance(part, ToolCallPart) for part in parts):
            self.show_activity()

    def _on_recorded(self, row: ToolActivity) -> None:
        if not self._most:
            self.show_activity()  # the card of the call says who allowed it
            return
        title = next((c.title for c in self._state.conversations if c.id == row.conversation), "")
        row = replace(row, title=title)
        shown = self._shown.activity
        is_new = row.id > max((each.id for each in shown), default=0)  # ids grow
        others = (each for each in shown if each.id != row.id)
        rows = sorted((row, *others), key=lambda each: (each.began, each.id), reverse=True)
        self._shown.set_activity(rows[: self._most], self._shown.activity_count + is_new)

    # --- the tools of the shown chat ------------------------------------------------------------

    def _on_settings(self, conversation: int | None) -> None:
        if conversation == self._state.current:
            self._refresh()

    def _refresh(self) -> None:
        """Show the tools, if anyone looks or the shown chat has some, and count their tokens."""
        if not (self._is_shown or self._state.settings(self._state.current).tools):
            return
        reason = self.offered.reason(self._state.current)
        tools = self.offered.source.tools()
        self._shown.set_rows([ToolRow(tool, self._counted(tool)) for tool in tools], reason)
        name = self._state.model.name
        missing = [tool for tool in tools if (name, tool.digest) not in self._tokens]
        if missing and self._state.model.phase is ModelPhase.READY:
            start(self._count(missing, self._state.model.name), self._report)

    def _counted(self, tool: ToolSpec) -> int:
        return max(self._tokens.get((self._state.model.name, tool.digest), 0), 0)

    async def _count(self, tools: list[ToolSpec], model: str) -> None:
        """Count the tokens of descriptions with the model in use, one after the other."""
        for tool in tools:
            self._tokens[model, tool.digest] = -1  # not twice
        for tool in tools:
            text = json.dumps(
                {"name": tool.name, "description": tool.description, "parameters": tool.schema}
            )
            try:
                counted = await self._engine.submit(CountTokens(text)).result(TokensCounted)
            except RequestFailed:
                break
            if model != self._state.model.name:  # another one has counted
                break
            self._tokens[model, tool.digest] = counted.tokens
        else:
            self._refresh()
        self._tokens = {key: count for key, count in self._tokens.items() if count >= 0}
