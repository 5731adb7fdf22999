"""Connections: the offline switch, engines elsewhere, the record of contacts, where words go."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from PySide6.QtCore import QObject, QTimer

from app.domain.model_ref import Remote
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote import addresses
from app.net.ledger import Contact, Purpose
from app.net.offline import Gate
from app.settings.table import Settings
from app.state.chat import Deletion, State
from app.state.connections import (
    ConnectionsState,
    ContactRow,
    EngineEdit,
    EngineRow,
    EngineState,
    FoundRow,
    Question,
)
from app.system.translation import sentences, tr
from app.system.worker import BackgroundWorker

T = TypeVar("T")
_WATCH_MILLISECONDS = 1000
_AGAIN_SECONDS = 10.0
_PURGE_SECONDS = 2.0  # for the keyring, when the app quits
_NEVER = float("-inf")
# Faults of a server, rather than of what it was asked.
_OF_SERVER = frozenset({
    RemoteFaultKind.NO_HOST, RemoteFaultKind.UNREACHABLE, RemoteFaultKind.TIMEOUT,
    RemoteFaultKind.TLS, RemoteFaultKind.NOT_TLS, RemoteFaultKind.NEEDS_TLS, RemoteFaultKind.PROXY,
    RemoteFaultKind.REDIRECT, RemoteFaultKind.WEB_PAGE, RemoteFaultKind.INVALID,
    RemoteFaultKind.CLOSED, RemoteFaultKind.SILENT, RemoteFaultKind.CUT, RemoteFaultKind.KEY,
    RemoteFaultKind.NEEDS_KEY, RemoteFaultKind.NO_API, RemoteFaultKind.NO_MODEL,
})  # fmt: skip


class EngineFault(Exception):
    """An engine elsewhere failed, or an edit is wrong: `str(error)` is why, `remedy` the advice."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class EngineDirectory(Protocol):
    """The connections to engines elsewhere; calls may block, and run on a worker thread."""

    def rows(self) -> Sequence[EngineRow]:
        """All connections, as they are stored."""
        ...

    def check(self, edit: EngineEdit) -> EngineEdit:
        """The edit with its address made whole; raises EngineFault. Does not block."""
        ...

    def needs_consent(self, address: str) -> bool:
        """Whether words would go unencrypted over the public network. Does not block."""
        ...

    def save(self, edit: EngineEdit) -> str:
        """Store a connection and return its id; raises EngineFault."""
        ...

    def delete(self, id: str) -> None:
        """Delete a connection: `restore` takes it back until `purge`; raises EngineFault."""
        ...

    def restore(self, id: str) -> None:
        """Take back a deleted connection, with its key; raises EngineFault."""
        ...

    def purge(self) -> None:
        """Forget the deleted connections and their keys; raises EngineFault."""
        ...

    def models(self, id: str) -> Sequence[str]:
        """The names of its models; raises EngineFault."""
        ...

    def find(self) -> Sequence[FoundRow]:
        """The engines that answer on this machine."""
        ...


class Connections(QObject):
    """Keeps `ConnectionsState` up to date; every method is called on the GUI thread."""

    def __init__(
        self,
        state: State,
        connections: ConnectionsState,
        gate: Gate,
        settings: Callable[[], Settings],
        files: BackgroundWorker,
        directory: EngineDirectory | None,
        deleted: Callable[[Deletion], None],
        own_addresses: Callable[[], Sequence[str]] = lambda: (),
        parent: QObject | None = None,
    ) -> None:
        """`files` is the worker for the app's files; `deleted` is called with what Undo can restore;
        `own_addresses` returns those of the app's server.

        Without a `directory` the page offers no engines elsewhere.
        """
        super().__init__(parent)
        self._chat, self._state, self._gate = state, connections, gate
        self._settings, self._files, self._directory = settings, files, directory
        self._deleted, self._own_addresses = deleted, own_addresses
        self._asked = _NEVER  # when every engine was asked last; monotonic seconds
        self._worker = BackgroundWorker("connections", self)
        # An engine that does not answer keeps neither the others nor an edit waiting.
        self._askers: dict[str, BackgroundWorker] = {}
        self._timer = QTimer(self, interval=_WATCH_MILLISECONDS)
        self._timer.timeout.connect(self._show_contacts)
        connections.set_engines((), offered=directory is not None)
        self.apply()
        for signal in (
            state.conversation_changed,
            state.settings_changed,
            state.model_changed,
            state.capabilities_changed,
            connections.changed,
        ):
            signal.connect(self._show_destination)
        state.deletions_changed.connect(self._show_deleted)

    # --- life -----------------------------------------------------------------------------------

    def start(self, contacts: Path) -> None:
        """Read the contacts of earlier runs from this file, and the connections.

        Those that were deleted in a run that did not end as usual are forgotten now.
        """
        self._files.run(lambda: self._gate.ledger.open(contacts))
        self._read(then=self._purge)

    def apply(self) -> None:
        """Move the offline switch as the settings say."""
        offline, was_offline = self._settings().offline, self._state.offline
        self._gate.set_offline(offline)
        self._state.set_offline(offline)
        if was_offline and not offline and self._timer.isActive():
            self._look()

    def close(self) -> None:
        """Write the contacts, before the worker for the app's own files is closed."""
        self._timer.stop()
        self._files.run(self._gate.ledger.close)
        purges = any(each.connection for each in self._chat.deletions)
        if purges:
            self._purge()
        self._worker.close(timeout_seconds=_PURGE_SECONDS if purges else 0.0)
        for asker in self._askers.values():
            asker.close(timeout_seconds=0.0)  # a server may never answer

    # --- intents --------------------------------------------------------------------------------

    def watch(self, watched: bool) -> None:
        """Keep the contacts up to date while the page is shown, and ask at first who is there."""
        if watched:
            self._show_contacts()
            self._timer.start()
            self._look()
        else:
            self._timer.stop()

    def clear_contacts(self) -> None:
        """Forget every contact."""
        self._gate.ledger.clear()
        self._show_contacts()

    def find(self) -> None:
        """Look for engines on this machine; nothing is sent but a question for their models."""
        directory, state = self._directory, self._state
        if directory is None or state.offline or state.searching:
            return
        state.set_found(state.found, searching=True)

        def found(rows: Sequence[FoundRow]) -> None:
            state.set_found(self._unknown(rows), searching=False)

        def failed(_: EngineFault) -> None:
            state.set_found((), searching=False)

        self._run(directory.find, found, failed, self._asker(""))

    def save(self, edit: EngineEdit) -> None:
        """Keep a connection; the state has what is wrong with it, or what to ask the user."""
        directory = self._directory
        if directory is None:
            return
        try:
            edit = directory.check(edit)
        except EngineFault as fault:
            self._state.set_edit(sentences(str(fault), fault.remedy))
            return
        if not edit.allow_http and directory.needs_consent(edit.address):
            text = tr(
                "What you write would go unencrypted over the internet, where others can read it. "
                "Use an address that begins with https:// if there is one."
            )
            self._state.set_edit("", Question(text, replace(edit, allow_http=True)))
            return
        self._state.set_edit()

        def kept(id: str) -> None:
            self._stop_asking(id)
            fresh = self._unknown(self._state.found, edit.address)
            self._state.set_found(fresh, searching=self._state.searching)
            self._read(then=lambda: self.test(id))

        self._run(lambda: directory.save(edit), kept, self._show_fault)

    def close_edit(self) -> None:
        """Drop the question and the error of the last edit."""
        self._state.set_edit()

    def delete(self, id: str) -> None:
        """Delete a connection; until the app quits, Undo takes it back with its key."""
        directory, row = self._directory, self._state.engine(id)
        if directory is None or row is None:
            return
        deletion = Deletion(connection=row)

        def gone(_: None) -> None:
            self._deleted(deletion)
            self._read()

        self._run(lambda: directory.delete(id), gone, self._show_fault)

    def restore(self, id: str) -> None:
        """Take back a deleted connection."""
        directory = self._directory
        if directory is not None:
            self._run(lambda: directory.restore(id), lambda _: self._read(), self._show_fault)

    def test(self, id: str) -> None:
        """Ask an engine for its models."""
        directory, row = self._directory, self._state.engine(id)
        if directory is None or row is None or row.state is EngineState.ASKING:
            return
        self._show(id, state=EngineState.ASKING, problem="", remedy="")

        def answered(models: Sequence[str]) -> None:
            self._show(id, state=EngineState.READY, models=tuple(models))
            self._read()  # its name and address may have been found out

        def failed(fault: EngineFault) -> None:
            self._show(id, state=EngineState.FAILED, problem=str(fault), remedy=fault.remedy)

        self._run(lambda: directory.models(id), answered, failed, self._asker(id))

    def test_all(self) -> None:
        """Ask every engine for its models, but not again within a few seconds."""
        now = time.monotonic()
        if not self._state.offline and now - self._asked >= _AGAIN_SECONDS:
            self._asked = now
            for row in self._state.engines:
                self.test(row.id)

    def on_answer(self, model: Remote, fault: RemoteFaultKind | None) -> None:
        """A model elsewhere answers, or failed: ask its engine if its state may be another now."""
        row = self._state.engine(model.connection)
        failed = row is not None and row.state is EngineState.FAILED
        if not self._state.offline and (fault in _OF_SERVER or (failed and fault is None)):
            self.test(model.connection)

    # --- steps ----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look for engines on this machine, and ask all those connected: they may be others now."""
        self.find()
        self._asked = _NEVER
        self.test_all()

    def _unknown(self, rows: Sequence[FoundRow], *kept: str) -> list[FoundRow]:
        """The engines found that are neither connected nor the server of this window."""
        known = (*(row.address for row in self._state.engines), *self._own_addresses(), *kept)
        return [
            row
            for row in rows
            if not any(addresses.is_one_program(row.address, each) for each in known)
        ]

    def _run(
        self,
        call: Callable[[], T],
        then: Callable[[T], object],
        failed: Callable[[EngineFault], object],
        worker: BackgroundWorker | None = None,
    ) -> None:
        """Run a call of the directory on the thread of a worker; None: of that for what is stored."""

        def work() -> T | EngineFault:
            try:
                return call()
            except EngineFault as fault:
                return fault

        def ended(result: T | EngineFault) -> None:
            if isinstance(result, EngineFault):
                failed(result)
            else:
                then(result)

        (worker or self._worker).run(work, ended)

    def _stop_asking(self, id: str) -> None:
        """Take no answer to an earlier question any more: it was asked before an edit."""
        if (asker := self._askers.pop(id, None)) is not None:
            asker.close(timeout_seconds=0.0)
            asker.setParent(None)
            self._show(id, state=EngineState.UNKNOWN)

    def _asker(self, id: str) -> BackgroundWorker:
        """The worker that asks one engine; "": that looks for engines."""
        if id not in self._askers:
            self._askers[id] = BackgroundWorker("connection", self)
        return self._askers[id]

    def _read(self, then: Callable[[], object] = lambda: None) -> None:
        directory = self._directory
        if directory is None:
            return

        def read(rows: Sequence[EngineRow]) -> None:
            self._state.set_engines([self._as_known(row) for row in rows])
            then()

        self._run(directory.rows, read, self._show_fault)

    def _purge(self) -> None:
        """Forget the deleted connections, with their keys."""
        if (directory := self._directory) is not None:
            self._run(directory.purge, lambda _: None, self._show_fault)

    def _as_known(self, row: EngineRow) -> EngineRow:
        """A stored connection with what was found out in this run, if its address is the same."""
        known = self._state.engine(row.id)
        if known is None or known.address != row.address:
            return row
        return replace(
            row, state=known.state, models=known.models, problem=known.problem, remedy=known.remedy
        )

    def _show(self, id: str, **values: object) -> None:
        rows = [
            replace(row, **values) if row.id == id else row  # type: ignore[arg-type]
            for row in self._state.engines
        ]
        self._state.set_engines(rows)

    def _show_fault(self, fault: EngineFault) -> None:
        self._state.set_edit(sentences(str(fault), fault.remedy))

    def _show_deleted(self) -> None:
        last = self._chat.deletions[-1].connection if self._chat.deletions else None
        self._state.set_deleted(last)

    def _show_contacts(self) -> None:
        self._state.set_contacts([_contact_row(each) for each in self._gate.ledger.all()])

    def _show_destination(self) -> None:
        chat = self._chat
        model = chat.settings(chat.current).model or chat.model.model
        host = ""
        if isinstance(model, Remote):
            row = self._state.engine(model.connection)
            host = row.host if row is not None else chat.capabilities.server  # not read yet
        self._state.set_destination(host)


def _contact_row(contact: Contact) -> ContactRow:
    return ContactRow(
        contact.host,
        contact.port,
        purpose_words(contact.purpose),
        contact.count,
        contact.last,
        contact.first,
        contact.sent_bytes,
        contact.received_bytes,
        contact.refused,
    )


def purpose_words(purpose: Purpose) -> str:
    """Why an address was spoken to."""
    match purpose:
        case Purpose.SEARCH:
            return tr("to search for models")
        case Purpose.DOWNLOAD:
            return tr("to download models")
        case Purpose.GPU_SUPPORT:
            return tr("to download GPU support")
        case Purpose.PROXY:
            return tr("your proxy, which passes connections on")
        case Purpose.ANSWERS:
            return tr("for answers in your chats")
        case Purpose.MODELS:
            return tr("for its list of models")
        case Purpose.TOOLS:
            return tr("for tools that you allowed")
        case Purpose.UPDATE:
            return tr("a newer version of Tokonoma; only the request is sent")
        case Purpose.DISCOVERY:
            return tr("to find engines on this computer")
