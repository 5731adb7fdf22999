"""Attempts to escape from the sandbox: each fails inside, and nothing of it is seen outside."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import escape_attempts
from app.tools.sandbox import sandbox
from app.tools.sandbox.probe import escapes
from app.tools.sandbox.sandbox import Ending, SandboxLimits, SandboxResult
from isolation import can_isolate

pytestmark = pytest.mark.skipif(not can_isolate(), reason="no program can be isolated here")

ROOT = Path(__file__).parents[4]
CONTENT = "canary"
SECRET = "a secret in the environment"
LIMITS = SandboxLimits(seconds=25, memory_bytes=128 << 20)
# Root has two ways, and others one.
WAYS = [True] if sys.platform == "win32" or os.geteuid() else [True, False]


# Of these nothing may rest on one lock alone.
MATTERS = [
    *("network: tcp v4", "network: tcp v6", "network: udp v4", "network: asyncio"),
    *("network: unix socket by its path", "network: unix socket by an abstract name"),
    *("network: a server", "network: names of hosts", "files: read", "files: append"),
    *("files: make", "files: remove", "files: change the mode", "files: look at", "files: users"),
    *("files: symbolic link", "files: hard link", "files: home folder", "files: programs"),
    *("files: change the library", "files: make a file in the library", "files: write at the top"),
    *("devices: process 1", "devices: memory of another", "devices: list of processes"),
    *("devices: /sys", "devices: a disk", "devices: /dev/mem", "devices: make a device"),
    *("processes: end another", "processes: end the app", "processes: group of another"),
    *("processes: priority of another", "processes: limits of another", "processes: a shell"),
    *("processes: spawn", "processes: subprocess", "privileges: be root", "privileges: time"),
    *("privileges: name of the computer", "mounts: chroot twice", "privileges: more memory"),
]


@dataclass
class Batch:
    """What came of all attempts, inside and outside."""

    result: SandboxResult
    outcomes: dict[str, str]
    touched: list[str]  # what was noticed outside


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> list[Batch]:
    """The attempts in each way of isolation."""
    made: list[Batch] = []
    for own_user in WAYS:
        assert escapes(own_user) == ""  # what would harm this computer is not tried otherwise
        folder = tmp_path_factory.mktemp("outside")
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            patch.setenv("TOKONOMA_SECRET", SECRET)
            made.append(_batch(folder, stack, own_user=own_user))
    return made


def _batch(
    folder: Path, stack: ExitStack, *, own_user: bool, names: Collection[str] | None = None
) -> Batch:
    canary = folder / "canary"
    canary.write_text(CONTENT, encoding="utf-8")
    before = canary.stat()
    tcp, tcp6, unix, named, udp = (
        stack.enter_context(one)
        for one in (
            socket.create_server(("127.0.0.1", 0)),
            socket.socket(socket.AF_INET6),
            socket.socket(socket.AF_UNIX),
            socket.socket(socket.AF_UNIX),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        )
    )
    port6 = tcp.getsockname()[1]
    with suppress(OSError):  # a machine without IPv6
        tcp6.bind(("::1", 0))
        tcp6.listen()
        port6 = tcp6.getsockname()[1]
    udp.bind(("127.0.0.1", 0))
    unix.bind(os.path.relpath(folder / "s") if len(str(folder)) > 90 else str(folder / "s"))
    unix.listen()
    abstract = f"tokonoma-{os.urandom(8).hex()}"
    named.bind(f"\0{abstract}")
    named.listen()
    process = subprocess.Popen(["sleep", "60"])
    stack.callback(process.wait)
    stack.callback(process.kill)
    goal = {
        "canary": str(canary),
        "folder": str(folder),
        "home": [str(path) for path in Path.home().iterdir() if path.name != ".pyenv"],
        "tcp": tcp.getsockname()[1],
        "tcp6": port6,
        "udp": udp.getsockname()[1],
        "socket": str(folder / "s"),
        "abstract": abstract,
        "process": process.pid,
        "app": os.getpid(),
        "checkout": str(ROOT),
        "secret": SECRET,
        "host": os.uname().nodename,
    }
    pieces = escape_attempts.ATTEMPTS
    pieces = pieces if names is None else {name: pieces[name] for name in names}
    code = escape_attempts.program(goal, pieces)
    result = asyncio.run(sandbox.run(code, LIMITS, own_user=own_user))
    touched = [
        what
        for what, server in (("tcp", tcp), ("tcp6", tcp6), ("unix", unix), ("abstract", named))
        if _was_reached(server)
    ]
    udp.setblocking(False)
    with suppress(BlockingIOError):
        udp.recv(100)
        touched.append("udp")
    after = canary.stat()
    touched += ["canary"] if canary.read_text(encoding="utf-8") != CONTENT else []
    touched += ["its metadata"] if _facts(after) != _facts(before) else []
    touched += sorted({path.name for path in folder.iterdir()} - {"canary", "s"})
    touched += ["process"] if process.poll() is not None else []
    try:
        outcomes = json.loads(result.output)
    except ValueError:
        outcomes = {}
    return Batch(result, outcomes, touched)


def _facts(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_mode, stat.st_uid, stat.st_nlink, stat.st_mtime_ns, stat.st_size


def _was_reached(server: socket.socket) -> bool:
    server.setblocking(False)
    with suppress(OSError):
        server.accept()[0].close()
        return True
    return False


@pytest.mark.parametrize("name", escape_attempts.ATTEMPTS)
def test_an_attempt_is_refused(batches: list[Batch], name: str) -> None:
    came = [batch.outcomes.get(name) or f"nothing: {batch.result}"[:2000] for batch in batches]
    assert not [outcome for outcome in came if not outcome.startswith("refused")]


def test_nothing_outside_was_touched_and_the_program_ended(batches: list[Batch]) -> None:
    for batch in batches:
        assert batch.touched == []
        assert (batch.result.ending, batch.result.status) == (Ending.FINISHED, 0)


@pytest.mark.parametrize(
    "lines",
    ["system_calls.confine = lambda *_: None", "landlock.lock = lambda: None"],
    ids=["without the filter", "without Landlock"],
)
def test_what_matters_holds_without_one_of_the_locks(
    lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Namespaces, filter and Landlock do not rely on each other for what is outside."""
    code = (
        "from app.tools.sandbox import landlock, namespaces, supervisor, system_calls\n"
        f"{lines}\nsupervisor.main()"
    )
    monkeypatch.setattr(sandbox, "_command", lambda: (sys.executable, "-S", "-E", "-s", "-c", code))
    with ExitStack() as stack:
        batch = _batch(tmp_path, stack, own_user=True, names=MATTERS)
    assert [name for name in MATTERS if not batch.outcomes[name].startswith("refused")] == []
    assert batch.touched == []


def test_the_attempts_are_real_where_nothing_isolates(tmp_path: Path) -> None:
    """Those that harm nothing succeed in an ordinary process: a mistake is no refusal."""
    canary = tmp_path / "canary"
    canary.write_text(CONTENT, encoding="utf-8")
    kept = (
        *("files: read", "files: look at", "files: ask for access", "files: users"),
        *("files: make", "files: programs", "devices: process 1", "devices: own program"),
        *("devices: list of processes", "devices: /sys", "processes: fork", "processes: clone"),
        *("processes: group of another", "processes: exec of memory", "processes: a shell"),
        *("processes: spawn", "processes: subprocess", "network: a server", "network: tcp v4"),
        *("network: netlink", "privileges: files in memory", "privileges: message queue"),
        *("files: hard link", "files: watch files", "resources: descriptors"),
    )
    pieces = {name: escape_attempts.ATTEMPTS[name] for name in kept}
    with socket.create_server(("127.0.0.1", 0)) as server:
        goal = {
            "canary": str(canary),
            "folder": str(tmp_path),
            "tcp": server.getsockname()[1],
            "process": os.getppid(),
        }
        code = escape_attempts.program(goal, pieces).replace('"/own"', repr(str(tmp_path)))
        done = subprocess.run(
            [sys.executable, "-I", "-c", code], capture_output=True, check=True, cwd=tmp_path
        )
    outcomes = json.loads(done.stdout)
    refused = {name: outcome for name, outcome in outcomes.items() if outcome != "escaped"}
    assert not [name for name in refused if outcomes[name].startswith("wrong")], refused
    # A container may refuse some of them.
    assert len(refused) <= 4, refused
