"""Log and crash report, each test in a separate process."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
HEAD = """
import logging, sys, threading
from pathlib import Path
from app.system.log import set_up
seen = []
report = set_up(Path(sys.argv[1]) / "state" / "tokonoma.log", seen.append)
log = logging.getLogger("app.test")
"""


def run(folder, body):
    """Run a script after log setup, in a subprocess; returns exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + body, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def logged(folder):
    return (folder / "state" / "tokonoma.log").read_text(encoding="utf-8")


def test_normal_use_prints_nothing_and_logs_to_the_file(tmp_path):
    assert run(tmp_path, "log.info('model loaded'); log.debug('detail')") == (0, "", "")
    assert "app.test: model loaded" in logged(tmp_path)
    assert "detail" not in logged(tmp_path)


def test_warnings_go_to_stderr_and_file(tmp_path):
    _, printed, warned = run(tmp_path, "log.warning('careful')")
    assert printed == ""
    assert "careful" in warned
    assert "careful" in logged(tmp_path)


def test_uncaught_exception_is_logged_without_its_message(tmp_path):
    body = """
import atexit
atexit.register(lambda: print(type(seen[0]).__name__))
def inner():
    int("my secret")
try:
    inner()
except ValueError as error:
    raise RuntimeError("another secret") from error
"""
    status, printed, warned = run(tmp_path, body)
    assert (status, printed) == (1, "RuntimeError\n")
    text = logged(tmp_path)
    assert "builtins.RuntimeError" in text
    assert "caused by" in text
    assert "builtins.ValueError" in text
    assert "in inner" in text
    assert "secret" not in text + warned


def test_uncaught_exception_of_another_thread_is_reported(tmp_path):
    body = """
def work():
    raise KeyError("my secret")
thread = threading.Thread(target=work); thread.start(); thread.join()
print([type(error).__name__ for error in seen])
"""
    status, printed, _ = run(tmp_path, body)
    assert (status, printed) == (0, "['KeyError']\n")
    assert "builtins.KeyError" in logged(tmp_path)
    assert "secret" not in logged(tmp_path)


def test_cyclic_exception_causes_are_logged_once(tmp_path):
    body = """
error = ValueError(); error.__cause__ = error
log.error("failed", exc_info=error)
"""
    assert run(tmp_path, body)[0] == 0
    assert logged(tmp_path).count("builtins.ValueError") == 1


def test_fatal_signal_writes_a_crash_report(tmp_path):
    status, *_ = run(tmp_path, "import faulthandler; faulthandler._sigsegv()")
    assert status != 0
    _, printed, _ = run(tmp_path, "print(report.name, 'Segmentation' in report.read_text())")
    assert printed == "crash-previous.log True\n"
    _, printed, warned = run(tmp_path, "print(report)")
    assert (printed, warned) == ("None\n", "")


def test_unwritable_log_does_not_prevent_the_start(tmp_path):
    (tmp_path / "state").write_text("not a folder", encoding="utf-8")
    status, printed, warned = run(tmp_path, "print('started')")
    assert (status, printed) == (0, "started\n")
    assert "cannot be written" in warned


def test_log_size_is_limited(tmp_path):
    run(tmp_path, "for _ in range(60): log.info('x' * 100_000)")
    files = sorted(path.name for path in (tmp_path / "state").glob("tokonoma.log*"))
    assert files == ["tokonoma.log", *(f"tokonoma.log.{n}" for n in (1, 2, 3))]
    assert all(
        path.stat().st_size <= 1_000_000 for path in (tmp_path / "state").glob("tokonoma.log*")
    )


def test_start_without_stderr_works(tmp_path):
    body = "\nprint('started')"
    head = HEAD.replace("seen = []", "seen = []; sys.stderr = None")
    done = subprocess.run(
        [sys.executable, "-c", head + body, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "started\n"
    assert "Traceback" not in logged(tmp_path)


def test_a_log_that_another_program_reads_goes_on(tmp_path):
    body = """
import os
from busy_files import BusyFiles, refusal
def refuse(*paths):
    raise refusal()
os.rename = os.remove = refuse
handler = logging.getLogger().handlers[-1]
handler.maxBytes = 200
for number in range(20):
    log.info("line %s", number)
"""
    status, _, warned = run(tmp_path, f"sys.path.append({str(SUPPORT)!r})" + body)
    assert (status, warned) == (0, "")
    assert [f"line {number}" in logged(tmp_path) for number in range(20)] == [True] * 20
