"""The server of this process as `app.chat.serving` starts it, and its use as the window shows it."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.serving import ServerStarter, ServerUse
from app.state.server import ClientRow, LogRow
from engine import LocalServer, LocalServerOptions


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
            )
            for each in now.log
        ]
        return ServerUse(now.running, now.requests, now.failed, tuple(clients), tuple(log))


def server_starter(start: Callable[[LocalServerOptions], LocalServer]) -> ServerStarter:
    """What starts the server for the window; `start` is `engine.start_server` with its engine."""
    return lambda options: ShownServer(start(options))
