"""Transport over a child process: JSON-RPC, one message a line, on its stdin and stdout.

The SDK's own transport hands on more of the environment, reads lines of any length and leaves
stderr to the terminal; this one does none of the three.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)

from app.system.translation import tr
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.errors import StartError
from app.tools.mcp.limits import MessageMeter, Pacer, TooMuch
from app.tools.mcp.log import ServerLog
from app.tools.mcp.windows_job import Job

_log = logging.getLogger(__name__)
_INHERITED = ("PATH", "HOME", "LANG")
# Without these no program starts on Windows, or finds its own files.
_INHERITED_WINDOWS = (
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE",
    "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES",
)  # fmt: skip
_CHUNK = 65_536  # bytes
_GRACE_SECONDS = 1.0  # to end by itself after its stdin was closed, then after SIGTERM


class StdioTransport:
    """The program of an entry, and the streams of messages to and from it; an async context."""

    def __init__(self, entry: ServerEntry, log: ServerLog, pacer: Pacer | None = None) -> None:
        self.ended = asyncio.Event()  # the program has ended, or sent what is not read
        self.reason = ""  # why, one sentence
        self._entry, self._log = entry, log
        self._pacer = pacer or Pacer()
        self._process: Process | None = None
        self._job: Job | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_killed = False

    async def __aenter__(
        self,
    ) -> tuple[
        MemoryObjectReceiveStream[SessionMessage | Exception],
        MemoryObjectSendStream[SessionMessage],
    ]:
        """Start the program; raises StartError."""
        self._process = await self._started()
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks = [
            asyncio.create_task(self._read(self._process, to_session)),
            asyncio.create_task(self._write(self._process, from_session)),
            asyncio.create_task(self._read_errors(self._process)),
        ]
        self._streams = (to_session, from_server, to_server, from_session)
        return from_server, to_server

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the program and all that it started."""
        process = self._process
        assert process is not None
        try:
            if process.stdin is not None:
                process.stdin.close()
            if not self.ended.is_set() and not await _has_ended(process):
                _signal(process, force=False)
                await _has_ended(process)
        finally:
            self.kill()
            for task in self._tasks:
                task.cancel()
            for stream in self._streams:
                stream.close()
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception):
                _log.error("a server of tools could not be read", exc_info=found)
        await _has_ended(process)
        # What it started may hold its pipes open, which would keep them here too.
        getattr(process, "_transport").close()  # noqa: B009  (asyncio has no public way)

    def kill(self) -> None:
        """End the process group at once."""
        if self._process is not None and not self._is_killed:
            # Not again after its end: the number of the group may then be another one's.
            self._is_killed = self._process.returncode is not None
            _signal(self._process, force=True)
        if self._job is not None:
            self._job.close()
            self._job = None

    # --- steps ----------------------------------------------------------------------------------

    async def _started(self) -> Process:
        entry = self._entry
        environment = child_environment(os.environ) | dict(entry.environment)
        folder = Path(entry.folder or Path.home())
        command = entry.command
        if len(Path(command).parts) > 1:
            command = str(folder / command)
        program = shutil.which(command, path=environment.get("PATH"))
        if program is None:
            raise StartError(
                tr(
                    "The program “{command}” of {name} was not found.",
                    command=entry.command,
                    name=entry.name,
                ),
                tr("Install it, or enter its full path, with the arguments apart from it."),
            )
        if not await asyncio.to_thread(folder.is_dir):
            raise StartError(
                tr("The folder {folder} of {name} does not exist.", folder=folder, name=entry.name),
                tr("Make it, or enter another one."),
            )
        try:
            process = await asyncio.create_subprocess_exec(
                *_dies_with_app(),
                program,
                *entry.arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_CHUNK,
                cwd=folder,
                env=environment,
                start_new_session=sys.platform != "win32",
                creationflags=_creation_flags(),
            )
        except (OSError, ValueError) as error:
            raise StartError(
                tr("{name} could not be started: {reason}.", name=entry.name, reason=error),
                tr("Check its command, arguments and folder."),
            ) from error
        self._job = Job(process.pid)
        return process

    async def _read(
        self, process: Process, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Deliver each line of stdout; ends with the program, or when it sends too much."""
        stdout = process.stdout
        assert stdout is not None
        meter, line = MessageMeter(), bytearray()
        try:
            while chunk := await stdout.read(_CHUNK):
                pieces = chunk.split(b"\n")
                for piece in pieces[:-1]:
                    meter.feed(piece)
                    line += piece
                    meter.reset()
                    await self._pacer.spend(1, len(line))
                    if (message := self._message(line)) is not None:
                        await to_session.send(SessionMessage(message))
                    message = None  # its memory is free while the next one is read
                    line = bytearray()
                meter.feed(pieces[-1])
                line += pieces[-1]
        except TooMuch as error:
            self._end(tr("{name} was stopped: it sent {what}.", name=self._entry.name, what=error))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            pass  # the session has ended
        finally:
            if not self.reason:
                await _has_ended(process)
            self.kill()  # what it started, too
            self._end(self._end_of(process))
            to_session.close()  # a waiting call fails

    def _message(self, line: bytearray) -> JSONRPCMessage | None:
        """The message of a line, which is emptied; None for other text, which is logged.

        Steps that hold the text only once: parsing by the SDK's adapter holds it four times.
        """
        text = line.decode("utf-8", "replace")  # some programs write another encoding
        line.clear()
        value: object = None
        try:
            value = json.loads(text.removeprefix("\ufeff")) if text.strip() else None
            return jsonrpc_message_adapter.validate_python(value, by_name=False) if value else None
        except (ValueError, RecursionError):
            self._log.add(f"not a message: {text[:300]}")
        answer = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        match answer.get("id"):
            case (int() | str()) as id if "method" not in answer:
                fault = ErrorData(code=PARSE_ERROR, message="The answer is not of the protocol.")
                return JSONRPCError(jsonrpc="2.0", id=id, error=fault)  # else the call would wait
            case _:
                return None

    async def _write(
        self, process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        stdin = process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError, anyio.ClosedResourceError):
            async for sent in from_session:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()

    async def _read_errors(self, process: Process) -> None:
        """Log stderr; of a flood the log keeps some lines."""
        stderr = process.stderr
        assert stderr is not None
        rest = b""
        while chunk := await stderr.read(_CHUNK):
            *lines, rest = (rest[-_CHUNK:] + chunk).split(b"\n")
            self._log.add(b"\n".join(lines).decode("utf-8", "replace"))
            await asyncio.sleep(0.01 if len(chunk) > _CHUNK // 2 else 0)
        self._log.add(rest.decode("utf-8", "replace"))

    def _end(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            self.ended.set()

    def _end_of(self, process: Process) -> str:
        code, name = process.returncode, self._entry.name
        if code is None:
            return tr("{name} closed its output.", name=name)
        if code < 0:
            return tr("{name} was ended by signal {number}.", name=name, number=-code)
        return tr("{name} ended with exit code {code}.", name=name, code=code)


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server gets of the app's, besides those of its entry."""
    names = (*_INHERITED, *(_INHERITED_WINDOWS if sys.platform == "win32" else ()))
    return {name: environment[name] for name in names if name in environment}


def _dies_with_app() -> tuple[str, ...]:
    """The words before a command that let it end when the app is killed, where Linux has them.

    The app's own code cannot ask for that between fork and exec without a risk of deadlock.
    """
    found = shutil.which("setpriv") if sys.platform == "linux" else None
    return (found, "--pdeathsig", "KILL", "--") if found else ()


def _creation_flags() -> int:
    return subprocess.CREATE_NO_WINDOW if sys.platform == "win32" else 0


async def _has_ended(process: Process) -> bool:
    """Wait a moment for the end of the program; not `wait`, which waits for its pipes too."""
    end = asyncio.get_running_loop().time() + _GRACE_SECONDS
    while process.returncode is None:
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(0.01)
    return True


def _signal(process: Process, *, force: bool) -> None:
    """End a process group, also where its first process has ended already."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL if force else signal.SIGTERM)
