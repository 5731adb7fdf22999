"""Tools and calls for tests and pictures of the window."""

from __future__ import annotations

from app.domain.tool_activity import Allowed, CallState, Grant, ToolActivity
from app.domain.tools import Effect, ToolSpec
from app.state.tools import ToolRow

SCHEMA = '{"type": "object"}'


def tool(
    id: str, title: str, about: str, *effects: Effect, server: str = "", problem: str = ""
) -> ToolSpec:
    """A tool; its name is the last part of its id."""
    name = id.rpartition("/")[2]
    return ToolSpec(id, name, title, about, SCHEMA, server, frozenset(effects), server, problem)


CALCULATE = tool("builtin/calculate", "Calculator", "Computes with exact decimals and units.")
CLOCK = tool("builtin/clock", "Date and time", "Tells the date and the time, and counts days.")
READ = tool("builtin/read_file", "Read a file", "Reads a file that the user picked.", Effect.READS)
WRITE = tool(
    "builtin/write_file", "Write a file", "Writes a text file into a folder.", Effect.WRITES
)
PYTHON = tool(
    "builtin/run_python", "Run Python", "Runs a Python program without network.", Effect.RUNS,
    problem="This system has no way to isolate programs. Install bubblewrap.",
)  # fmt: skip
ISSUES = tool(
    "tracker/list_issues", "List issues",
    "Lists the issues of a project.\nReturns at most 100, the newest first, as JSON.",
    Effect.READS, Effect.NETWORK, server="tracker",
)  # fmt: skip
BUILT_IN = (CALCULATE, CLOCK, READ, WRITE, PYTHON)
ROWS = tuple(
    ToolRow(each, tokens)
    for each, tokens in zip((*BUILT_IN, ISSUES), (85, 112, 140, 151, 190, 0), strict=True)
)


def many(count: int, server: str = "big") -> list[ToolRow]:
    """Tools of a server that has very many."""
    return [
        ToolRow(tool(f"{server}/do_{n}", f"Do {n}", f"Does number {n}.", server=server), 50)
        for n in range(count)
    ]


def call(
    id: int,
    spec: ToolSpec = CALCULATE,
    state: CallState = CallState.DONE,
    allowed: Allowed = Allowed.NO_EFFECT,
    arguments: str = '{"expression": "2384 * 0.175"}',
    result: str = "417.2",
    *,
    title: str = "Money",
    conversation: int = 1 << 40,
) -> ToolActivity:
    """A call of a tool, a minute after the one before."""
    return ToolActivity(
        id, conversation, 7, f"call_{id}", spec.id, spec.name, spec.server, arguments, result,
        state, allowed, 1_796_000_000.0 + 60 * id, 0.4, title,
    )  # fmt: skip


def grant(spec: ToolSpec, *, scope: str = "", conversation: int | None = None) -> Grant:
    """What was allowed to a tool."""
    return Grant(spec.id, spec.digest, scope, conversation, "", 1_796_000_000.0)
