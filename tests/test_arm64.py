"""The emulated ARM system and the table of results, tested without an emulator."""

from __future__ import annotations

import configparser
import platform
from pathlib import Path

import pytest

import arm64
import dev
import environment
from environment import Trouble
from result_table import Row, row_of, table

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="{tests}"/>
</testsuites>"""


# --- the table


def test_a_row_has_what_pytest_reports(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT.format(tests=20), encoding="utf-8")
    assert row_of("neon", path, 7.5) == Row("neon", 14, 3, 3, 7.5)


def test_a_run_without_a_report_or_a_passed_test_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    assert row_of("neon", path, 1.0).failed == 1
    path.write_text("<testsuites><test", encoding="utf-8")
    assert row_of("neon", path, 1.0).failed == 1
    empty = REPORT.format(tests=3).replace('errors="1" failures="2"', 'errors="0" failures="0"')
    path.write_text(empty, encoding="utf-8")
    assert row_of("neon", path, 1.0) == Row("neon", 0, 3, 1, 1.0)


def test_the_table_ends_with_the_sum() -> None:
    text = table([Row("kernels neon", 10, 1, 0, 61.4), Row("window", 1, 0, 1, 9.0)])
    assert text.splitlines() == [
        "              passed  skipped  failed  seconds",
        "kernels neon      10        1       0       61",
        "window             1        0       1        9",
        "all               11        1       1       70",
    ]


def test_the_table_counts_the_reasons_of_skipped_tests(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    tests = "".join(f'<testcase><skipped message="{reason}"/></testcase>' for reason in "aba")
    path.write_text(REPORT.replace('"/>', f'">{tests}</testsuite>').format(tests=9), "utf-8")
    text = table([row_of("neon", path, 1.0), row_of("scalar", path, 1.0)])
    assert text.splitlines()[-2:] == ["     4 skipped: a", "     2 skipped: b"]


# --- the system


def test_versions_are_those_of_the_program_but_for_torch() -> None:
    ours = environment.pins(environment.REQUIREMENTS)
    there = arm64._pins()
    assert {"PySide6-Essentials", "numpy", "torch", "pytest"} <= there.keys()
    same = {name.lower() for name in ours} & {name.lower() for name in there}
    lower = {name.lower(): version for name, version in ours.items()}
    differ = {name for name in there if name.lower() in same and there[name] != lower[name.lower()]}
    assert differ == {"torch"}


def test_pytest_is_set_as_in_the_project_without_qt(tmp_path: Path) -> None:
    arm64._write_settings(tmp_path / "pytest.ini")
    made = configparser.ConfigParser(interpolation=None)
    made.read(tmp_path / "pytest.ini")
    settings = dict(made["pytest"])
    assert "--strict-markers" in settings["addopts"]
    assert settings["filterwarnings"].split()[0] == "error"
    assert "/src/tests/support" in settings["pythonpath"].split()
    assert not [name for name in settings if name.startswith("qt_")]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the programs that are found: those that are needed, which do nothing."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in arm64._PROGRAMS:
        (folder / name).write_text("#!/bin/sh\nexit 90\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(arm64, "_KEYRING", folder)
    return folder


def test_what_is_missing_is_named_with_its_package(programs: Path) -> None:
    (programs / "qemu-aarch64-static").unlink()
    with pytest.raises(Trouble, match=r"qemu-aarch64-static is missing: `sudo apt install qemu-us"):
        arm64.run(every=False, passed=())
    (programs / "apt-get").unlink()
    with pytest.raises(Trouble, match=r"apt-get are missing: `sudo apt install qemu-user-static a"):
        arm64.run(every=False, passed=())


def test_debians_keys_are_needed(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm64, "_KEYRING", programs / "none.gpg")
    with pytest.raises(Trouble, match="debian-archive-keyring"):
        arm64.run(every=False, passed=())


def test_an_arm_machine_runs_the_tests_itself(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(Trouble, match="without --on"):
        arm64.run(every=False, passed=())


def test_a_kernel_that_starts_no_arm_programs_is_a_sentence(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm64, "_PATH", str(programs))
    with pytest.raises(Trouble, match=r"needs Linux 6\.7 or newer"):
        arm64._emulate(tmp_path, tmp_path, "true")


def test_only_known_systems_are_tested(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dev.main(["test", "--on", "haiku"])
    assert "arm64" in capsys.readouterr().err
