"""The servers of tools: starts and stops them, and gives their tools to chats.

A server starts by `start` alone: never by an import, a link or the start of the app. The SDK is
imported by the first start, so that an app without servers does without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from app.domain.tools import CallContext, ToolError, ToolOutcome, ToolSpec
from app.system.secret_store import SecretStore
from app.system.translation import listed, number, sentences, tr
from app.tools.mcp.entries import EntryStore
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.errors import SessionEnded, StartError
from app.tools.mcp.hooks import (
    Hooks,
    ResourceContent,
    ServerPrompt,
    ServerResource,
    ServerState,
    ServerStatus,
)
from app.tools.mcp.log import ServerLog
from app.tools.mcp.naming import Named, changes_of, unique_names

if TYPE_CHECKING:
    from app.tools.mcp.session import Session

_STOP_SECONDS = 10.0
T = TypeVar("T")
_log = logging.getLogger(__name__)


class McpServers:
    """A `ToolSource` of all servers that run.

    Coroutines run on one event loop, that of the tools; what is no coroutine may be called from
    any thread. `changed` is called on the loop's thread after a server's state or tools changed.
    """

    def __init__(
        self,
        entries: EntryStore,
        secrets: SecretStore,
        hooks: Hooks | None = None,
        *,
        reserved: Callable[[], Iterable[str]] = lambda: (),
        proxy: Callable[[], str] = lambda: "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`reserved` are names of other tools, which none of a server may have."""
        self.entries = entries
        self._secrets, self._hooks = secrets, hooks or Hooks()
        self._reserved, self._proxy, self._changed = reserved, proxy, changed
        self._servers: dict[str, _Server] = {}
        self._tools: tuple[ToolSpec, ...] = ()

    # --- states ---------------------------------------------------------------------------------

    def statuses(self) -> tuple[ServerStatus, ...]:
        """All servers, in the order of their entries."""
        return tuple(self.status(each.id) for each in self.entries.all())

    def status(self, id: str) -> ServerStatus:
        """A server as it is now."""
        entry, server = self.entries.get(id), self._servers.get(id)
        name = entry.name if entry else id
        return replace(server.status, name=name) if server else ServerStatus(id, name)

    def log(self, id: str) -> tuple[str, ...]:
        """The last lines that a server printed and reported."""
        server = self._servers.get(id)
        return server.log.lines() if server else ()

    async def start(self, id: str) -> ServerStatus:
        """Start a server that does not run; returns when it is ready or failed."""
        entry = self.entries.get(id)
        if entry is None:
            return ServerStatus(id, id, ServerState.FAILED, tr("This server was deleted."))
        server = self._servers.get(id)
        if server is None:
            server = self._servers[id] = _Server(id, self._update)
        return await server.start(entry, self._hooks, self._secrets, self._proxy())

    async def stop(self, id: str) -> None:
        """Stop a server, and all that its program started."""
        if (server := self._servers.get(id)) is not None:
            await server.stop()

    async def restart(self, id: str) -> ServerStatus:
        """Stop a server and start it with its entry as it is now."""
        await self.stop(id)
        return await self.start(id)

    async def delete(self, id: str) -> None:
        """Stop a server and forget its entry and its login; raises `JsonFileError`."""
        await self.stop(id)
        entry = self.entries.get(id)
        await asyncio.to_thread(self.entries.delete, id)
        if entry is not None and entry.is_http:
            await asyncio.to_thread(self._secrets.delete, entry.login_id)
        self._servers.pop(id, None)
        self._update()

    async def close(self) -> None:
        """Stop all servers at once; what does not end in time is killed."""
        servers = list(self._servers.values())
        stops = [asyncio.ensure_future(each.stop()) for each in servers]
        if stops:
            await asyncio.wait(stops, timeout=_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End all programs at once, from any thread, as when the app ends without its loop."""
        for each in list(self._servers.values()):
            each.kill()

    # --- tools ----------------------------------------------------------------------------------

    def tools(self) -> Sequence[ToolSpec]:
        """The tools of all servers that run, under names that are unique."""
        return self._tools

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """Where the arguments go; what the server does with them nobody knows."""
        del arguments, context
        server = self._servers.get(id.partition("/")[0])
        if server is None or server.entry is None:
            return ()
        entry = server.entry
        return (
            tr("The arguments are sent to {name} ({where}).", name=entry.name, where=entry.where),
        )

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        """Nothing more: consent is bound to the tool, and its origin is the server's."""
        del id, arguments
        return ""

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        """Call a tool of a server that runs; raises ToolError."""
        server_id, _, name = id.partition("/")
        spec = next((each for each in self._tools if each.id == id), None)
        if spec is None:
            raise ToolError("This tool is not there any more: its server stopped or removed it.")
        if spec.problem:
            raise ToolError(spec.problem)
        return await self._asked(
            server_id, lambda session: session.call(name, arguments, context.output)
        )

    async def resources(self, id: str) -> tuple[ServerResource, ...]:
        """The resources of a server that runs; raises ToolError."""
        return await self._asked(id, lambda session: session.resources())

    async def read_resource(self, id: str, uri: str) -> tuple[ResourceContent, ...]:
        """The contents of a resource; raises ToolError."""
        return await self._asked(id, lambda session: session.read_resource(uri))

    async def prompts(self, id: str) -> tuple[ServerPrompt, ...]:
        """The prompts of a server that runs; raises ToolError."""
        return await self._asked(id, lambda session: session.prompts())

    async def prompt(self, id: str, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt; raises ToolError."""
        return await self._asked(id, lambda session: session.prompt(name, arguments))

    # --- steps ----------------------------------------------------------------------------------

    async def _asked(self, id: str, ask: Callable[[Session], Awaitable[T]]) -> T:
        """What a server answers; one that forgot the connection is connected to again, once."""
        for is_last in (False, True):
            server = self._servers.get(id)
            if server is None or server.session is None:
                raise ToolError("The server of this tool is not running.")
            session = server.session
            try:
                return await ask(session)
            except SessionEnded as error:
                server.log.add("the server does not know the connection any more")
                if is_last or (await server.reconnect(session)).state is not ServerState.READY:
                    raise ToolError(f"{error} does not know the connection any more.") from error
        raise AssertionError("unreachable")

    def _update(self) -> None:
        """Give the tools of all servers their names, and tell of the change."""
        specs = [
            each
            for server in self._servers.values()
            if server.session is not None and server.status.state is ServerState.READY
            for each in server.session.tools
        ]
        named = [Named(each.id, each.server, each.name) for each in specs]
        names = unique_names(named, self._reserved())
        self._tools = tuple(replace(each, name=names[each.id]) for each in specs)
        self._changed()


class _Server:
    """One server through its runs."""

    def __init__(self, id: str, update: Callable[[], None]) -> None:
        self.status = ServerStatus(id, id)
        self.log = ServerLog()
        self.session: Session | None = None
        self.entry: ServerEntry | None = None  # as it was started
        self._update = update
        self._task: asyncio.Task[None] | None = None
        self._guard, self._reconnecting = asyncio.Lock(), asyncio.Lock()
        self._arguments: tuple[Hooks, SecretStore, str] | None = None
        self._stops = asyncio.Event()
        self._known: tuple[ToolSpec, ...] = ()

    async def start(
        self, entry: ServerEntry, hooks: Hooks, secrets: SecretStore, proxy: str
    ) -> ServerStatus:
        """Start it if it does not run."""
        async with self._guard:
            if self._task is None or self._task.done():
                self.entry, self._arguments = entry, (hooks, secrets, proxy)
                self._stops = asyncio.Event()
                settled = asyncio.Event()
                self._set(ServerState.STARTING)
                self._task = asyncio.create_task(self._run(settled), name=f"server {entry.id}")
                self._task.add_done_callback(lambda _: settled.set())
                await settled.wait()
        return self.status

    async def reconnect(self, ended: Session) -> ServerStatus:
        """Stop it, and start it as it was started, unless another call has done so."""
        async with self._reconnecting:
            if self.session is not ended or self.entry is None or self._arguments is None:
                return self.status
            entry, arguments = self.entry, self._arguments
            await ended.settle()
            await self.stop()
            return await self.start(entry, *arguments)

    async def stop(self) -> None:
        """Stop it; returns when it has ended."""
        task = self._task
        if task is None or task.done():
            return
        if self.status.state is ServerState.STARTING:
            task.cancel()
        self._stops.set()
        done, _ = await asyncio.wait({task}, timeout=_STOP_SECONDS)
        if not done:
            task.cancel()
            await asyncio.wait({task})

    def kill(self) -> None:
        """End its program at once."""
        if self.session is not None:
            self.session.kill()

    async def _run(self, settled: asyncio.Event) -> None:
        """One run, from the start to the end."""
        assert self.entry is not None
        entry = self.entry
        try:
            try:
                make = await asyncio.to_thread(_session_class)
            except ImportError as error:
                _log.info("the SDK of servers of tools cannot be imported: %s", error)
                self._set(
                    ServerState.FAILED,
                    tr("The package that speaks with servers of tools is not installed."),
                    tr('Install it with: pip install "tokonoma[mcp]"'),
                )
                return
            try:
                await self._connect(make, settled, "auto")
            except StartError as error:
                session = self.session
                if session is None or not session.ended_early or self._stops.is_set():
                    raise
                self.log.add(f"{error} It is started again with the older protocol.")
                await self._connect(make, settled, "legacy")
        except asyncio.CancelledError:
            self._set(ServerState.STOPPED)
        except StartError as error:
            self._set(ServerState.FAILED, str(error), error.remedy)
            self.log.add(str(error))
        finally:
            self.session = None
            self._update()
            self.log.add(f"{entry.name}: {self.status.state.value}")

    async def _connect(self, make: type[Session], settled: asyncio.Event, mode: Any) -> None:
        assert self.entry is not None
        assert self._arguments is not None
        hooks, secrets, proxy = self._arguments
        session = make(
            self.entry, hooks, secrets, self.log, self._list_changed, proxy=proxy, mode=mode
        )
        self.session = session
        async with session.opened() as ended:
            self._known = session.tools
            self._set(ServerState.READY, notice=self._cut_words(session))
            settled.set()
            waits = [asyncio.ensure_future(each.wait()) for each in (ended, self._stops)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()
            is_stopped = self._stops.is_set()
        if is_stopped:
            self._set(ServerState.STOPPED)
        else:
            self._set(ServerState.FAILED, session.reason, tr("Start it again."))

    def _list_changed(self) -> None:
        """The server lists other tools than before."""
        session = self.session
        if session is None:
            return
        added, changed, removed = changes_of(self._known, session.tools)
        self._known = session.tools
        if added or changed or removed:
            what = (
                tr("{count} new", count=number(added)) * bool(added),
                tr("{count} changed", count=number(changed)) * bool(changed),
                tr("{count} removed", count=number(removed)) * bool(removed),
            )
            changes, name = listed(what), self.status.name
            notice = tr("{name} changed its tools: {changes}.", name=name, changes=changes)
            notice = sentences(notice, self._cut_words(session))
            self.log.add(notice)
            self.status = replace(self.status, notice=notice, tools=len(session.tools))
            self._update()

    def _cut_words(self, session: Session) -> str:
        """That not all of its tools are used; "": they are."""
        count = number(len(session.tools))
        return tr("Only the first {count} of its tools are used.", count=count) * session.is_cut

    def _set(
        self, state: ServerState, problem: str = "", remedy: str = "", notice: str = ""
    ) -> None:
        session, entry = self.session, self.entry
        assert entry is not None
        is_ready = session is not None and state is ServerState.READY
        self.status = ServerStatus(
            self.status.id,
            entry.name,
            state,
            problem,
            remedy,
            notice,
            session.program if session and is_ready else "",
            session.protocol if session and is_ready else "",
            len(session.tools) if session and is_ready else 0,
        )
        self._update()


def _session_class() -> type[Session]:
    """What needs the SDK, whose import takes a second; raises ImportError."""
    from app.tools.mcp.session import Session

    return Session
