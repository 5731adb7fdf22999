"""Why a server of tools does not run; calls of its tools raise `app.domain.tools.ToolError`."""

from __future__ import annotations


class StartError(Exception):
    """A server that cannot be started, or that ended: `str(error)` says why, `remedy` what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


class SessionEnded(Exception):
    """The server forgot the connection, as after its restart: a new one may succeed."""
