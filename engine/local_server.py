"""The local server as the app starts it: its options, and what it does; loads it when it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.client import Engine

if TYPE_CHECKING:
    from engine.server.activity import Activity
    from engine.server.serve import Server


@dataclass(frozen=True, slots=True)
class LocalServerOptions:
    """How the server is to run."""

    host: str = "127.0.0.1"  # address that it listens on; "0.0.0.0": all
    port: int = 8080  # 0: any free one
    key: str = ""  # "": none is needed
    keep_seconds: float = 600.0  # models stay loaded after their last answer; <0: ever
    keeps_texts: bool = False  # in the log


class LocalServer:
    """A server that listens; called from any thread."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def address(self) -> str:
        """The URL that programs on this computer use."""
        return self._server.address

    @property
    def activity(self) -> Activity:
        """Who is connected, requests so far and the log."""
        return self._server.activity

    def change(self, options: LocalServerOptions) -> None:
        """Take over the options that need no restart: all but `host` and `port`."""
        self._server.change(options.key, options.keep_seconds, keeps_texts=options.keeps_texts)

    def in_the_way(self) -> int:
        """Answers for programs that a change of the main model waits for."""
        return len(self._server.service.engine.in_the_way())

    def end_answers(self) -> None:
        """End these; the programs are told that the model is replaced."""
        for answer in self._server.service.engine.in_the_way():
            answer.cancel()

    def stop(self) -> None:
        """Stop listening and end the requests that run, whose clients are told so; may block."""
        self._server.stop()


def start_server(
    engine: Engine, options: LocalServerOptions, folders: Callable[[], Sequence[Path]] = lambda: ()
) -> LocalServer:
    """Start a server of an engine's models, and of those in `folders`, which any thread may call.

    Raises RequestError where the address cannot be used.
    """
    from engine.server.guards import Security
    from engine.server.serve import Server, ServerOptions
    from engine.server.service import ServiceOptions

    server = Server(
        engine,
        ServerOptions(
            options.host,
            options.port,
            Security(options.key),
            service=ServiceOptions(folders, options.keep_seconds, keeps_texts=options.keeps_texts),
        ),
    )
    server.start()
    return LocalServer(server)
