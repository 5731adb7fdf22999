"""The server of this process as `app.chat.serving` starts it, and its use as the window shows it."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.serving import ServerStarter, ServerUse
from app.state.server import ClientRow, LogRow
from engine import Exchange, LocalServer, LocalServerOptions


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
        return ServerUse(
            now.running,
            now.requests,
            now.failed,
            tuple(
                ClientRow(
                    each.client.name, each.client.address, each.running, each.requests, each.last
                )
                for each in now.clients
            ),
            tuple(map(_log_row, now.log)),
        )


def server_starter(start: Callable[[LocalServerOptions], LocalServer]) -> ServerStarter:
    """What starts the server for the window; `start` is `engine.start_server` with its engine."""
    return lambda options: ShownServer(start(options))


def _log_row(exchange: Exchange) -> LogRow:
    return LogRow(
        exchange.number,
        exchange.began,
        exchange.client.name or exchange.client.address,
        exchange.method,
        exchange.path,
        exchange.model,
        exchange.status,
        exchange.seconds,
        exchange.prompt_tokens,
        exchange.generated_tokens,
        exchange.outcome,
        exchange.prompt,
        exchange.answer,
    )
