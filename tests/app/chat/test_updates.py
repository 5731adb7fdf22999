"""Updates: nothing is asked unasked, packages are verified, and nothing is installed silently."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.updates import NEWS_NOTICE, NOTICE, Here, Updates
from app.domain.release import InstallKind
from app.net.ledger import Purpose
from app.net.offline import gate
from app.settings.table import Settings
from app.state.chat import State
from app.state.updates import GetPhase, UpdateState, UpdateStatus
from app.system.worker import BackgroundWorker
from app.updates.install import Installed
from offline import clean_gate
from signed_release import KEY, SIGNED
from stage import until
from update_server import UpdateServer, update_server

PROGRAM = bytes(range(256)) * 2000
DAY = 24 * 3600.0


class Bench:
    """The controller of updates over a loopback server, with a clock that is set."""

    def __init__(self, folder: Path, server: UpdateServer, version: str = "0.1.0") -> None:
        self.folder, self.server, self.version = folder, server, version
        self.settings = Settings()
        self.time = 1_000_000_000.0
        self.started: list[Path] = []
        self.kind = InstallKind.SETUP
        self.address, self.key = server.url, ""
        self.open()

    def open(self) -> None:
        """Start the app."""
        self.state, self.updates_state = State(), UpdateState()
        self.files = BackgroundWorker("own files")
        self.quits = 0

        here = Here(
            address=self.address,
            key=self.key,
            version=self.version,
            installed=lambda: Installed(self.kind, "x86_64", self.folder / "app" / "tokonoma"),
            downloads=lambda: self.folder / "Downloads",
            start=self.started.append,
            now=lambda: self.time,
        )
        self.updates = Updates(
            self.state, self.updates_state, lambda: self.settings, self.files, here
        )
        self.updates.installing.connect(self._on_installing)
        self.updates.start(self.folder / "updates.json")
        self.settle()

    def _on_installing(self) -> None:
        self.quits += 1

    @property
    def status(self) -> UpdateStatus:
        return self.updates_state.status

    def settle(self) -> None:
        """Wait for the workers."""
        done: list[int] = []
        self.files.run(lambda: 0, done.append)
        until(lambda: bool(done))

    def check(self) -> UpdateStatus:
        self.updates.check()
        until(lambda: not self.status.checking)
        self.settle()
        return self.status

    def weekly(self) -> None:
        """The hourly look whether it is time."""
        self.updates._check_weekly()
        until(lambda: not self.status.checking)
        self.settle()

    def get(self) -> UpdateStatus:
        self.updates.get()
        until(lambda: self.status.phase is not GetPhase.GETTING)
        return self.status

    def close(self) -> None:
        self.updates.close()
        self.files.close()


@pytest.fixture
def server(qapp: object) -> Iterator[UpdateServer]:
    with clean_gate(), update_server() as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path, server: UpdateServer) -> Iterator[Bench]:
    made = Bench(tmp_path, server)
    yield made
    made.close()


def test_nothing_is_asked_before_the_user_does(bench: Bench, server: UpdateServer) -> None:
    server.release()
    bench.weekly()
    bench.time += 100 * DAY
    bench.weekly()
    assert server.requests == []
    assert gate.ledger.all() == ()
    assert not Settings().check_updates


def test_a_build_without_an_address_asks_nobody(tmp_path: Path, server: UpdateServer) -> None:
    server.address, address = "", server.address
    bench = Bench(tmp_path, server)
    server.address = address
    bench.address = ""
    bench.close()
    bench.open()
    assert bench.status.host == ""
    bench.settings = replace(bench.settings, check_updates=True)
    bench.check()
    bench.weekly()
    assert server.requests == []
    bench.close()


def test_a_weekly_check_asks_once_a_week_and_says_it_once(
    bench: Bench, server: UpdateServer
) -> None:
    server.release(setup_exe=PROGRAM)
    bench.settings = replace(bench.settings, check_updates=True)
    bench.weekly()
    assert len(server.requests) == 1
    assert "0.2.0" in bench.state.notices[NOTICE].sentence
    bench.state.set_notice(NOTICE, None)
    bench.time += 6 * DAY
    bench.weekly()
    assert len(server.requests) == 1
    bench.close()
    bench.open()  # a restart neither asks again nor tells again
    bench.weekly()
    assert len(server.requests) == 1
    bench.time += 2 * DAY
    bench.weekly()
    assert len(server.requests) == 2
    assert NOTICE not in bench.state.notices
    assert bench.status.newer is not None
    bench.time -= 50 * DAY  # the clock was set back
    bench.weekly()
    assert len(server.requests) == 3
    ((contact),) = gate.ledger.all()
    assert (contact.purpose, contact.count) == (Purpose.UPDATE, 3)


def test_a_weekly_check_that_fails_is_said_on_the_page_only(
    bench: Bench, server: UpdateServer
) -> None:
    bench.settings = replace(bench.settings, check_updates=True)
    bench.weekly()
    assert len(server.requests) == 1
    assert bench.state.notices == {}
    assert "no description of the newest version (404)" in bench.status.fault
    assert bench.status.checked == 0
    server.release("0.1.0")
    assert bench.check().fault == ""
    assert bench.status.newer is None
    assert bench.status.checked == bench.time


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.1.0-rc.1", "0.2.0-beta.1"])
def test_what_is_not_newer_is_not_offered(bench: Bench, server: UpdateServer, version: str) -> None:
    server.release(version, setup_exe=PROGRAM)
    assert bench.check().newer is None


def test_an_old_description_that_is_replayed_is_not_offered(
    tmp_path: Path, server: UpdateServer
) -> None:
    """Its signature stays valid for ever."""
    server.describe(SIGNED)
    offered: dict[str, bool] = {}
    for version in ("0.1.0", "0.2.0", "0.3.0"):
        bench = Bench(tmp_path / version, server, version)
        bench.close()
        bench.key = KEY
        bench.open()
        status = bench.check()
        assert status.fault == ""
        offered[version] = status.newer is not None
        bench.close()
    assert offered == {"0.1.0": True, "0.2.0": False, "0.3.0": False}


def test_an_unsigned_description_is_a_fault_for_a_build_with_a_key(
    tmp_path: Path, server: UpdateServer
) -> None:
    server.release()
    bench = Bench(tmp_path, server)
    bench.close()
    bench.key = KEY
    bench.open()
    status = bench.check()
    assert status.newer is None
    assert "has no valid signature." in status.fault
    bench.close()


def test_a_pre_release_is_offered_to_who_has_one(tmp_path: Path, server: UpdateServer) -> None:
    bench = Bench(tmp_path, server, "0.2.0-beta.1")
    server.release("0.2.0-beta.2")
    newer = bench.check().newer
    assert str(newer and newer.version) == "0.2.0-beta.2"
    server.release("0.2.0")
    newer = bench.check().newer
    assert str(newer and newer.version) == "0.2.0"
    bench.close()


def test_a_version_that_an_earlier_run_found_is_not_forgotten(
    bench: Bench, server: UpdateServer
) -> None:
    server.release(setup_exe=PROGRAM)
    assert bench.check().known == ""
    bench.close()
    bench.open()
    assert (bench.status.known, bench.status.newer) == ("0.2.0", None)
    bench.close()
    bench.version = "0.2.0"  # it was installed
    bench.open()
    assert bench.status.known == ""


def test_a_package_is_got_verified_and_started_only_on_a_click(
    bench: Bench, server: UpdateServer
) -> None:
    server.release(setup_exe=PROGRAM)
    status = bench.check()
    assert not (bench.folder / "Downloads").exists()
    assert status.package is not None
    assert status.phase is GetPhase.NONE
    status = bench.get()
    assert (status.phase, status.get_fault) == (GetPhase.READY, "")
    assert status.file is not None
    assert status.file.read_bytes() == PROGRAM
    assert bench.started == []
    bench.updates.install()
    until(lambda: bench.quits == 1)
    assert bench.started == [status.file]
    assert {each.purpose for each in gate.ledger.all()} == {Purpose.UPDATE}
    asked = len(server.requests)
    bench.close()
    bench.open()
    bench.check()
    assert bench.get().phase is GetPhase.READY  # it is there already: only the check asked
    assert len(server.requests) == asked + 1


def test_a_package_that_was_replaced_on_the_server_is_refused(
    bench: Bench, server: UpdateServer
) -> None:
    server.release(setup_exe=PROGRAM)
    bench.check()
    server.send("/tokonoma-0.2.0-x86_64.exe", PROGRAM[:-1] + b"!")
    status = bench.get()
    assert status.phase is GetPhase.FAILED
    assert "SHA-256" in status.get_fault
    assert list((bench.folder / "Downloads").iterdir()) == []
    server.send("/tokonoma-0.2.0-x86_64.exe", PROGRAM)
    assert bench.get().phase is GetPhase.READY


def test_a_release_that_was_corrected_is_taken_over(bench: Bench, server: UpdateServer) -> None:
    content = server.release(setup_exe=PROGRAM)
    for row in content["packages"]:
        row["sha256"] = "0" * 64  # a mistake of the release
    server.describe(content)
    bench.check()
    assert bench.get().phase is GetPhase.FAILED
    server.release(setup_exe=PROGRAM)
    assert bench.check().phase is GetPhase.NONE
    assert bench.get().phase is GetPhase.READY


def test_a_check_does_not_wait_for_a_package(bench: Bench, server: UpdateServer) -> None:
    server.release(setup_exe=PROGRAM)
    server.answers["/tokonoma-0.2.0-x86_64.exe"] = lambda request: server.released.wait(20)
    bench.check()
    bench.updates.get()
    assert bench.check().phase is GetPhase.GETTING
    server.released.set()


def test_a_package_that_was_changed_on_the_disk_is_not_started(
    bench: Bench, server: UpdateServer
) -> None:
    server.release(setup_exe=PROGRAM)
    bench.check()
    file = bench.get().file
    assert file is not None
    file.write_bytes(b"something else")
    bench.updates.install()
    until(lambda: bench.status.phase is GetPhase.FAILED)
    assert "was changed" in bench.status.get_fault
    assert bench.started == []
    assert bench.get().phase is GetPhase.READY
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(PROGRAM).digest()


def test_a_package_is_gone_on_with_after_it_was_stopped(bench: Bench, server: UpdateServer) -> None:
    server.release(setup_exe=PROGRAM)
    path = "/tokonoma-0.2.0-x86_64.exe"
    whole = server.answers[path]

    def half(request: object) -> None:
        request.send_response(200)  # type: ignore[attr-defined]
        request.send_header("Content-Length", str(len(PROGRAM)))  # type: ignore[attr-defined]
        request.end_headers()  # type: ignore[attr-defined]
        request.wfile.write(PROGRAM[:200_000])  # type: ignore[attr-defined]
        request.wfile.flush()  # type: ignore[attr-defined]
        server.released.wait(20)

    server.answers[path] = half
    bench.check()
    bench.updates.get()
    part = bench.folder / "Downloads" / "tokonoma-0.2.0-x86_64.exe.part"
    until(lambda: part.exists() and part.stat().st_size == 200_000)
    bench.updates.stop_getting()
    assert bench.status.phase is GetPhase.NONE
    server.answers[path] = whole
    server.released.set()
    until(lambda: bench.get().phase is GetPhase.READY)
    assert server.requests[-1][1].get("Range") == "bytes=200000-"


def test_a_system_that_is_too_old_is_told_so(bench: Bench, server: UpdateServer) -> None:
    content = server.release(setup_exe=PROGRAM)
    for row in content["packages"]:
        row["minimum"] = "99.0"
    server.describe(content)
    installed = Installed(InstallKind.SETUP, "x86_64", bench.folder / "tokonoma", "10.0.19045")
    bench.updates._here = replace(bench.updates._here, installed=lambda: installed)
    status = bench.check()
    assert (status.package, status.too_old) == (None, "99.0")
    bench.updates.get()
    assert bench.status.phase is GetPhase.NONE


def test_offline_nothing_is_asked_and_a_click_says_why(bench: Bench, server: UpdateServer) -> None:
    server.release()
    bench.settings = replace(bench.settings, check_updates=True, offline=True)
    gate.set_offline(True)
    bench.weekly()
    assert gate.ledger.all() == ()
    assert "offline" in bench.check().fault
    assert server.requests == []


def test_the_notes_are_offered_once_after_an_update(bench: Bench) -> None:
    assert NEWS_NOTICE not in bench.state.notices  # the first start
    bench.close()
    bench.version = "0.2.0"
    bench.open()
    notice = bench.state.notices[NEWS_NOTICE]
    assert "0.2.0" in notice.sentence
    assert notice.action == "What is new"
    bench.close()
    bench.open()
    assert NEWS_NOTICE not in bench.state.notices


def test_the_former_version_is_offered_for_deletion_once_this_one_has_answered(
    tmp_path: Path, server: UpdateServer
) -> None:
    folders = [tmp_path / "app", tmp_path / "old"]
    for folder in folders:
        (folder / "_internal").mkdir(parents=True)
        (folder / "tokonoma").touch()
    bench = Bench(tmp_path, server)
    bench.kind = InstallKind.ARCHIVE
    bench.close()
    bench.folder = tmp_path / "x"
    (tmp_path / "x").mkdir()
    (tmp_path / "old").rename(tmp_path / "x" / "app")
    bench.folder.joinpath("updates.json").write_bytes((tmp_path / "updates.json").read_bytes())
    bench.version = "0.2.0"
    bench.open()
    assert bench.status.leftovers == ()
    bench.updates.on_answered(0)  # an answer without text is none
    bench.settle()
    assert bench.status.leftovers == ()
    bench.updates.on_answered(5)
    until(lambda: bool(bench.status.leftovers))
    (left,) = bench.status.leftovers
    assert (left.version, left.folder) == ("0.1.0", tmp_path / "app")
    bench.updates.remove_leftover(tmp_path / "x")  # no leftover
    bench.updates.remove_leftover(left.folder)
    until(lambda: not bench.status.leftovers)
    assert not left.folder.exists()
    assert (tmp_path / "x" / "app" / "tokonoma").exists()
    bench.close()
