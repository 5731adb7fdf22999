"""The server for other programs: starts and stops it as the settings say, and shows its use.

A background thread makes it at the first start: its modules are imported only where it is used.
"""

from __future__ import annotations

import errno
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from PySide6.QtCore import QObject, QTimer

from app.settings.table import Settings
from app.state.server import ClientRow, LogRow, ServerPhase, ServerState
from app.system.network import own_addresses
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import EngineError, LocalServerOptions

_log = logging.getLogger(__name__)
_WATCH_MILLISECONDS = 1000
_KEY_BYTES = 24  # of randomness
_THIS_COMPUTER, _EVERYWHERE = "127.0.0.1", "0.0.0.0"
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServerUse:
    """A snapshot of what the server does; the last clients and requests first."""

    running: int = 0
    requests: int = 0
    failed: int = 0
    clients: tuple[ClientRow, ...] = ()
    log: tuple[LogRow, ...] = ()


class RunningServer(Protocol):
    """A server that listens."""

    def stop(self) -> None:
        """End it, with the answers in progress; may block, and is called on another thread."""
        ...

    def change(self, options: LocalServerOptions) -> None:
        """Take over the options that need no restart: all but `host` and `port`."""
        ...

    def use(self) -> ServerUse:
        """What it does; may be called from any thread, and does not block."""
        ...

    def in_the_way(self) -> int:
        """Answers for programs that a change of the model waits for; called as `use`."""
        ...

    def end_answers(self) -> None:
        """End these; called as `use`."""
        ...


# Starts a server and returns it when it listens; raises OSError, or an error whose text says why.
ServerStarter = Callable[[LocalServerOptions], RunningServer]


class Serving(QObject):
    """Runs at most one server; every method is called on the GUI thread."""

    def __init__(
        self,
        state: ServerState,
        settings: Callable[[], Settings],
        change_settings: Callable[..., None],
        start: ServerStarter | None,
        parent: QObject | None = None,
    ) -> None:
        """Without `start` there is no server in this version, and the page does not offer it."""
        super().__init__(parent)
        self.state, self._settings, self._change = state, settings, change_settings
        self._start = start
        self._worker = BackgroundWorker("server", self)
        self._wanted: LocalServerOptions | None = None  # as the worker was told last
        self._server: RunningServer | None = None  # used on the worker's thread, and by `_watch`
        self._timer = QTimer(self, interval=_WATCH_MILLISECONDS)
        self._timer.timeout.connect(self._watch)
        state.set(offered=start is not None)

    # --- intents --------------------------------------------------------------------------------

    def apply(self) -> None:
        """Start, change or stop the server as the settings say now; returns at once."""
        start, settings = self._start, self._settings()
        wanted = _options(settings) if settings.serve else None
        before, self._wanted = self._wanted, wanted
        if start is None or wanted == before:
            return
        if wanted is None:
            self.state.set(phase=ServerPhase.STOPPING, problem="", remedy="", addresses=())
            self._worker.run(self._stop_now, lambda _: self._show_off())
        elif before is not None and _same_place(wanted, before) and self.state.is_serving:
            self._worker.run(lambda: self._change_now(wanted))
        else:
            self.state.set(phase=ServerPhase.STARTING, problem="", remedy="")
            self._worker.run(lambda: self._start_now(start, wanted), self._on_started)

    def make_key(self) -> None:
        """Make a new key at random; programs with the old one are refused from now on."""
        self._change(serve_key=secrets.token_urlsafe(_KEY_BYTES))

    def watch(self, watched: bool) -> None:
        """Show who uses the server, while the page is shown."""
        if watched:
            self._watch()
            self._timer.start()
        else:
            self._timer.stop()

    def in_the_way(self) -> int:
        """Answers for other programs that a change of the model waits for."""
        return self._server.in_the_way() if self._server is not None else 0

    def end_answers(self) -> None:
        """End these; the programs are told that the model is replaced."""
        if self._server is not None:
            self._server.end_answers()

    @property
    def stays_on_close(self) -> bool:
        """Whether closing the window leaves the server running."""
        return self._settings().serve_closed and self.state.is_serving

    def close(self) -> None:
        """Stop the server, for good; may block briefly."""
        self._timer.stop()
        self._start = None
        self._worker.close(self._stop_now, _CLOSE_SECONDS)

    # --- worker thread --------------------------------------------------------------------------

    def _stop_now(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _start_now(
        self, start: ServerStarter, options: LocalServerOptions
    ) -> Exception | LocalServerOptions:
        try:
            self._stop_now()
            self._server = start(options)
        except Exception as error:  # noqa: BLE001  the page says why
            return error
        return options

    def _change_now(self, options: LocalServerOptions) -> None:
        if self._server is not None:
            self._server.change(options)

    # --- the state ------------------------------------------------------------------------------

    def _on_started(self, result: Exception | LocalServerOptions) -> None:
        if self._wanted is None:
            return  # it was switched off meanwhile
        if isinstance(result, Exception):
            if not isinstance(result, OSError | EngineError):
                _log.warning("the server did not start: %s", result)
            problem, remedy = _why(result, self._wanted)
            self._wanted = None  # the next change of the settings tries again
            self.state.set(phase=ServerPhase.FAILED, problem=problem, remedy=remedy, addresses=())
        elif _same_place(result, self._wanted):
            self.state.set(phase=ServerPhase.ON, addresses=addresses(result, own_addresses))

    def _show_off(self) -> None:
        if self._wanted is None:
            self.state.set(phase=ServerPhase.OFF, running=0, clients=())

    def _watch(self) -> None:
        server = self._server
        if server is not None:
            use = server.use()
            self.state.set(
                running=use.running,
                requests=use.requests,
                failed=use.failed,
                clients=use.clients,
                log=use.log,
            )


def addresses(options: LocalServerOptions, own: Callable[[], Sequence[str]]) -> tuple[str, ...]:
    """The URLs under which a server can be reached, that of this computer first."""
    hosts = [_THIS_COMPUTER, *(own() if options.host == _EVERYWHERE else ())]
    return tuple(f"http://{host}:{options.port}" for host in hosts)


def _options(settings: Settings) -> LocalServerOptions:
    is_open = settings.serve_network == "network" and not settings.offline
    return LocalServerOptions(
        _EVERYWHERE if is_open else _THIS_COMPUTER,
        settings.serve_port,
        settings.serve_key,
        settings.serve_minutes * 60.0 or -1.0,
        settings.serve_texts,
    )


def _same_place(one: LocalServerOptions, other: LocalServerOptions) -> bool:
    """Whether a change between them needs no restart."""
    return (one.host, one.port) == (other.host, other.port)


def _why(error: Exception, options: LocalServerOptions) -> tuple[str, str]:
    """What is wrong and what to do."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        what = tr("Another program uses port {port}.", port=str(options.port))
        return what, tr("Choose another port below.")
    if isinstance(cause, OSError):
        reason = cause.strerror or str(cause) or type(cause).__name__
        return tr("The server could not start: {reason}.", reason=reason), ""
    return tr("The server could not start: {reason}", reason=str(error)), ""
