"""The servers of tools as calls see them: what was allowed starts, and what died starts once more.

Imported when the first server is stored or the page of servers is opened. Coroutines run on the
tools' event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from app.chat.tools.server_questions import NeedsConsent, Problem
from app.domain.builtin_words import NAMES
from app.domain.forms import FormField
from app.domain.tool_servers import (
    ImportPreview,
    Offered,
    ServerDraft,
    ServerPhase,
    ServerRow,
    StartQuestion,
)
from app.domain.tools import CallContext, ToolError, ToolOutcome, ToolSpec
from app.domain.visible_text import on_one_line
from app.system.json_file import JsonFileError
from app.system.secret_store import Keyring, SecretStore
from app.system.translation import listed, sentences, tr
from app.tools.mcp import import_json
from app.tools.mcp.entries import EntryStore
from app.tools.mcp.entry import EntryError, Pairs, ServerEntry, exact
from app.tools.mcp.hooks import Hooks, ServerState, ServerStatus
from app.tools.mcp.naming import safe_name
from app.tools.mcp.servers import McpServers

T = TypeVar("T")
_MOST_NAMED = 5
_PLACE = re.compile(r"\{\+?[A-Za-z0-9_.]+\}")  # of a template, that a form can fill in
_PHASES = {
    ServerState.OFF: ServerPhase.OFF,
    ServerState.STOPPED: ServerPhase.OFF,
    ServerState.STARTING: ServerPhase.STARTING,
    ServerState.READY: ServerPhase.READY,
    ServerState.FAILED: ServerPhase.FAILED,
}


class _NotAllowed(Exception):
    """A server that may not start before the user has allowed it, as `entry` is now."""

    def __init__(self, entry: ServerEntry) -> None:
        super().__init__(entry.name)
        self.entry = entry


class RunningServers:
    """A `ToolSource` of all servers that run, or that died and start again with the next call."""

    def __init__(
        self,
        folder: Path,
        keyring: Callable[[], Keyring],
        hooks: Hooks,
        proxy: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        """`folder` has the files; `changed` is called on the loop's thread."""
        self.entries = EntryStore(
            folder / "tool servers.json",
            secret_store=SecretStore(folder / "tool server keys.json", keyring),
        )
        logins = SecretStore(folder / "tool logins.json", keyring)
        self.servers = McpServers(
            self.entries,
            logins,
            hooks,
            reserved=lambda: NAMES,
            proxy=proxy,
            changed=self._on_changed,
        )
        self._logins, self._changed = logins, changed
        self._known: dict[str, tuple[ToolSpec, ...]] = {}  # tools of each server that runs
        self._died: dict[str, tuple[ToolSpec, ...]] = {}  # of those that a call starts again
        self._restarts = defaultdict[str, asyncio.Lock](asyncio.Lock)  # of these
        self._again: set[str] = set()  # started again, and no call has succeeded since
        self._listed: dict[str, tuple[tuple[Offered, ...], tuple[Offered, ...]]] = {}

    # --- tools ----------------------------------------------------------------------------------

    def tools(self) -> Sequence[ToolSpec]:
        """The tools of servers that run, and of those that a call starts again."""
        died = tuple(self._died.values())  # the loop's thread may change it
        return (*self.servers.tools(), *itertools.chain(*died))

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """Where the arguments go."""
        return self.servers.changes(id, arguments, context)

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        """Nothing more than the tool."""
        return self.servers.scope(id, arguments)

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        """Call a tool; raises ToolError."""
        server = id.partition("/")[0]
        if (specs := self._died.get(server)) is not None:
            async with self._restarts[server]:  # calls of a round come at once
                if server in self._died:
                    await self._start_again(server)
            before, now = (
                next((each.digest for each in found if each.id == id), "")
                for found in (specs, self.servers.tools())
            )
            if before != now:
                raise ToolError("This tool is another one since its server was started again.")
        outcome = await self.servers.call(id, arguments, context)
        self._again.discard(server)
        return outcome

    # --- starting -------------------------------------------------------------------------------

    async def attempt(self, work: Coroutine[Any, Any, T]) -> T | Problem | NeedsConsent:
        """What a coroutine of this object returns, or why it cannot."""
        try:
            return await work
        except _NotAllowed as error:
            return NeedsConsent(_question(error.entry), error.entry.origin)
        except (EntryError, JsonFileError) as error:
            return Problem(sentences(str(error), error.remedy))
        except ToolError as error:
            return Problem(str(error))

    async def start(self, id: str) -> None:
        """Start a server that was allowed as it is now; raises _NotAllowed."""
        entry = await asyncio.to_thread(self.entries.get, id)
        if entry is None:
            return
        if not entry.may_start:
            raise _NotAllowed(entry)
        await self.servers.start(id)

    async def stop(self, id: str) -> None:
        """Stop a server."""
        await self.servers.stop(id)
        self._died.pop(id, None)
        self._again.discard(id)
        self._changed()

    async def restart(self, id: str) -> None:
        """Stop a server, and start it as it is now; raises _NotAllowed."""
        await self.stop(id)
        await self.start(id)

    async def start_wanted(self, used: Iterable[str] | None) -> None:
        """Start servers that are on and allowed: those in `used`; None: those of the app's start."""
        wanted = None if used is None else set(used)
        starts = [
            self.servers.start(entry.id)
            for entry in await asyncio.to_thread(self.entries.all)
            if (entry.with_app if wanted is None else entry.id in wanted)
            and self.servers.status(entry.id).state in (ServerState.OFF, ServerState.STOPPED)
            and entry.enabled
            and entry.may_start
        ]
        await asyncio.gather(*starts)

    async def allow(self, id: str, origin: str) -> None:
        """Allow a server to start as it was shown, and start it; raises `JsonFileError`."""
        await self.change(id, allowed=origin, enabled=True)
        await self.restart(id)

    # --- entries --------------------------------------------------------------------------------

    async def change(self, id: str, **values: Any) -> None:
        """Change values of an entry; raises EntryError, `JsonFileError`."""
        entry = await asyncio.to_thread(self.entries.get, id)
        if entry is not None:
            await asyncio.to_thread(self.entries.save, replace(entry, **values))
            self._changed()

    async def save(self, draft: ServerDraft) -> None:
        """Keep what the user entered; one that runs as something else stops. Raises as `change`."""
        before = await asyncio.to_thread(self.entries.get, draft.id) if draft.id else None
        entry = replace(
            before or ServerEntry("", ""),
            name=draft.name,
            command=draft.command,
            arguments=draft.arguments,
            folder=draft.folder,
            environment=_with_kept(draft.environment, before.environment if before else ()),
            address=draft.address,
            headers=_with_kept(draft.headers, before.headers if before else ()),
            seconds=draft.seconds,
        )
        kept = await asyncio.to_thread(self.entries.save, entry)
        if before is not None and before.origin != kept.origin:
            await self.stop(kept.id)
        self._changed()

    async def delete(self, id: str) -> ServerEntry | None:
        """Stop and delete a server; returns what `restore` takes back. Raises `JsonFileError`."""
        entry = await asyncio.to_thread(self.entries.get, id)
        await self.stop(id)
        await self.servers.delete(id)
        self._listed.pop(id, None)
        return entry

    async def restore(self, entry: ServerEntry) -> None:
        """Take a deleted server back, without its login; raises as `change`."""
        await asyncio.to_thread(self.entries.save, replace(entry, enabled=False))
        self._changed()

    async def draft(self, id: str) -> ServerDraft | None:
        """A server to be edited, without its secrets."""
        entry = await asyncio.to_thread(self.entries.get, id)
        if entry is None:
            return None
        return ServerDraft(
            entry.id,
            entry.name,
            entry.command,
            entry.arguments,
            entry.folder,
            tuple((name, None) for name, _ in entry.environment),
            entry.address,
            tuple((name, None) for name, _ in entry.headers),
            entry.seconds,
        )

    async def preview(self, text: str) -> ImportPreview:
        """What an import of a file would store."""
        found = await asyncio.to_thread(import_json.read, text)
        return ImportPreview(text, tuple(map(_row, found.entries)), found.problems)

    async def add(self, text: str) -> None:
        """Store the servers of a file, all of them off; raises `JsonFileError`."""
        await asyncio.to_thread(self.entries.add, text)
        self._changed()

    async def forget_login(self, id: str) -> None:
        """Log out of a server, and stop it; raises `JsonFileError`."""
        await self.stop(id)
        if (entry := await asyncio.to_thread(self.entries.get, id)) is not None:
            await asyncio.to_thread(self._logins.delete, entry.login_id)

    # --- what is shown --------------------------------------------------------------------------

    async def rows(self) -> tuple[tuple[ServerRow, ...], tuple[str, ...]]:
        """All servers as they are now, and what is wrong with the stored ones."""
        entries = await asyncio.to_thread(self.entries.all)
        tools = self.servers.tools()
        rows: list[ServerRow] = []
        for entry in entries:
            status = self.servers.status(entry.id)
            if status.state is not ServerState.READY:
                self._listed.pop(entry.id, None)
            resources, prompts = self._listed.get(entry.id, ((), ()))
            rows.append(
                replace(
                    _row(entry),
                    phase=_PHASES[status.state],
                    problem=status.problem,
                    remedy=status.remedy,
                    notice=sentences(status.notice, _renamed(entry.id, tools)),
                    program=status.program,
                    tools=tuple(
                        Offered(each.name, each.title, each.description)
                        for each in tools
                        if each.id.startswith(f"{entry.id}/")
                    ),
                    resources=resources,
                    prompts=prompts,
                )
            )
        return tuple(rows), self.entries.problems

    async def list_offers(self) -> bool:
        """Ask servers that became ready for resources and prompts; whether there are new ones."""
        found = False
        for entry in await asyncio.to_thread(self.entries.all):
            is_ready = self.servers.status(entry.id).state is ServerState.READY
            if not is_ready or entry.id in self._listed:
                continue
            self._listed[entry.id] = ((), ())
            try:
                resources = await self.servers.resources(entry.id)
                prompts = await self.servers.prompts(entry.id)
            except ToolError:
                continue
            self._listed[entry.id] = (
                tuple(
                    Offered(r.uri, r.title, r.description, is_template=r.is_template)
                    for r in resources
                    if not r.is_template or "{" not in _PLACE.sub("", r.uri)
                ),
                tuple(
                    Offered(
                        p.name,
                        p.title,
                        p.description,
                        tuple(
                            FormField(
                                a.name,
                                on_one_line(a.name),
                                help=a.description,
                                is_required=a.is_required,
                            )
                            for a in p.arguments
                        ),
                    )
                    for p in prompts
                ),
            )
            found = found or bool(resources or prompts)
        return found

    # --- steps ----------------------------------------------------------------------------------

    async def _start_again(self, server: str) -> None:
        """Start a server that died; raises ToolError."""
        self._again.add(server)
        try:
            await self.start(server)
        except _NotAllowed as error:
            raise ToolError(f"{error} was changed and waits for the user's consent.") from error
        finally:
            self._died.pop(server, None)
        status = self.servers.status(server)
        if status.state is not ServerState.READY:
            raise ToolError(f"{status.name} could not be started again: {status.problem}")

    def _on_changed(self) -> None:
        """Remember the tools of a server that dies; called on the loop's thread."""
        specs = self.servers.tools()
        for status in map(self.servers.status, list({*self._known, *_servers_of(specs)})):
            self._note(status, specs)
        self._changed()

    def _note(self, status: ServerStatus, specs: Sequence[ToolSpec]) -> None:
        id = status.id
        match status.state:
            case ServerState.READY:
                self._known[id] = tuple(each for each in specs if each.id.startswith(f"{id}/"))
            case ServerState.FAILED if id in self._known and id not in self._again:
                self._died[id] = self._known.pop(id)
            case ServerState.FAILED | ServerState.STOPPED:
                self._known.pop(id, None)
            case ServerState.OFF | ServerState.STARTING:
                pass


def _question(entry: ServerEntry) -> StartQuestion:
    """Whether a server may start, exactly as it is now; its number is to be given."""
    before, now = entry.allowed.splitlines(), entry.origin.splitlines()
    gone = [f"- {each}" for each in before if each not in now]
    new = [f"+ {each}" for each in now if each not in before]
    return StartQuestion(
        0,
        entry.id,
        entry.name,
        tuple(map(exact, (entry.command, *entry.arguments))) if entry.command else (),
        exact(entry.folder) if entry.folder else "",
        tuple(exact(name) for name, _ in entry.environment),
        exact(entry.address) if entry.address else "",
        tuple(exact(name) for name, _ in entry.headers),
        (*gone, *new) if before else (),
    )


def _row(entry: ServerEntry) -> ServerRow:
    return ServerRow(
        entry.id,
        entry.name,
        exact(entry.address) if entry.is_http else entry.command_line,
        entry.is_http,
        is_on=entry.enabled,
        with_app=entry.with_app,
        asks_first=not entry.may_start,
        was_allowed=bool(entry.allowed),
    )


def _with_kept(pairs: Sequence[tuple[str, str | None]], before: Pairs) -> Pairs:
    """The entered names and values; None stands for the value that was stored."""
    known = dict(before)
    return tuple((name, known.get(name, "") if value is None else value) for name, value in pairs)


def _renamed(server: str, tools: Iterable[ToolSpec]) -> str:
    """Which tools of a server have other names for models, as theirs are taken; "": none."""
    names = [
        each.name
        for each in tools
        if each.id.startswith(f"{server}/") and each.name != safe_name(each.id.partition("/")[2])
    ]
    taken = tr("Other tools have such names too; models know these as {names}.",
               names=listed([*names[:_MOST_NAMED], "…"][: len(names)]))  # fmt: skip
    return taken if names else ""


def _servers_of(specs: Iterable[ToolSpec]) -> set[str]:
    return {each.id.partition("/")[0] for each in specs}
