"""The server of this process as `app.chat.servers.serving` starts it, and its use as the window shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from app.chat.servers.serving import ServerStarter, ServerUse
from app.state.server import ClientRow, LogRow
from engine import Engine, Event, LocalServer, LocalServerOptions, start_server


class ShownServer:
    """`RunningServer` of the server of this process."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    def stop(self) -> None:
        """End it, with the answers in progress."""
        self._server.stop()

    def change(self, options: LocalServerOptions) -> None:
        """Take over the options that need no restart."""
        self._server.change(options)

    def in_the_way(self) -> int:
        """Answers for programs that a change of the model waits for."""
        return self._server.in_the_way()

    def end_answers(self) -> None:
        """End these."""
        self._server.end_answers()

    def use(self) -> ServerUse:
        """What it does."""
        now = self._server.activity
        clients = [
            ClientRow(each.client.name, each.client.address, each.running, each.requests, each.last)
            for each in now.clients
        ]
        log = [
            LogRow(
                each.number,
                each.began,
                each.client.name or each.client.address,
                each.method,
                each.path,
                each.model,
                each.status,
                each.seconds,
                each.prompt_tokens,
                each.generated_tokens,
                each.outcome,
                each.prompt,
                each.answer,
                each.is_running,
            )
            for each in now.log
        ]
        return ServerUse(now.running, now.requests, now.failed, tuple(clients), tuple(log))


def shared_engine(
    folders: Callable[[], Sequence[Path]],
) -> tuple[Callable[[Callable[[Event], None]], Engine], ServerStarter]:
    """The maker of the window's engine, and what starts a server of the same engine.

    `folders` has models beside the models folder; any thread may call it.
    """
    made: list[Engine] = []

    def engine(notify: Callable[[Event], None]) -> Engine:
        made.append(Engine(notify))
        return made[-1]

    def start(options: LocalServerOptions) -> ShownServer:
        return ShownServer(start_server(made[-1], options, folders))

    return engine, start
