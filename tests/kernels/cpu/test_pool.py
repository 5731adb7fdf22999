"""The pool of threads: whatever their number, results have the same bits, and idle ones cost nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernels.cpu import library, ops, weights
from kernels.ops import Activation, Softcap
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import stored

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())

MOST = 256  # threads, NK_MAX_THREADS of pool.h
NUMBERS = (2, 3, 5)
IDLE = 0.25  # seconds that are watched
TASKS = Path("/proc/self/task")

Numbers = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def same_number_after() -> Iterator[None]:
    """Puts back how many threads share work, and has all others end before that."""
    before = library.threads()
    yield
    library.set_threads(1)
    library.set_threads(before)


@pytest.fixture
def numbers(random: torch.Generator) -> Numbers:
    """Makes random numbers of a shape."""
    return lambda *shape: torch.randn(*shape, generator=random)


def products(format: str) -> Callable[[Numbers, Callable[..., Tensor]], Callable[[], Tensor]]:
    """A product with more tokens than are quantized at once, and rows that no number divides."""

    def make(numbers: Numbers, even_rows: Callable[..., Tensor]) -> Callable[[], Tensor]:
        row = by_name(format)
        weight = weights.prepare(Weight(even_rows(row, 333, 512), row, (333, 512)))
        x = numbers(530, 512)
        return lambda: ops.linear(x, weight)

    return make


def one_token(numbers: Numbers, even_rows: Callable[..., Tensor]) -> Callable[[], Tensor]:
    row = by_name("Q4_0")
    weight = weights.prepare(Weight(even_rows(row, 2500, 1024), row, (2500, 1024)))
    x = numbers(1, 1024)
    return lambda: ops.linear(x, weight)


def norm(numbers: Numbers, _: object) -> Callable[[], Tensor]:
    x, weight = numbers(301, 777), numbers(777)
    return lambda: ops.rms_norm(x, weight, 1e-6)


def rotation(numbers: Numbers, _: object) -> Callable[[], Tensor]:
    x, positions, frequencies = numbers(203, 5, 80), torch.arange(7, 210), numbers(32).abs()
    return lambda: ops.rope(x, positions, frequencies, False, 1.5)


def gate(numbers: Numbers, _: object) -> Callable[[], Tensor]:
    gate, up = numbers(100_003), numbers(100_003)
    return lambda: ops.gated(gate, up, Activation.GELU_TANH)


def cap(numbers: Numbers, _: object) -> Callable[[], Tensor]:
    x = numbers(100_003)
    return lambda: ops.in_place(Softcap("x", 2.5), x[None], x[None])


def prompt_attention(numbers: Numbers, _: object) -> Callable[[], Tensor]:
    q = numbers(90, 6, 64)
    kv = stored(numbers(120, 2, 64), numbers(120, 2, 64), torch.float32)
    return lambda: ops.attention(q, kv, 30, 0.1, 0, 0.0)


def token_attention(numbers: Numbers, _: object) -> Callable[[], Tensor]:
    q = numbers(1, 6, 64)
    kv = stored(numbers(3001, 2, 64), numbers(3001, 2, 64), torch.float32)
    return lambda: ops.attention(q, kv, 3000, 0.1, 0, 0.0)


OPERATIONS = {
    "linear Q4_0": products("Q4_0"),
    "linear F32": products("F32"),
    "linear one token": one_token,
    "norm": norm,
    "rotation": rotation,
    "gate": gate,
    "cap": cap,
    "attention of a prompt": prompt_attention,
    "attention of a token": token_attention,
}


@pytest.mark.parametrize("make", OPERATIONS.values(), ids=OPERATIONS)
def test_any_number_of_threads_gives_the_same_bits(
    make: Callable[[Numbers, Callable[..., Tensor]], Callable[[], Tensor]],
    numbers: Numbers,
    even_rows: Callable[..., Tensor],
) -> None:
    operation = make(numbers, even_rows)
    library.set_threads(1)
    alone = operation()
    assert not torch.any(alone.float().isnan())
    for threads in NUMBERS:
        library.set_threads(threads)
        for _ in range(3):
            torch.testing.assert_close(operation(), alone, rtol=0, atol=0)


def test_the_number_may_change_between_any_two_jobs(numbers: Numbers) -> None:
    operation = norm(numbers, None)
    library.set_threads(1)
    alone = operation()
    for threads in (5, 1, 3, 8, 2, 2, 7, 1, 4):
        library.set_threads(threads)
        assert library.threads() == threads
        assert torch.equal(operation(), alone)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of a process")
def test_threads_begin_with_the_first_job_and_end_with_the_number(numbers: Numbers) -> None:
    operation = norm(numbers, None)
    library.set_threads(1)
    operation()
    assert pool_threads(0) == []
    library.set_threads(4)
    assert pool_threads(0) == []
    operation()
    assert pool_threads(3) == ["kernels 1", "kernels 2", "kernels 3"]
    library.set_threads(2)
    assert pool_threads(1) == ["kernels 1"]
    operation()
    assert pool_threads(1) == ["kernels 1"]
    library.set_threads(1)
    assert pool_threads(0) == []


def pool_threads(expected: int) -> list[str]:
    """Names of the pool's threads, once there are so many: names come and go a little late."""
    deadline = time.monotonic() + 10.0
    while True:
        names = [name for task in TASKS.iterdir() if (name := task_name(task))[:7] == "kernels"]
        if len(names) == expected or time.monotonic() > deadline:
            return sorted(names)


def task_name(task: Path) -> str:
    try:
        return (task / "comm").read_text(encoding="utf-8").strip()
    except OSError:  # it has ended
        return ""


@pytest.mark.parametrize("told", [False, True], ids=["by themselves", "when told"])
def test_threads_without_a_job_take_no_time(told: bool, numbers: Numbers) -> None:
    operation = norm(numbers, None)
    library.set_threads(4)
    operation()
    if told:
        library.native().nk_idle()
    before = time.process_time()
    threading.Event().wait(IDLE)
    assert time.process_time() - before < IDLE / 5  # three that spin take all of two processors
    assert torch.equal(operation(), operation())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_makes_threads_of_its_own(numbers: Numbers) -> None:
    operation = norm(numbers, None)
    library.set_threads(3)
    expected = operation().numpy().tobytes()
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
            child = os.fork()
        if child == 0:  # whatever happens, the test must not go on twice
            signal.alarm(30)  # seconds; a job without threads would be waited for without end
            same = False
            try:
                same = library.threads() == 3 and operation().numpy().tobytes() == expected
                if sys.platform == "linux":
                    same &= pool_threads(2) == ["kernels 1", "kernels 2"]
            finally:
                os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert operation().numpy().tobytes() == expected


@pytest.mark.parametrize("threads", [0, -1, MOST + 1, 10**6, -(10**6)])
def test_numbers_of_threads_that_cannot_be_are_refused(threads: int) -> None:
    library.set_threads(2)
    with pytest.raises(RuntimeError, match=r"nk_set_threads: .*--threads"):
        library.set_threads(threads)
    assert library.threads() == 2


def test_as_many_threads_as_can_be_are_taken_and_ended(numbers: Numbers) -> None:
    operation = norm(numbers, None)
    library.set_threads(1)
    alone = operation()
    library.set_threads(MOST)
    assert torch.equal(operation(), alone)
    assert library.threads() <= MOST  # the system may refuse some
    library.set_threads(1)
    assert torch.equal(operation(), alone)


def test_a_process_ends_with_threads_asleep_or_spinning() -> None:
    program = (
        "import torch, sys\n"
        "from kernels.cpu import ops\n"
        "from kernels.cpu import library\n"
        "library.set_threads(3)\n"
        "x = torch.ones(300, 700)\n"
        "assert ops.rms_norm(x, x[0], 1e-6).shape == x.shape\n"
        "sys.exit(7)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(  # importing torch takes a minute on a busy machine
        [sys.executable, "-c", program], env=environment, timeout=300, check=False
    )
    assert ended.returncode == 7
