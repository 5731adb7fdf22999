"""Servers of tools in the window: the list of them, consent before they start, and their questions.

Without a stored server nothing of `app.tools.mcp` is imported before the page is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, QTimer

from app.chat.tools.sampling import ServerSampling
from app.chat.tools.server_questions import NeedsConsent, Problem, ServerQuestions
from app.chat.tools.thread import ToolThread
from app.domain.forms import fields_of
from app.domain.tool_servers import (
    FormQuestion,
    PageQuestion,
    ServerDraft,
    ServerPhase,
    ServerRow,
    StartQuestion,
)
from app.domain.tools import CallContext, ToolError, ToolOutcome, ToolSource, ToolSpec
from app.engines.client import EngineClient
from app.engines.run import start
from app.state.chat import State
from app.state.tool_servers import ToolServersState
from app.system.secret_store import Keyring, system_keyring
from app.system.translation import sentences, tr

if TYPE_CHECKING:
    from app.chat.tools.running_servers import RunningServers
    from app.tools.mcp.entry import ServerEntry

T = TypeVar("T")
_MOST_BYTES = 1_000_000  # of a file that is imported
_LOG_MILLISECONDS = 500
_CLOSE_SECONDS = 5.0


class ToolServers(QObject):
    """Keeps `ToolServersState`; every method is called on the GUI thread and returns at once."""

    def __init__(
        self,
        state: State,
        shown: ToolServersState,
        thread: ToolThread,
        file: Path,
        engine: EngineClient,
        proxy: Callable[[], str],
        changed: Callable[[], None],
        report: Callable[[Exception], None],
        parent: QObject | None = None,
    ) -> None:
        """`file` lists them, beside their other files; `changed` is called after the tools of servers changed."""
        super().__init__(parent)
        self._state, self._shown, self._thread, self._file = state, shown, thread, file
        self._changed, self._report = changed, report
        self.keyring: Callable[[], Keyring] = system_keyring
        self._proxy = proxy
        self.questions = ServerQuestions(shown, thread)
        self.sampling = ServerSampling(state, shown, self.questions, engine, report)
        self.running: RunningServers | None = None  # None: nothing was needed of them yet
        self._source = _Source(self)
        self._deleted: ServerEntry | None = None
        self._is_showing = self._shows_again = self._is_closed = False
        self._logins: set[str] = set()  # names of servers whose login is open in the browser
        self._specs: Sequence[ToolSpec] = ()  # that `changed` was called for
        self._opened = ""  # id of the server whose log is shown
        self._timer = QTimer(self, interval=_LOG_MILLISECONDS)
        self._timer.timeout.connect(self._show_log)
        state.conversation_changed.connect(self._on_chat)
        state.settings_changed.connect(self._on_chat)

    # --- life -----------------------------------------------------------------------------------

    def source(self) -> ToolSource:
        """Their tools: none as long as nothing is stored."""
        return self._source

    def begin(self) -> None:
        """Start what starts with the app; called after the first paint."""
        if self._is_stored:
            self.run(lambda running: running.start_wanted(None))
            self._on_chat()

    def look(self) -> None:
        """Read the servers: their page is opened."""
        self._open()
        self._show()

    def close(self) -> None:
        """End all programs; called before the tools' thread ends."""
        self._is_closed = True
        self._timer.stop()
        if self.running is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self.running.servers.close(), self._thread.loop)
        try:
            closing.result(_CLOSE_SECONDS)
        except Exception:  # noqa: BLE001  (whatever it is, the programs must end)
            self.running.servers.kill()

    # --- the list -------------------------------------------------------------------------------

    def switch(self, id: str, on: bool) -> None:
        """Start a server, after consent if it was not allowed as it is; or stop it."""
        if not on:
            self.run(lambda running: _off(running, id))
            return

        async def begin(running: RunningServers) -> None:
            await running.start(id)
            await running.change(id, enabled=True)

        self.run(begin)

    def restart(self, id: str) -> None:
        """Stop a server and start it again."""
        self.run(lambda running: running.restart(id))

    def cancel(self, id: str) -> None:
        """Give a start up, such as one that waits for a login."""
        self.run(lambda running: running.stop(id))

    def log_out(self, id: str) -> None:
        """Forget the login of a server."""
        self.run(lambda running: running.forget_login(id))

    def set_with_app(self, id: str, on: bool) -> None:
        """Whether a server starts with the app."""
        self.run(lambda running: running.change(id, with_app=on))

    def edit(self, id: str) -> None:
        """Edit a server; "": a new one."""
        if id:
            self.run(lambda running: running.draft(id), self._shown.set_draft)
        else:
            self._shown.set_draft(ServerDraft())

    def close_edit(self) -> None:
        """Drop what was entered."""
        self._shown.set_draft(None)

    def save(self, draft: ServerDraft) -> None:
        """Keep what was entered; the state has what is wrong with it."""
        self._shown.set_draft(draft)  # its problem is gone
        self.run(
            lambda running: running.save(draft),
            lambda _: self._shown.set_draft(None),
            lambda problem: self._shown.set_draft(draft, problem),
        )

    def delete(self, id: str) -> None:
        """Stop and delete a server; Undo takes it back."""

        def gone(entry: ServerEntry | None) -> None:
            self._deleted = entry
            self._shown.set_deleted(entry.name if entry else "")

        self.run(lambda running: running.delete(id), gone)

    def undo(self) -> None:
        """Take back the server that was deleted last."""
        entry, self._deleted = self._deleted, None
        self._shown.set_deleted("")
        if entry is not None:
            self.run(lambda running: running.restore(entry))

    def open_log(self, id: str) -> None:
        """Show the log of a server while it is opened; "": of none."""
        self._opened = id
        self._shown.set_log(())
        if id:
            self._timer.start()
            self._show_log()
        else:
            self._timer.stop()

    # --- import ---------------------------------------------------------------------------------

    def import_file(self, path: Path) -> None:
        """Show what another program's file has."""

        async def read(running: RunningServers) -> None:
            try:
                text = await asyncio.to_thread(_text_of, path)
            except OSError as error:
                why = error.strerror or str(error)
                words = tr("{path} cannot be read: {reason}.", path=path, reason=why)
                self._thread.tell(lambda: self._shown.set_problem(words))
                return
            preview = await running.preview(text)
            self._thread.tell(lambda: self._shown.set_preview(preview))

        self.run(read)

    def import_text(self, text: str) -> None:
        """Show what a pasted text has."""
        self.run(lambda running: running.preview(text), self._shown.set_preview)

    def end_import(self, accepted: bool) -> None:
        """Store what is shown, every server off; or drop it."""
        preview = self._shown.preview
        self._shown.set_preview(None)
        if accepted and preview is not None:
            self.run(lambda running: running.add(preview.text))

    # --- questions ------------------------------------------------------------------------------

    def answer(self, number: int, value: Any) -> None:
        """Answer a question: the values of a form, whether a server may start or a page opened."""
        page = self.questions.find(number, PageQuestion)
        if page is not None and value:
            self._logins.add(page.name)
            self._show()
        self.questions.answer(number, value)

    async def _ask_form(
        self, name: str, text: str, schema: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        fields = fields_of(schema)
        return await self.questions.ask(lambda number: FormQuestion(number, name, text, fields))

    async def _open_page(self, name: str, address: str, why: str) -> bool:
        answer = await self.questions.ask(lambda number: PageQuestion(number, name, address, why))
        return answer is True

    def _ask_start(self, needed: NeedsConsent) -> None:
        """Ask whether a server may start, exactly as it is now."""
        question, origin = needed.question, needed.origin
        asked = (q for q in self._shown.questions if isinstance(q, StartQuestion))
        if any(each.server == question.server for each in asked):
            return

        def answered(may: object) -> None:
            if may is True:
                self.run(lambda running: running.allow(question.server, origin))
            else:
                self._show()

        number = self.questions.next_number()
        self.questions.add(replace(question, number=number), answered)

    # --- steps ----------------------------------------------------------------------------------

    @property
    def _is_stored(self) -> bool:
        return self.running is not None or self._file.is_file()

    def _open(self) -> RunningServers:
        """What runs them, made when it is first needed."""
        if self.running is None:
            from app.chat.tools.running_servers import Hooks, RunningServers

            hooks = Hooks(self._ask_form, self.sampling.ask, self._open_page)
            self.running = RunningServers(
                self._file.parent,
                self.keyring,
                hooks,
                self._proxy,
                lambda: self._thread.tell(self._show),
            )
        return self.running

    def run(
        self,
        work: Callable[[RunningServers], Coroutine[Any, Any, T]],
        then: Callable[[T], object] = lambda _: None,
        failed: Callable[[str], object] | None = None,
    ) -> None:
        """Run something on the tools' thread; what is wrong is shown, or given to `failed`."""
        if self._is_closed:
            return
        running = self._open()
        result = self._thread.start(running.attempt(work(running))).result()
        start(self._done(result, then, failed or self._shown.set_problem), self._report)

    async def _done(
        self,
        result: Coroutine[Any, Any, T | Problem | NeedsConsent],
        then: Callable[[T], object],
        failed: Callable[[str], object],
    ) -> None:
        found = await result
        if isinstance(found, NeedsConsent):
            self._ask_start(found)
        elif isinstance(found, Problem):
            failed(found.text)
        else:
            then(found)
        self._show()

    def _show(self) -> None:
        """Read all servers again; several changes at once are read once."""
        if self._is_closed:
            return
        if self._is_showing:
            self._shows_again = True
            return
        self._is_showing = True
        start(self._read(self._open()), self._report)

    async def _read(self, running: RunningServers) -> None:
        try:
            rows, problems = await self._thread.start(running.rows()).result()
        finally:
            self._is_showing = False
        self._shown_now(rows, problems)
        if await self._thread.start(running.list_offers()).result():
            self._show()

    def _shown_now(self, rows: Sequence[ServerRow], problems: Sequence[str]) -> None:
        starting = {row.name for row in rows if row.phase is ServerPhase.STARTING}
        self._logins &= starting
        self._shown.set_rows([self._with_login(row) for row in rows])
        if problems:
            self._shown.set_problem(sentences(*problems))
        specs = self._source.tools()
        if specs != self._specs:
            self._specs = specs
            self._changed()
        if self._shows_again:
            self._shows_again = False
            self._show()

    def _with_login(self, row: ServerRow) -> ServerRow:
        return replace(row, phase=ServerPhase.LOGIN) if row.name in self._logins else row

    def _show_log(self) -> None:
        if self.running is not None and self._opened:
            self._shown.set_log(self.running.servers.log(self._opened))

    def _on_chat(self, _conversation: object = None) -> None:
        """Start what the shown chat uses, if it is on and was allowed."""
        tools = self._state.settings(self._state.current).tools
        begun = {row.id for row in self._shown.rows if row.phase is not ServerPhase.OFF}
        used = {id.partition("/")[0] for id in tools} - {"builtin", *begun}
        if used and self._is_stored:
            self.run(lambda running: running.start_wanted(used))


class _Source:
    """A `ToolSource` of servers that may not be needed."""

    def __init__(self, servers: ToolServers) -> None:
        self._servers = servers

    def tools(self) -> Sequence[ToolSpec]:
        running = self._servers.running
        return running.tools() if running is not None else ()

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        running = self._servers.running
        return running.changes(id, arguments, context) if running is not None else ()

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        running = self._servers.running
        return running.scope(id, arguments) if running is not None else ""

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        running = self._servers.running
        if running is None:
            raise ToolError("The server of this tool is not running.")
        return await running.call(id, arguments, context)


async def _off(running: RunningServers, id: str) -> None:
    await running.change(id, enabled=False)
    await running.stop(id)


def _text_of(path: Path) -> str:
    """The text of a file that is to be imported; raises OSError."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    return content.decode(encoding, "replace")
