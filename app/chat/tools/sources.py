"""What the tools of the window come from: the built-in ones, the sandbox for Python, servers.

All of it is imported when a chat with tools, or the list of tools, first asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.tools.thread import ToolThread
from app.domain.tools import ToolSource
from app.settings.table import Settings
from app.system.json_file import JsonFileError
from app.system.secret_store import NoKeyring, SecretStore
from app.system.worker import BackgroundWorker
from app.tools.joined import JoinedTools
from app.tools.services import Services

if TYPE_CHECKING:
    from app.tools.builtin.search_web import WebSearch

_KEY = "search "  # before the name of a search service: id of its key
_log = logging.getLogger(__name__)


class ToolSources:
    """Makes the source of all tools, and keeps the keys of search services."""

    def __init__(
        self,
        thread: ToolThread,
        services: Services,
        settings: Callable[[], Settings],
        secrets: Path,
        servers: Callable[[], ToolSource],
        changed: Callable[[], None],
    ) -> None:
        """`secrets` is the file of keys that the keyring does not take; `servers` makes the source
        of the tools of servers. `changed` is called on the GUI thread when tools are others than
        before.
        """
        self._servers = servers
        self._thread, self._services, self._settings = thread, services, settings
        self._changed = changed
        self._keys: dict[str, str] = {}  # by service, as far as they are known
        self._secrets = SecretStore(secrets)
        self._worker = BackgroundWorker("tool keys", thread)

    def make(self) -> ToolSource:
        """The source of all tools."""
        from app.tools.builtin.source import BuiltInTools
        from app.tools.sandbox.tool import PythonTool

        python = PythonTool()
        python.check(lambda: self._thread.tell(self._changed))
        self._look_for_missing_key()
        built_in = BuiltInTools(
            self._services, web_search=self._web_search, proxy=lambda: self._settings().proxy
        )
        return JoinedTools((built_in, python, self._servers()))  # the first ones keep their names

    def settings_changed(self) -> None:
        """The search service may be another one."""
        self._look_for_missing_key()
        self._changed()

    def look_for_key(self, provider: str, then: Callable[[bool], None] = lambda _: None) -> None:
        """Read the key of a search service; `then` is told whether there is one."""

        def read() -> str:
            try:
                return self._secrets.load(_KEY + provider) or ""
            except NoKeyring:
                return ""

        def found(key: str) -> None:
            self._keys[provider] = key
            self._changed()
            then(bool(key))

        self._worker.run(read, found)

    def set_key(self, provider: str, key: str, then: Callable[[bool], None]) -> None:
        """Keep the key of a search service, "": none; `then` is told whether there is one now."""

        def write() -> bool:
            try:
                if key:
                    self._secrets.save(_KEY + provider, key)
                else:
                    self._secrets.delete(_KEY + provider)
            except (JsonFileError, NoKeyring) as error:
                _log.warning("a key cannot be kept: %s", error)
                return False
            return True

        def written(done: bool) -> None:
            if done:
                self._keys[provider] = key
            self._changed()
            then(bool(self._keys.get(provider)))

        self._worker.run(write, written)

    def close(self) -> None:
        """Read and keep no more keys."""
        self._worker.close()

    def _look_for_missing_key(self) -> None:
        provider = self._settings().search_provider
        if provider in ("brave", "tavily") and provider not in self._keys:
            self.look_for_key(provider)

    def _web_search(self) -> WebSearch | None:
        from app.tools.builtin.search_web import SearchService, WebSearch

        settings = self._settings()
        match settings.search_provider:
            case "searxng" if settings.search_address:
                return WebSearch(SearchService.SEARXNG, settings.search_address)
            case "brave" | "tavily" as name if key := self._keys.get(name):
                return WebSearch(SearchService(name), key=key)
            case _:
                return None
