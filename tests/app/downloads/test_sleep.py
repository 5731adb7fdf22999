"""A computer that sleeps in the middle of a download: it goes on by itself, or says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.downloads.partial import part_path
from app.downloads.policy import Phase
from downloading import HALF, MODEL, SIZE, ProgressRecorder, expect_error, fetch, is_complete
from hostile_hub import Fault, Hub

ROOT = Path(__file__).parents[3]
HOUR = 3600.0
PAGE = Fault(status=200, headers={"Content-Type": "text/html"}, body=b"<html>Sign in</html>")
TEXT = Fault(status=200, headers={"Content-Type": "text/plain"}, body=b"No route to that host.")
SCRIPT = """
import sys
from pathlib import Path
from app.downloads.policy import Limits
from app.downloads.transfer import FileDownload
limits = Limits(stall_seconds=1.0, retry_seconds=0.01, margin_bytes=0)
FileDownload(sys.argv[1], Path(sys.argv[2]), limits=limits).run()
"""


@pytest.fixture
def sleep(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the computer sleep for an hour when half of the file was sent."""
    clocks = {name: getattr(time, name) for name in ("time", "monotonic")}

    def prepare(*counted: str) -> None:
        """`counted`: the clocks that go on while it sleeps."""
        for name in counted:

            def now(clock: Callable[[], float] = clocks[name]) -> float:
                return clock() + (HOUR if hub.sent_bytes >= HALF else 0.0)

            monkeypatch.setattr(time, name, now)

    return prepare


@pytest.mark.parametrize("counted", [("time",), ("time", "monotonic")], ids=["Linux", "Windows"])
@pytest.mark.parametrize(
    "fault", [Fault(reset_after=HALF), Fault(stall_after=HALF), Fault(close_after=HALF)],
    ids=["reset", "silent", "closed"],
)  # fmt: skip
def test_a_download_goes_on_where_the_sleep_ended_its_connection(
    hub: Hub, place: Path, sleep: Callable[..., None], fault: Fault, counted: tuple[str, ...]
) -> None:
    sleep(*counted)
    hub.faults.append(fault)
    job = fetch(hub, place)
    hub.released.set()
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE, "nothing is received twice"
    # What a reset connection had not delivered is lost with it.
    at = int(hub.store_requests()[1].headers["Range"][6:-1])
    assert 0 < at <= HALF


@pytest.mark.skipif(os.name != "posix", reason="SIGSTOP")
@pytest.mark.parametrize("end", ["reset_after", "stall_after"])
def test_a_stopped_process_goes_on_once_it_is_continued(hub: Hub, place: Path, end: str) -> None:
    hub.faults.append(Fault(**{end: HALF}))
    hub.gate = lambda sent: time.sleep(0.01)
    command = [sys.executable, "-c", SCRIPT, hub.url(MODEL), place]
    with subprocess.Popen(command, cwd=ROOT) as child:
        while hub.sent_bytes < HALF // 2:
            time.sleep(0.005)
            assert child.poll() is None
        child.send_signal(signal.SIGSTOP)
        while hub.sent_bytes < HALF:
            time.sleep(0.005)
        time.sleep(1.2)  # longer than a connection may be silent
        child.send_signal(signal.SIGCONT)
        assert child.wait(60) == 0
    hub.released.set()
    assert is_complete(hub, place)


def test_a_network_that_is_back_later_is_waited_for(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(close_after=HALF))
    hub.hub_faults.append(Fault(status=302, headers={"Location": f"/cdn/{MODEL}"}))
    hub.hub_faults.extend(Fault(status=503) for _ in range(3))
    seen = ProgressRecorder()
    job = fetch(hub, place, report=seen)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE
    assert seen.phases.count(Phase.WAITING) == 4


@pytest.mark.parametrize("answer", [PAGE, TEXT], ids=["page", "text"])
def test_the_page_of_a_network_costs_nothing_of_what_was_received(
    hub: Hub, place: Path, answer: Fault
) -> None:
    hub.faults.extend([Fault(close_after=HALF), answer])
    job = fetch(hub, place)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE
    assert hub.store_requests()[2].headers["Range"] == f"bytes={HALF}-"


def test_a_network_that_only_sends_its_page_is_named_and_the_part_stays(
    hub: Hub, place: Path
) -> None:
    hub.faults.extend([Fault(close_after=HALF), *[PAGE] * 4])
    error = expect_error(hub, place)
    assert "sent a web page" in str(error)
    assert part_path(place).stat().st_size == HALF
