"""Tools of the window: what the panel and the list of all calls show, and the parts that work on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from PySide6.QtCore import QObject

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
from app.domain.model_ref import ModelRef
from app.domain.tool_activity import ToolActivity
from app.domain.tools import ToolSource, ToolSpec
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

_PAGE = 100  # calls that the list shows first
_MOST_EXPORTED = 1_000_000


class Tools(QObject):
    """Has what carries out calls, and keeps `ToolsState`; nothing is made before it is needed."""

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
        self._engine, self._files, self._report = engine, files, report
        self.thread_of_tools = ToolThread(self)
        self.servers = ToolServers(
            state, servers, self.thread_of_tools, store_queue.path.parent, engine,
            self._refresh, report, self,
        )  # fmt: skip
        self.server_offers = ServerOffers(state, servers, self.servers, self)
        self._services = ToolServices(self.thread_of_tools, retrieval, store_queue, extractor)
        self.sources = ToolSources(
            self.thread_of_tools,
            self._services,
            settings,
            store_queue.path.with_name("tool-keys.json"),
            self.servers.source,
            self._refresh,
        )
        self.offered = OfferedTools(state, source or self.sources.make, capabilities)
        self.grants = Grants(shown, store_queue)
        self.calls = ToolCalls(
            state, shown, store_queue, self.offered, self.grants, self.thread_of_tools, blobs,
            lambda: settings().tool_seconds, report, self._on_recorded,
        )  # fmt: skip
        self._is_shown = False  # rows were asked for
        self._most = 0  # calls of the list that are shown; 0: none was asked for
        self._tokens: dict[tuple[str, str], int] = {}  # by model and digest of a tool
        state.conversation_changed.connect(self._refresh)
        state.model_changed.connect(self._refresh)
        state.settings_changed.connect(self._on_settings)

    def look(self) -> None:
        """Show the tools that there are: the panel is open."""
        self._is_shown = True
        self._refresh()

    def close(self) -> None:
        """Stop all calls; answers that wait for them can be continued in the next run."""
        self.servers.close()
        self.thread_of_tools.stop()
        self._services.close()
        self.sources.close()

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

    def _on_recorded(self, row: ToolActivity) -> None:
        if not self._most:
            return
        title = next((c.title for c in self._state.conversations if c.id == row.conversation), "")
        row = replace(row, title=title)
        others = [each for each in self._shown.activity if each.id != row.id]
        count = self._shown.activity_count + (len(others) == len(self._shown.activity))
        rows = sorted((row, *others), key=lambda each: (each.began, each.id), reverse=True)
        self._shown.set_activity(rows, count)

    # --- the tools of the shown chat ------------------------------------------------------------

    def _on_settings(self, conversation: int | None) -> None:
        if conversation == self._state.current:
            self._refresh()

    def _refresh(self) -> None:
        """Show the tools, if anyone looks or the shown chat has some, and count their tokens."""
        if not (self._is_shown or self._state.settings(self._state.current).tools):
            return
        reason = self._shown_reason()
        tools = self.offered.source.tools()
        self._shown.set_rows([ToolRow(tool, self._counted(tool)) for tool in tools], reason)
        name = self._state.model.name
        missing = [tool for tool in tools if (name, tool.digest) not in self._tokens]
        if missing and self._state.model.phase is ModelPhase.READY:
            start(self._count(missing, self._state.model.name), self._report)

    def _shown_reason(self) -> str:
        return self.offered.reason(self._state.current)

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
                return
            self._tokens[model, tool.digest] = counted.tokens
        if model == self._state.model.name:
            self._refresh()
