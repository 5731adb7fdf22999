"""The app is killed while it extracts a document: its child ends too, and nothing is lost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.system.paths import database
from hostile_pdf import hostile_pdfs

pytestmark = [pytest.mark.sweep, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
ROOT = Path(__file__).parents[3]
START_SECONDS = 60.0
END_SECONDS = 1.0


def children(process: int) -> list[int]:
    threads = Path(f"/proc/{process}/task").iterdir()
    return [
        int(each)
        for one in threads
        for each in (one / "children").read_text(encoding="utf-8").split()
    ]


def state_of(process: int) -> str:
    """A letter; Z: it has ended, "": it is gone."""
    try:
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        )
    except OSError:
        return ""


def test_nothing_is_left_of_an_extraction_when_the_app_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "long.pdf"
    document.write_bytes(hostile_pdfs("http://127.0.0.1:9", "file:///none")["letters.pdf"]())
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-m", "app", str(document)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as app:
        limit = time.monotonic() + START_SECONDS
        while not (found := children(app.pid)):
            assert time.monotonic() < limit
            assert app.poll() is None
            time.sleep(0.02)
        time.sleep(0.5)
        assert [state_of(each) in ("R", "D") for each in found] == [True]  # it extracts
        app.kill()
    limit = time.monotonic() + END_SECONDS
    while state_of(found[0]) not in ("Z", ""):
        assert time.monotonic() < limit
        time.sleep(0.01)
    with sqlite3.connect(database()) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()
    assert [path for path in tmp_path.iterdir() if path.name != "home"] == [document]
    assert not [path for path in (tmp_path / "home").rglob("*") if ".part" in path.name]
