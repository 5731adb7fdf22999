"""Programs in the sandbox: what they print and leave, their limits, and that nothing stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.domain.tools import CallContext, Effect, ToolError
from app.tools.sandbox import probe, sandbox
from app.tools.sandbox.probe import Sandbox
from app.tools.sandbox.sandbox import (
    Ending,
    SandboxError,
    SandboxFile,
    SandboxLimits,
    SandboxResult,
)
from app.tools.sandbox.tool import ID, PythonTool
from isolation import can_isolate

ROOT = Path(__file__).parents[4]
# Root has two ways, and others one.
WAYS = [True] if sys.platform == "win32" or os.geteuid() else [True, False]
linux = pytest.mark.skipif(not can_isolate(), reason="no program can be isolated here")


def run(code: str, limits: SandboxLimits | None = None, **options: Any) -> SandboxResult:
    return asyncio.run(sandbox.run(code, limits, **options))


def processes_of(session: int) -> list[int]:
    """Processes of a session that have not ended; zombies have."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return found


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions of the supervisors that are started, one each."""
    started: list[int] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)

    monkeypatch.setattr(sandbox.subprocess, "Popen", Started)
    return started


@linux
@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("1 + 1", "2\n"),
        ("x = 6\nx * 7", "42\n"),
        ("x = 5", ""),
        ("None", ""),
        ("print('a')\n'b'", "a\n'b'\n"),
        ("", ""),
        ("import sys\nprint('e', file=sys.stderr)\nprint('o')", "e\no\n"),
        ("print('ä 日本 \\ud800')", "ä 日本 \\ud800\n"),
        ("import os\nos.write(1, b'\\xff\\n')\nNone", "\ufffd\n"),
        ("if __name__ == '__main__':\n    print(__name__)", "__main__\n"),
        ("input()", "EOFError: EOF when reading a line\n"),
        ("1 / 0", "ZeroDivisionError: division by zero\n"),
        ("def f(:", "SyntaxError: invalid syntax\n"),
        ("print('\0')", "SyntaxError: source code string cannot contain null bytes\n"),
        ("'\ud800'", "surrogates not allowed\n"),
        ("import numpy", "ModuleNotFoundError: No module named 'numpy'\n"),
        ("import atexit\natexit.register(print, 'end')\nNone", "end\n"),
    ],
)
def test_a_program_prints_as_python_does_and_the_value_of_its_last_line(
    code: str, output: str
) -> None:
    result = run(code)
    assert result.output.endswith(output)
    assert output or not result.output
    assert result.ending is Ending.FINISHED


@linux
def test_a_program_can_be_interrupted_though_the_app_was_started_in_the_background() -> None:
    """A shell without job control has its background programs ignore SIGINT, and so their children."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = run("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.ending, result.status) == (Ending.FINISHED, 1)
    assert "KeyboardInterrupt" in result.output


@linux
def test_a_traceback_names_the_lines_of_the_program_only() -> None:
    result = run("def f():\n    return {}['key']\nf()")
    assert result.output.startswith('Traceback (most recent call last):\n  File "program.py"')
    assert "return {}['key']" in result.output
    assert "sandbox" not in result.output
    assert result.status == 1


@linux
def test_the_standard_library_works() -> None:
    code = """
import asyncio, bz2, ctypes, csv, datetime, decimal, fractions, hashlib, json, lzma, random, re
import sqlite3, ssl, statistics, tempfile, threading, uuid, xml.etree.ElementTree, zipfile, zlib
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
async def two():
    return await asyncio.gather(asyncio.sleep(0, 1), asyncio.to_thread(int, "2"))
with tempfile.TemporaryFile("w+") as file, ThreadPoolExecutor(4) as pool:
    file.write("x")
    print(asyncio.run(two()), sum(pool.map(abs, range(-9, 0))))
print(sqlite3.connect("a.db").execute("select 40 + 2").fetchone())
print(hashlib.sha256(b"").hexdigest()[:6], decimal.Decimal(1) / 3, random.Random(1).randint(1, 9))
callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)
print(callback(), xml.etree.ElementTree.fromstring("<a b='c'/>").attrib)
with open("/dev/null", "w") as file:
    file.write("x")
print(zlib.decompress(zlib.compress(b"zip")), len(str(uuid.uuid4())))
"""
    assert run(code).output.splitlines() == [
        "[1, 2] 45",
        "(42,)",
        "e3b0c4 0.3333333333333333333333333333 3",
        "7 {'b': 'c'}",
        "b'zip' 36",
    ]


@linux
def test_output_comes_while_the_program_runs() -> None:
    came: list[str] = []
    release: asyncio.Event

    async def first_then_stop() -> None:
        nonlocal release
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def output(text: str) -> None:
            came.append(text)
            loop.call_soon_threadsafe(release.set)

        task = asyncio.create_task(
            sandbox.run("print('first')\nwhile True:\n    pass", output=output)
        )
        await release.wait()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(first_then_stop())
    assert came == ["first\n"]


@linux
def test_an_error_of_who_reads_the_output_ends_the_program() -> None:
    def output(_text: str) -> None:
        raise RuntimeError("the reader has gone")

    with pytest.raises(SandboxError, match="the reader has gone"):
        run("print(1)\nwhile True:\n    pass", output=output)


@linux
def test_files_come_back_with_safe_names_and_links_do_not() -> None:
    code = """
import importlib, os
os.makedirs("a/b")
for name in ("plain.txt", "a/b/deep.csv", "con.txt", "what?\\n.png", "x" * 250 + ".txt", ".hidden"):
    open(name, "w").write("text")
os.symlink("/etc/passwd", "link.txt")
os.symlink("plain.txt", "other.txt")
open("empty", "w").close()
open("own.py", "w").write("text")
importlib.invalidate_caches()
try:
    import own
except NameError:
    pass
os.mkdir("shut")
open("shut/file", "w").close()
os.chmod("shut", 0)
"""
    result = run(code)
    found = {file.name: file.content for file in result.files}
    assert found.pop("empty") == b""
    found.pop("shut_file", None)  # a supervisor that is root may read it
    assert set(found.values()) == {b"text"}
    assert {"plain.txt", "own.py", "a_b_deep.csv", "_con.txt", "what_.png", "hidden"} < set(found)
    assert all(len(name) <= 120 for name in found)
    assert not {"link.txt", "other.txt"} & set(found)


def test_two_files_never_get_one_name() -> None:
    taken = {"a_b": SandboxFile("a_b", b""), "2 a_b": SandboxFile("2 a_b", b"")}
    assert sandbox._safe_name(b"A/b", taken) == "3 A_b"
    assert sandbox._safe_name(b"..", {}) == "file"
    assert sandbox._safe_name(b"\xff", {}) == "\ufffd"


@linux
def test_no_more_files_come_back_than_allowed() -> None:
    many = run("for n in range(14):\n    open(f'{n:02}', 'w').write(str(n))")
    assert ([file.name for file in many.files], many.files_left_out) == (
        [f"{number:02}" for number in range(10)],
        4,
    )
    large = run("open('a', 'wb').write(bytes(4_900_000))\nopen('b', 'wb').write(bytes(200_000))\n0")
    assert ([file.name for file in large.files], large.files_left_out) == (["a"], 1)


@linux
def test_output_beyond_the_limit_is_dropped_and_told() -> None:
    result = run("for _ in range(300):\n    print('x' * 999)")
    assert len(result.output) == 100_000
    assert result.dropped_bytes == 200_000
    assert result.ending is Ending.FINISHED


@linux
@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(1000)",
        "while True:\n    pass",
        "while True:\n    print('x' * 10_000)",
        "import signal\nfor n in range(1, 32):\n    if n not in (9, 19):\n"
        "        signal.signal(n, signal.SIG_IGN)\nwhile True:\n    pass",
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(1000)",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        "import atexit, time\natexit.register(time.sleep, 1000)",
        "while True:\n    try:\n        10 ** 10 ** 10\n    except BaseException:\n        pass",
    ],
    ids=["sleep", "loop", "flood", "ignore", "closed", "thread", "atexit", "number"],
)
def test_a_program_ends_at_its_time_limit(code: str, sessions: list[int]) -> None:
    result = run(code, SandboxLimits(seconds=0.4))
    assert result.ending is Ending.TIMEOUT
    assert processes_of(sessions[0]) == []


@linux
@pytest.mark.slow  # it computes for a second
def test_the_processor_time_of_all_threads_counts() -> None:
    code = "import zlib, threading\ndata = bytes(1 << 26)\ndef f():\n    while True:\n"
    code += "        zlib.crc32(data)\nfor _ in range(8):\n    threading.Thread(target=f).start()"
    assert run(code, SandboxLimits(seconds=1)).ending is Ending.TIMEOUT


@linux
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os\nos._exit(3)", 3),
        ("import sys\nsys.exit(4)", 4),
        ("import sys\nsys.exit('so')", 1),
        ("raise KeyboardInterrupt", 1),
        ("import ctypes\nctypes.string_at(0)", -signal.SIGSEGV),
        ("import os\nos.abort()", None),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGINT)", 1),
        (
            "import sys\nsys.setrecursionlimit(10**9)\nf = lambda _: sorted([1], key=f)\nf(1)",
            -signal.SIGSEGV,
        ),
        ("eval('(' * 100_000)", 1),
        ("eval('-' * 1_000_000 + '1')", None),
        ("bytearray(600 << 20)", 1),
        ("import sys\nsys.stdout.close()\nsys.stderr.close()", None),
        ("import os\nos.closerange(0, 99)", None),
    ],
)
def test_a_crash_is_told(code: str, status: int | None, sessions: list[int]) -> None:
    result = run(code, SandboxLimits(seconds=20))
    assert result.ending in (Ending.FINISHED, Ending.CRASHED)
    assert result.status == status or status is None
    assert processes_of(sessions[0]) == []


@linux
@pytest.mark.skipif(
    os.uname().machine != "x86_64" if sys.platform == "linux" else True, reason="x86"
)
def test_a_call_of_another_architecture_ends_the_program() -> None:
    """`int 0x80` with the number of getpid of 32 bits, in machine code."""
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())"
    )
    result = run(code)
    assert (result.ending, result.status) == (Ending.CRASHED, -signal.SIGSYS)


@linux
def test_cancelling_ends_everything_before_it_returns(sessions: list[int]) -> None:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")

    async def cancelled() -> None:
        loop, running = asyncio.get_running_loop(), asyncio.Event()
        code = "import signal\nsignal.signal(15, signal.SIG_IGN)\nprint(1)\nwhile True:\n    pass"
        task = asyncio.create_task(
            sandbox.run(
                code,
                SandboxLimits(seconds=100),
                output=lambda _: loop.call_soon_threadsafe(running.set),
            )
        )
        await running.wait()
        assert len(processes_of(sessions[0])) == 2
        task.cancel()
        await asyncio.wait({task}, timeout=50)
        assert task.cancelled()
        assert processes_of(sessions[0]) == []

    asyncio.run(cancelled())
    assert Path("/proc/self/mountinfo").read_text(encoding="utf-8") == mounts


@linux
def test_a_program_gets_no_variables_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    class Given(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            given.append(options["env"])
            super().__init__(*arguments, **options)

    monkeypatch.setattr(sandbox.subprocess, "Popen", Given)
    variables = {"HOME": "/own", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
    assert run("import os\ndict(os.environ)").output == f"{variables}\n"
    assert given == [variables]


@linux
def test_a_program_has_no_more_threads_than_allowed() -> None:
    code = (
        "import threading\nthreading.stack_size(1 << 16)\nwait, count = threading.Event(), 0\n"
        "try:\n    while count < 500:\n"
        "        threading.Thread(target=wait.wait, daemon=True).start()\n        count += 1\n"
        "except RuntimeError:\n    pass\nwait.set()\ncount"
    )
    # Linux does not limit the tasks of root, which is what a root's user namespace has.
    assert 20 < int(run(code, own_user=WAYS[-1]).output) < 64


@linux
def test_cancelling_at_once_ends_it_too(sessions: list[int]) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(sandbox.run("while True:\n    pass"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert [process for session in sessions for process in processes_of(session)] == []


@linux
@pytest.mark.parametrize("whom", ["app", "supervisor"])
def test_a_killed_app_or_supervisor_leaves_no_process(whom: str) -> None:
    code = (
        "import asyncio, subprocess\n"
        "from app.tools.sandbox import sandbox\n"
        "class Told(subprocess.Popen):\n"
        "    def __init__(self, *arguments, **options):\n"
        "        super().__init__(*arguments, **options)\n"
        "        print(self.pid, flush=True)\n"
        "sandbox.subprocess.Popen = Told\n"
        "program = 'print(1)\\nwhile True:\\n    pass'\n"
        "try:\n"
        "    asyncio.run(sandbox.run(program, output=lambda _: print('on', flush=True)))\n"
        "except sandbox.SandboxError as error:\n"
        "    print(error)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as app:
        assert app.stdout is not None
        session = int(app.stdout.readline())
        assert app.stdout.readline() == "on\n"
        assert len(processes_of(session)) == 2
        os.kill(app.pid if whom == "app" else session, signal.SIGKILL)
        told = app.stdout.read()
    limit = time.monotonic() + 10
    while processes_of(session) and time.monotonic() < limit:
        time.sleep(0.01)
    assert processes_of(session) == []
    assert told == ("" if whom == "app" else "the process that isolates it has ended\n")


def changed_command(lines: str) -> Callable[[], tuple[str, ...]]:
    """The command of a supervisor that these lines change before it starts."""
    code = (
        "import os\nfrom app.tools.sandbox import landlock, namespaces, supervisor, system_calls\n"
        f"{lines}\nsupervisor.main()"
    )
    return lambda: (sys.executable, "-S", "-E", "-s", "-c", code)


@linux
@pytest.mark.parametrize("own_user", WAYS)
def test_an_interpreter_below_the_temporary_folder_is_seen_and_not_returned(
    own_user: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a bundle was unpacked there; and with a file mode mask that hides from others."""
    mask = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            Path(folder).chmod(0o755)
            Path(folder, "module.py").write_text("value = 7", encoding="utf-8")
            Path(folder, "module.py").chmod(0o644)
            lines = (
                "first, folder = supervisor._interpreter, FOLDER\n"
                "supervisor._interpreter = lambda: ([*first()[0], folder], [])\n"
                "namespaces.WORK = '/tmp'\n"
                "namespaces.TEMPORARY = '/other'\n"
                "landlock.WORK, landlock.TEMPORARY = '/tmp', '/other'\n"
            ).replace("FOLDER", repr(folder))
            monkeypatch.setattr(sandbox, "_command", changed_command(lines))
            code = (
                f"import sys\nsys.path.append({folder!r})\nimport module\n"
                "import csv, colorsys\nopen('mine', 'w').close()\nmodule.value"
            )
            result = run(code, own_user=own_user)
    finally:
        os.umask(mask)
    assert result.output == "7\n"
    assert [file.name for file in result.files] == ["mine"]


# What a broken isolation is, as lines that change the supervisor before it starts, and what the log
# says of it. The attempts of the probe do no harm then.
BROKEN = {
    "no namespaces": (
        "def enter(own): raise OSError(1, 'unshare')\nnamespaces.enter = enter",
        "not started: [Errno 1] unshare",
    ),
    "no folders": (
        "def show(*_): raise OSError(13, 'mount')\nnamespaces.show_only = show",
        "not started: [Errno 13] mount",
    ),
    "no filter": ("system_calls.confine = lambda *_: None", "it could ['fork'"),
    "unknown machine": (
        "os.uname = lambda: os.uname_result(('Linux', '', '6', '', 'riscv64'))",
        "not started: 'riscv64'",
    ),
    "a refused filter": (
        "def confine(*_): raise OSError(22, 'seccomp')\nsystem_calls.confine = confine",
        "[Errno 22] seccomp",
    ),
    "no loss of rights": (
        "def drop(user): raise OSError(1, 'capset')\nnamespaces.drop_privileges = drop",
        "[Errno 1] capset",
    ),
    "all files are seen": (
        "namespaces.show_only = lambda *_: None\n"
        "namespaces.WORK = namespaces.TEMPORARY = {folder!r}\n"
        "landlock.lock = lambda: None",
        "a folder was changed from inside",
    ),
    "it ends at once": ("supervisor.main = lambda: None", "it has ended"),
    "it tells nonsense": ("supervisor.main = lambda: print('nonsense' * 1000)", "a frame of"),
    "it does nothing": ("import time\nsupervisor.main = lambda: time.sleep(100)", "timeout"),
}


def checked(tool: PythonTool) -> None:
    """Wait for the probe of a tool."""
    done = threading.Event()
    tool.check(done.set)
    assert done.wait(60)


@linux
@pytest.mark.parametrize("name", BROKEN)
def test_the_tool_is_off_where_isolation_does_not_hold(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    lines, reason = BROKEN[name]
    lines = lines.replace("{folder!r}", repr(str(tmp_path)))
    monkeypatch.setattr(sandbox, "_command", changed_command(lines))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # so that one way is tried
    if reason == "timeout":
        monkeypatch.setattr(probe, "_LIMITS", SandboxLimits(seconds=0.2))
    with caplog.at_level("INFO"):
        assert_off()
    assert reason in caplog.text


@linux
@pytest.mark.parametrize("command", [("/nonexistent/python",), ("/bin/false",), ("/bin/cat",)])
def test_the_tool_is_off_where_the_supervisor_does_not_start(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_command", lambda: command)
    if command == ("/bin/cat",):
        monkeypatch.setattr(probe, "_LIMITS", SandboxLimits(seconds=0.2))
    assert_off()


@pytest.mark.parametrize("platform", ["win32", "darwin", "freebsd"])
def test_the_tool_is_off_on_other_systems(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.sys, "platform", platform)
    assert_off()


def assert_off() -> None:
    """A new tool says why it is off, and runs nothing."""
    ran: list[str] = []
    tool = PythonTool()
    checked(tool)
    (spec,) = tool.tools()
    assert spec.problem.endswith(".")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "run", lambda code, *_, **__: ran.append(code))
        with pytest.raises(ToolError) as caught:
            asyncio.run(tool.call(ID, {"code": "1"}, CallContext(1)))
        with pytest.raises(SandboxError):
            asyncio.run(tool._sandbox.run("1"))
    assert str(caught.value) == spec.problem
    assert ran == []


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor"),
        ({"kernel/unprivileged_userns_clone": "0"}, "turned off"),
        ({"user/max_user_namespaces": "0"}, "turned off"),
        ({}, "kernel"),
    ],
)
def test_the_reason_is_what_the_system_tells(
    settings: dict[str, str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe.sys, "platform", "linux")
    monkeypatch.setattr(probe, "_setting", lambda name: settings.get(name, ""))
    assert word in probe._reason()


@linux
def test_a_call_waits_until_the_probe_has_ended_which_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, probes = threading.Event(), list[bool]()

    def slow(own_user: bool) -> str:
        assert go_on.wait(30)
        probes.append(own_user)
        return "a file could be read"

    monkeypatch.setattr(probe, "escapes", slow)
    tool = PythonTool()
    assert tool.tools()[0].problem == ""  # the first answer after a start is offered it too

    async def called() -> None:
        call = asyncio.ensure_future(tool.call(ID, {"code": "1"}, CallContext(1)))
        await asyncio.sleep(0.05)
        assert not call.done()
        go_on.set()
        with pytest.raises(ToolError, match="isolate"):
            await call

    asyncio.run(called())
    tool.check()
    assert tool.tools()[0].problem
    assert len(probes) == len(WAYS)


@linux
def test_a_call_tells_the_model_what_came_of_it() -> None:
    tool = PythonTool()
    checked(tool)
    (spec,) = tool.tools()
    assert (spec.id, spec.name, spec.problem) == (ID, "run_python", "")
    assert spec.effects == {Effect.RUNS}

    def told(code: object) -> tuple[str, bool]:
        outcome = asyncio.run(tool.call(ID, {"code": code}, CallContext(1)))
        return outcome.text, outcome.failed

    assert told("17.5 / 100 * 2384") == ("417.2", False)
    assert told("x = 1") == ("(It printed nothing.)", False)
    assert told("import sys\nsys.exit(2)") == (
        "(It printed nothing.)\n(Its exit status is 2.)",
        True,
    )
    assert told("open('a.txt', 'w').write('abc')") == (
        "3\n(Files it left, for the user: a.txt (3 bytes).)",
        False,
    )
    assert told("import ctypes\nctypes.string_at(0)")[0].endswith("(It crashed: SIGSEGV.)")
    assert "200000 more bytes" in told("for _ in range(300):\n    print('x' * 999)")[0]
    for wrong in ("", "  ", 5, None):
        with pytest.raises(ToolError, match="code"):
            told(wrong)


def test_a_source_runs_two_programs_at_once_and_tells_what_a_call_does() -> None:
    running: list[int] = []
    most = 0

    class Counting(Sandbox):
        def wait(self) -> None:
            pass

        async def run(self, *_arguments: object) -> SandboxResult:
            nonlocal most
            running.append(1)
            most = max(most, len(running))
            await asyncio.sleep(0)
            running.pop()
            return SandboxResult("1", Ending.FINISHED)

    tool = PythonTool(Counting())

    async def many() -> None:
        await asyncio.gather(*(tool.call(ID, {"code": "1"}, CallContext(1)) for _ in range(6)))

    asyncio.run(many())
    assert most == 2
    assert len(tool.changes(ID, {"code": "1"}, CallContext(1))) == 1
    assert tool.scope(ID, {"code": "1"}) == ""
