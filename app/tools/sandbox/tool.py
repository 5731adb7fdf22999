"""The tool that runs a Python program in a sandbox."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.domain.builtin_words import about_of, title_of
from app.domain.tools import CallContext, Effect, ToolError, ToolFile, ToolOutcome, ToolSpec
from app.system.translation import tr
from app.tools.sandbox.probe import Sandbox
from app.tools.sandbox.sandbox import Ending, SandboxError, SandboxLimits, SandboxResult

_NAME = "run_python"
ID = f"builtin/{_NAME}"
_LIMITS = SandboxLimits()
_AT_ONCE = 2  # programs
_DESCRIPTION = (
    "Run a Python 3 program and return what it prints; if its last line is an expression, its value"
    " is printed too. It has the standard library only, no network, no other programs, and an empty"
    " working folder. Files written there are given to the user, not to the next call. It may take"
    f" {_LIMITS.seconds:.0f} seconds and {_LIMITS.memory_bytes >> 20} MB of memory. Its clock is UTC."
)
_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
        "additionalProperties": False,
    }
)


class PythonTool:
    """A source of this one tool; off until `check` has found that programs are isolated."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox or Sandbox()
        self._free = asyncio.Semaphore(_AT_ONCE)

    def check(self, changed: Callable[[], None] | None = None) -> None:
        """Find out whether programs are isolated; `changed` is called on a thread when known."""
        self._sandbox.check(changed)

    def tools(self) -> Sequence[ToolSpec]:
        """The tool, with why it cannot be used."""
        return (
            ToolSpec(
                ID,
                _NAME,
                title_of(_NAME),
                _DESCRIPTION,
                _SCHEMA,
                effects=frozenset({Effect.RUNS}),
                problem=self._sandbox.problem(),
                about=about_of(_NAME),
            ),
        )

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """What running a program means."""
        return (tr("Runs this program by itself: it reaches neither your files nor the network."),)

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        """Nothing else."""
        return ""

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        """Run a program; raises ToolError."""
        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            raise ToolError('"code" must be a text: the program.')
        await asyncio.to_thread(self._sandbox.wait)
        if problem := self._sandbox.problem():
            raise ToolError(problem)
        async with self._free:
            try:
                result = await self._sandbox.run(code, _LIMITS, context.output)
            except SandboxError as error:
                raise ToolError(
                    f"The program was not run, as it cannot be isolated: {error}"
                ) from None
        return _told(result)


def _told(result: SandboxResult) -> ToolOutcome:
    """What the model reads."""
    lines = [result.output.rstrip("\n")] if result.output.strip() else ["(It printed nothing.)"]
    if result.dropped_bytes:
        lines.append(f"({result.dropped_bytes} more bytes of its output were dropped.)")
    failed = True
    match result.ending:
        case Ending.TIMEOUT:
            lines.append(f"(It was stopped after {_LIMITS.seconds:.0f} seconds.)")
        case Ending.MEMORY:
            lines.append(f"(It was ended: it may have {_LIMITS.memory_bytes >> 20} MB of memory.)")
        case Ending.CRASHED:
            lines.append(f"(It crashed: {_signal_name(-result.status)}.)")
        case Ending.FINISHED:
            failed = result.status != 0
            if failed:
                lines.append(f"(Its exit status is {result.status}.)")
    if result.files or result.files_left_out:
        names = [f"{file.name} ({len(file.content)} bytes)" for file in result.files]
        if result.files_left_out:
            names.append(f"{result.files_left_out} more, which are too many or too large")
        lines.append(f"(Files it left, for the user: {', '.join(names)}.)")
    files = tuple(
        ToolFile(file.name, mimetypes.guess_type(file.name)[0] or "", file.content)
        for file in result.files
    )
    return ToolOutcome("\n".join(lines), failed, files, result.files_left_out)


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
