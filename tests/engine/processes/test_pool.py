"""Child processes: their limits, what they may not do, and that nothing of them is left."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import child_tasks
from engine import child
from engine.processes import windows_job
from engine.processes.frames import FrameError, read_frame
from engine.processes.pool import ChildError, ChildFault, ChildLimits, ChildPool, child_command

LIMITS = ChildLimits(seconds=20, memory_bytes=400_000_000, output_bytes=20_000_000)
Make = Callable[..., ChildPool]
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and limits")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def make() -> Iterator[Make]:
    """Factory of pools whose children have the tasks of `child_tasks`."""
    made: list[ChildPool] = []

    def pool(limits: ChildLimits = LIMITS, most: int = 2) -> ChildPool:
        made.append(ChildPool(limits, most, child_tasks.COMMAND))
        return made[-1]

    yield pool
    for one in made:
        one.close()


def fault_of(pool: ChildPool, task: str, request: dict[str, object] | None = None) -> ChildError:
    with pytest.raises(ChildError) as caught:
        pool.call(task, request or {})
    return caught.value


def process_of(pool: ChildPool) -> int:
    return int(pool.call("echo", {"text": ""})[1])


def gone(process: int, seconds: float = 2.0, *, reaped: bool = True) -> bool:
    """Whether a process ends in time; `reaped`: it is no zombie either."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            state = (
                Path(f"/proc/{process}/stat")
                .read_text(encoding="utf-8")
                .rpartition(")")[2]
                .split()[0]
            )
        except OSError:
            return True
        if state == "Z" and not reaped:
            return True
        time.sleep(0.01)
    return False


def test_a_child_does_many_tasks(make: Make) -> None:
    pool = make()
    texts = [f"näme\r\n{number}\n" for number in range(50)]
    results = [pool.call("echo", {"text": text}) for text in texts]
    assert [text.decode() for text, _ in results] == texts
    assert len({process for _, process in results}) == 1


def test_bytes_are_sent_along_with_one_task(make: Make) -> None:
    pool = make()
    long = os.urandom(1 << 16) * 400  # more than pipes hold
    for content in (b"x", long, b"", b"\0\xff"):
        wanted = hashlib.sha256(content or b"nothing").hexdigest()
        assert pool.call("hash", {}, content=content) == [wanted.encode()]


def test_what_a_library_prints_is_no_part_of_the_result(make: Make) -> None:
    pool = make()
    before = process_of(pool)
    assert pool.call("print", {}) == [b"result"]
    assert process_of(pool) == before


def test_a_child_collects_garbage_although_the_start_of_the_app_does_not(make: Make) -> None:
    assert make().call("collects", {}) == [b"True"]


@linux
@pytest.mark.parametrize("task", ["sleep", "never"])
def test_a_task_that_takes_too_long_ends(make: Make, task: str) -> None:
    pool = make(ChildLimits(seconds=1.5))  # a start counts, too
    process = process_of(pool)
    start = time.monotonic()
    assert fault_of(pool, task, {"seconds": 60}).fault is ChildFault.TIMEOUT
    assert time.monotonic() - start < 10
    assert gone(process)
    assert process_of(pool) != process


def test_a_task_that_tells_its_progress_has_more_time(make: Make) -> None:
    # A start counts, too, and takes seconds on Windows.
    pool = make(ChildLimits(seconds=10.0 if sys.platform == "win32" else 2.0))
    done: list[float] = []
    request = {"steps": 8, "seconds": 0.3}
    assert pool.call("steps", request, None, done.append) == [b"done"]
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_a_task_that_never_ends_has_a_limit_in_all(make: Make) -> None:
    pool = make(ChildLimits(seconds=1.0, most_seconds=1.5))
    error = fault_of(pool, "steps", {"steps": 1_000_000, "seconds": 0.1})
    assert error.fault is ChildFault.TIMEOUT


def test_a_task_can_be_cancelled_at_any_time(make: Make) -> None:
    pool = make()
    asked = threading.Event()
    threading.Timer(0.3, asked.set).start()
    with pytest.raises(ChildError) as caught:
        pool.call("never", {}, asked.is_set)
    assert caught.value.fault is ChildFault.CANCELLED


@posix
def test_a_task_that_needs_too_much_memory_ends(make: Make) -> None:
    pool = make()
    assert fault_of(pool, "allocate", {"megabytes": 2000}).fault is ChildFault.MEMORY
    assert pool.call("allocate", {"megabytes": 10}) == [b"10"]


@linux
def test_a_child_is_the_first_to_end_when_memory_runs_out(make: Make) -> None:
    pool = make()
    assert Path(f"/proc/{process_of(pool)}/oom_score_adj").read_text(encoding="utf-8") == "1000\n"
    assert fault_of(pool, "die", {"signal": signal.SIGKILL.value}).fault is ChildFault.MEMORY


@linux
def test_a_child_whose_memory_has_grown_is_replaced(make: Make) -> None:
    pool = make()
    before = process_of(pool)
    assert pool.call("allocate", {"megabytes": 250}) == [b"250"]
    assert gone(before)
    assert process_of(pool) != before


@pytest.mark.parametrize("size", [1_000_000, 0])
def test_a_result_that_is_too_long_or_of_too_many_pieces_ends_the_child(
    make: Make, size: int
) -> None:
    assert fault_of(make(), "flood", {"bytes": size}).fault is ChildFault.OUTPUT


@pytest.mark.parametrize(
    ("task", "request_", "detail"),
    [
        ("raise", {}, "ValueError: this is wrong"),
        ("die", {"code": 3}, "exit code 3"),
        pytest.param("die", {"signal": signal.SIGSEGV.value}, "signal 11", marks=posix),
        ("die", {"code": 0}, "exit code 0"),
        ("no such task", {}, "exit code 1"),
    ],
)
def test_a_failure_is_told_and_the_next_call_has_another_child(
    make: Make, task: str, request_: dict[str, object], detail: str
) -> None:
    pool = make()
    error = fault_of(pool, task, request_)
    assert (error.fault, error.detail) == (ChildFault.CRASHED, detail)
    assert pool.call("echo", {"text": "next"})[0] == b"next"


@linux
def test_a_child_that_ended_while_idle_is_replaced_without_a_fault(make: Make) -> None:
    pool = make()
    before = process_of(pool)
    assert pool.call("go idle", {}) == [b"going"]
    assert gone(before)
    assert process_of(pool) != before


def test_a_program_that_cannot_be_started_is_told() -> None:
    pool = ChildPool(command=("/no/such/program",))
    assert fault_of(pool, "echo").fault is ChildFault.NOT_STARTED
    pool.close()


def test_as_many_tasks_run_at_once_as_there_are_children(make: Make) -> None:
    pool = make(most=2)
    found: list[bytes] = []

    def call() -> None:
        found.append(pool.call("echo", {"text": "x"})[1])

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert 1 <= len(set(found)) <= 2


@linux
def test_closing_ends_running_tasks_and_leaves_nothing(make: Make) -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    pool = make(most=1)
    process = process_of(pool)
    faults: list[ChildFault] = []

    def call() -> None:
        faults.append(fault_of(pool, "sleep", {"seconds": 60}).fault)

    threads = [threading.Thread(target=call) for _ in range(3)]  # one runs, the others wait
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    pool.close()
    for thread in threads:
        thread.join()
    assert faults == [ChildFault.CANCELLED] * 3
    assert gone(process)
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert fault_of(pool, "echo").fault is ChildFault.CANCELLED


def test_a_child_outlives_the_thread_that_first_called_it(make: Make) -> None:
    pool = make()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(process_of(pool)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert process_of(pool) == found[0]


@posix
def test_an_interrupt_in_the_terminal_reaches_no_child(make: Make) -> None:
    process = process_of(make())
    assert os.getsid(process) == process


@linux
def test_a_child_can_write_connect_or_start_nothing(make: Make, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = {"folder": str(tmp_path), "port": server.getsockname()[1]}
        assert make().call("forbidden", request) == [b""]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert os.listdir(tmp_path) == ["kept"]
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "kept"


@linux
@pytest.mark.parametrize("task", ["sleep", "never"])
def test_a_child_ends_when_its_parent_is_killed(task: str) -> None:
    code = (
        f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n"
        "import threading, child_tasks\n"
        "from engine.processes.pool import ChildPool\n"
        "pool = ChildPool(command=child_tasks.COMMAND)\n"
        "print(int(pool.call('echo', {'text': ''})[1]), flush=True)\n"
        f"pool.call({task!r}, {{'seconds': 60}})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        time.sleep(0.3)
        assert not gone(process, 0.05)
        parent.kill()
    assert gone(process, 1.0, reaped=False)  # which is the system's business


@pytest.mark.parametrize("package", ["app", "engine"])
def test_the_child_of_a_program_imports_neither_qt_nor_what_computes(package: str) -> None:
    code = (
        "import sys; sys.argv[1:] = ['--child']\n"
        "import engine.processes.child as child\n"
        "child.serve = lambda tasks: (print(*tasks, '|', *sys.modules), sys.exit(0))\n"
        f"import {package}.__main__"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=child_tasks.ROOT,
    )  # fmt: skip
    tasks, _, imported = done.stdout.partition("|")
    assert set(tasks.split()) >= set(child.TASKS), done.stderr
    assert ("extract" in tasks.split()) == (package == "app")
    names = set(imported.split())
    assert "engine.processes.restrictions" in names
    assert {name.partition(".")[0] for name in names}.isdisjoint(
        {"PySide6", "shiboken6", "qasync", "torch", "numpy", "asyncio", "PIL"}
        | {"httpx", "sqlite3", "pypdfium2"}
    )
    assert names.isdisjoint({"engine.cli", "engine.gguf.reader", "engine.models"})


@pytest.mark.skipif(sys.platform != "win32", reason="asks Windows")
def test_a_process_can_enter_its_job() -> None:
    """Whose limits Windows refuses if a structure or number is wrong; then it stays outside."""
    code = (
        "import ctypes\n"
        "from engine.processes import windows_job\n"
        "kernel, inside = windows_job._kernel(), ctypes.c_int()\n"
        "kernel.IsProcessInJob.argtypes = (ctypes.c_void_p,) * 3\n"
        "windows_job.enter_job(1 << 30)\n"
        "kernel.IsProcessInJob(kernel.GetCurrentProcess(), None, ctypes.byref(inside))\n"
        "print(inside.value, windows_job.peak_memory() > 1 << 20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=child_tasks.ROOT,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "True"], done.stderr


def test_a_bundle_is_its_own_child(monkeypatch: pytest.MonkeyPatch) -> None:
    assert child_command()[-3:] == ("-m", "engine", "--child")
    assert child_command("app")[-3:] == ("-m", "app", "--child")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert child_command() == child_command("app") == (sys.executable, "--child")


@pytest.mark.parametrize(
    "stream", [b"P\0", b"P" + b"\xff" * 8 + b"x", b"P" + (9).to_bytes(8, "big") + b"short"]
)
def test_a_frame_that_is_none_is_refused(tmp_path: Path, stream: bytes) -> None:
    (tmp_path / "stream").write_bytes(stream)
    with (tmp_path / "stream").open("rb") as file, pytest.raises(FrameError):
        read_frame(file, 1000)


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="sizes of 64-bit structures")
def test_the_structures_of_windows_have_their_sizes() -> None:
    assert ctypes.sizeof(windows_job.JobBasicLimits) == 64
    assert ctypes.sizeof(windows_job.JobLimits) == 144
    assert ctypes.sizeof(windows_job.MemoryCounters) == 72
    assert windows_job.JobLimits.ProcessMemoryLimit.offset == 112
    limits = windows_job.job_limits(5_000_000_000)
    assert limits.ProcessMemoryLimit == 5_000_000_000
    assert limits.BasicLimitInformation.ActiveProcessLimit == 1
