"""Read-only data folder: conversations are shown from a temporary copy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import pytest

from app.domain.message import MessageState
from app.store.schema import MIGRATIONS, database_address
from app.store.store import Store, StoreError
from engine import Role
from fakes import MODEL
from stage import Stage, until

NOBODY = 65534  # a user without rights
pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems keep rights elsewhere")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder and its files read-only; root switches to another user."""
    parts = [folder, *folder.iterdir()]
    modes = [part.stat().st_mode for part in parts]
    for part in parts:
        part.chmod(0o555 if part.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for part, mode in zip(parts, modes, strict=True):
            part.chmod(mode)


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder that other users can access, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        folder.mkdir()
        Path(name).chmod(0o755)
        yield folder


@pytest.fixture
def path(data: Path) -> Path:
    """A store with one conversation, closed."""
    path = data / "conversations.sqlite"
    store = Store.open(path)
    made = store.create_conversation("From last time")
    own = store.add_message(made.id, None, Role.USER, "Why is the sky blue?")
    answer = store.add_message(made.id, own.id, Role.ASSISTANT, "", MessageState.STREAMING)
    store.append_text(answer.id, "Because of ")
    store.close()
    return path


def shown(store: Store) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (c.title, [(m.text, m.state.value) for m in store.branch(c.id)])
        for c in store.conversations()
    ]


WHOLE = [("From last time", [("Why is the sky blue?", "complete"), ("Because of ", "interrupted")])]


def test_read_only_store_can_be_read(path: Path) -> None:
    with read_only(path.parent):
        before = {part.name: part.read_bytes() for part in path.parent.iterdir()}
        with pytest.raises(StoreError, match="cannot be written"):
            Store.open(path)
        with closing(Store.open_copy(path)) as store:
            assert shown(store) == WHOLE
            assert [c.title for c in store.conversations("sky")] == ["From last time"]
        assert {part.name: part.read_bytes() for part in path.parent.iterdir()} == before


@pytest.mark.parametrize("ends", [("-wal", "-shm"), ("-wal",)])
def test_rows_only_in_the_write_ahead_log_are_read(
    path: Path, tmp_path: Path, ends: tuple[str, ...]
) -> None:
    store = Store.open(path)
    store.rename(store.conversations()[0].id, "Renamed before the crash")
    for end in ends:
        shutil.copy(f"{path}{end}", tmp_path / f"kept{end}")
    shutil.copy(path, tmp_path / "kept")
    store.close()
    shutil.copy(tmp_path / "kept", path)
    for end in ends:
        shutil.copy(tmp_path / f"kept{end}", f"{path}{end}")
    with read_only(path.parent), closing(Store.open_copy(path)) as copy:
        assert [c.title for c in copy.conversations()] == ["Renamed before the crash"]


def test_older_read_only_store_is_migrated_in_the_copy(data: Path) -> None:
    path = data / "old.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(MIGRATIONS[0])
        database.execute(
            "INSERT INTO conversation(title, folded, created, updated) VALUES ('Old', 'old', 1, 1)"
        )
        database.execute(f"PRAGMA application_id = {0x546F6B6F}")
        database.execute("PRAGMA user_version = 1")
    with read_only(data), closing(Store.open_copy(path)) as store:
        assert [c.title for c in store.conversations()] == ["Old"]


def test_window_shows_a_read_only_store(
    qtbot: object,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = path.parent.with_name("home")
    home.mkdir()
    home.chmod(0o777)
    monkeypatch.setenv("TOKONOMA_HOME", str(home))
    stage = Stage(path.parent)
    try:
        with read_only(path.parent):
            stage.ready(MODEL)
            until(lambda: bool(stage.state.conversations))
            assert [c.title for c in stage.state.conversations] == ["From last time"]
            notice = stage.state.notices["store"]
            assert notice.sentence.startswith("Nothing can be saved")
            stage.controller.open_conversation(stage.state.conversations[0].id)
            until(lambda: bool(stage.state.messages))
            assert stage.state.messages[-1].text == "Because of "
            assert stage.controller.send("And at night?")
            stage.engine.write("Black.")
            stage.engine.finish()
            stage.wait_until_idle()
            assert stage.state.messages[-1].text == "Black."
        until(lambda: "store" not in stage.state.notices)
        stage.wait_until_idle()
    finally:
        stage.close()
    store = Store.open(path)
    assert [m.text for m in store.branch(store.conversations()[0].id)][-2:] == [
        "And at night?",
        "Black.",
    ]
    store.close()


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (PurePosixPath("/home/me/a ?#%.sqlite"), "file:///home/me/a%20%3F%23%25.sqlite"),
        (PureWindowsPath(r"C:\Users\Żółć\c.sqlite"), None),
        (PureWindowsPath(r"\\nas\share\c.sqlite"), "file:////nas/share/c.sqlite"),
    ],
)
def test_sqlite_gets_an_address_without_a_server(path: PurePath, address: str | None) -> None:
    wanted = address or "file:///C:/Users/%C5%BB%C3%B3%C5%82%C4%87/c.sqlite"
    assert database_address(path) == wanted
