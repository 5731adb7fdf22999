"""Keys: in the keyring, else in a private file; never anywhere else, and never waited for long."""

from __future__ import annotations

import json
import logging
import stat
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.connection import Connection, RemoteModel, ServerKind
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote.connections import HIDDEN, ConnectionStore, shown_headers
from app.engines.remote.errors import RemoteError
from app.engines.remote.keys import Credentials, KeyStore, is_secret
from app.system.secret_store import NoKeyring, system_keyring

KEY = "sk-very-secret-0123456789"
OPEN = Connection("", "Office", "http://gpu:8000/v1")


class Ring:
    """A keyring in memory, which can be locked and can hang."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.locked = False
        self.released = threading.Event()
        self.hangs = False

    def _ask(self) -> None:
        self.asked += 1
        if self.hangs:
            self.released.wait(10)
        if self.locked:
            raise RuntimeError("Keyring is locked")

    def get_password(self, service: str, username: str) -> str | None:
        self._ask()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._ask()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._ask()
        del self.entries[service, username]


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring()
    yield made
    made.released.set()


def no_ring() -> Ring:
    raise NoKeyring("no keyring was found")


def store_in(folder: Path, ring: Ring | None) -> ConnectionStore:
    keys = KeyStore(folder / "keys.json", no_ring if ring is None else lambda: ring, seconds=5.0)
    return ConnectionStore(folder / "connections.json", keys)


def files(folder: Path) -> str:
    """Everything that is in the files of a folder."""
    return "".join(each.read_text(encoding="utf-8") for each in folder.iterdir() if each.is_file())


def test_key_is_in_the_keyring_and_in_no_file(tmp_path: Path, ring: Ring) -> None:
    made = store_in(tmp_path, ring).save(OPEN, f" {KEY} ", [("X-Team", "a"), ("X-Api-Key", KEY)])
    assert made.has_key
    assert made.headers == (("X-Team", "a"),)
    assert shown_headers(made) == (("X-Team", "a"), ("X-Api-Key", HIDDEN))
    assert KEY not in files(tmp_path)
    assert list(ring.entries) == [("Tokonoma", made.id)]
    again = store_in(tmp_path, ring)  # in the next run
    assert again.all() == (made,)
    credentials = again.credentials(made)
    assert credentials == Credentials(KEY, (("X-Api-Key", KEY),))
    again.credentials(made)
    assert ring.asked == 2  # it is kept in memory
    assert KEY not in repr(credentials) + repr(made) + str(credentials)


def test_without_a_keyring_the_key_is_in_a_private_file(tmp_path: Path) -> None:
    made = store_in(tmp_path, None).save(OPEN, KEY, [])
    assert KEY not in (tmp_path / "connections.json").read_text(encoding="utf-8")
    keys = tmp_path / "keys.json"
    if sys.platform != "win32":
        assert stat.S_IMODE(keys.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "connections.json").stat().st_mode) == 0o600
    again = store_in(tmp_path, None)
    assert again.credentials(made).key == KEY


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    made = store_in(tmp_path, None).save(OPEN, KEY, [])
    (tmp_path / "keys.json").chmod(0o644)
    assert store_in(tmp_path, None).credentials(made).key == KEY
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


def test_deleting_a_connection_deletes_its_key(tmp_path: Path, ring: Ring) -> None:
    for used in (ring, None):
        store = store_in(tmp_path, used)
        made = store.save(OPEN, KEY, [])
        other = store.save(replace(OPEN, name="Other"), KEY, [])
        store.delete(made.id)
        store.delete("unknown")
        assert store.all() == (other,)
        store.purge()
        assert made.id not in files(tmp_path)
        with pytest.raises(RemoteError) as error:
            store.get(made.id)
        assert error.value.fault.kind is RemoteFaultKind.NO_CONNECTION
        store.delete(other.id)
        store.purge()
    assert not ring.entries
    assert KEY not in files(tmp_path)


def test_deleted_connection_is_restored_with_its_key(tmp_path: Path, ring: Ring) -> None:
    for used in (ring, None):
        store = store_in(tmp_path, used)
        made = store.save(OPEN, KEY, [("X-Token", "one")])
        store.delete(made.id)
        again = store_in(tmp_path, used)  # also after a crash, until `purge`
        assert again.all() == ()
        again.restore(made.id)
        assert again.all() == (made,)
        assert again.credentials(made) == Credentials(KEY, (("X-Token", "one"),))
        again.purge()
        assert again.all() == (made,)
        again.delete(made.id)
        again.purge()


def test_key_moves_into_the_keyring_once_there_is_one(tmp_path: Path, ring: Ring) -> None:
    made = store_in(tmp_path, None).save(OPEN, KEY, [])
    store = store_in(tmp_path, ring)
    assert store.credentials(made).key == KEY  # still of the file
    store.save(made, "another", [])
    assert KEY not in files(tmp_path)
    assert "another" not in files(tmp_path)
    assert store_in(tmp_path, ring).credentials(made).key == "another"


def test_edits_keep_replace_and_remove_secrets(tmp_path: Path, ring: Ring) -> None:
    store = store_in(tmp_path, ring)
    made = store.save(OPEN, KEY, [("X-Token", "one"), ("X-Secret", "two")])
    made = store.save(made, None, [("x-token", HIDDEN), ("X-Cookie", "three")])
    assert store.credentials(made) == Credentials(KEY, (("x-token", "one"), ("X-Cookie", "three")))
    made = store.save(made, "", [("x-token", HIDDEN)])
    assert not made.has_key
    assert store.credentials(made) == Credentials("", (("x-token", "one"),))
    made = store.save(made, "", [])
    assert not made.has_secrets
    assert not ring.entries


def test_connection_without_secrets_never_asks_the_keyring(tmp_path: Path, ring: Ring) -> None:
    ring.locked = True
    store = store_in(tmp_path, ring)
    made = store.save(OPEN, None, [("X-Team", "a")])
    assert not store.credentials(made)
    store.delete(made.id)
    store.purge()
    assert ring.asked == 0


def test_locked_keyring_is_a_fault_in_one_sentence(tmp_path: Path, ring: Ring) -> None:
    made = store_in(tmp_path, ring).save(OPEN, KEY, [])
    ring.locked = True
    store = store_in(tmp_path, ring)
    with pytest.raises(RemoteError) as error:
        store.credentials(made)
    assert error.value.fault.kind is RemoteFaultKind.KEYRING
    assert error.value.fault.about == "Keyring is locked"
    with pytest.raises(RemoteError):  # the key that is kept is not known
        store.save(replace(made, name="New"), None, [("X-Token", "one")])
    ring.locked = False
    assert store.credentials(made).key == KEY


def test_key_that_a_locked_keyring_does_not_take_is_in_the_file(tmp_path: Path, ring: Ring) -> None:
    ring.locked = True
    made = store_in(tmp_path, ring).save(OPEN, KEY, [])
    assert store_in(tmp_path, ring).credentials(made).key == KEY


def test_keyring_that_hangs_is_not_waited_for(tmp_path: Path, ring: Ring) -> None:
    ring.hangs = True
    keys = KeyStore(tmp_path / "keys.json", lambda: ring, seconds=0.2)
    store = ConnectionStore(tmp_path / "connections.json", keys)
    started = time.monotonic()
    made = store.save(OPEN, KEY, [])
    store.delete(made.id)
    store.purge()
    store.save(OPEN, KEY, [])
    assert time.monotonic() - started < 3
    assert ring.asked == 1  # it is asked once in a run


def test_nothing_secret_is_logged(
    tmp_path: Path, ring: Ring, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for used in (ring, None):
            store = store_in(tmp_path, used)
            made = store.save(OPEN, KEY, [("X-Token", KEY)])
            store.credentials(made)
            store.delete(made.id)
            store.purge()
    assert KEY not in caplog.text


def test_damaged_files_are_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("{", '{"connections": 3}', '{"connections": [3, {}, {"id": "a"}, []]}'):
        (tmp_path / "connections.json").write_text(text, encoding="utf-8")
        assert store_in(tmp_path, None).all() == ()
    known = replace(OPEN, id="a", has_key=True)
    for entry in ('{"a": 3}', '{"a": "{"}', '{"a": "[]"}', '{"a": "{\\"key\\": 3}"}', "[]"):
        (tmp_path / "keys.json").write_text(entry, encoding="utf-8")
        (tmp_path / "keys.json").chmod(0o600)
        ring = Ring()
        assert not KeyStore(tmp_path / "keys.json", lambda ring=ring: ring).load(known)


def test_what_a_newer_version_stored_is_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path, None)
    model = RemoteModel("big", "Big", 8192, images=True, tools=False, chats=True, loaded=None)
    made = store.save(replace(OPEN, kind=ServerKind.VLLM, models=(model,), consent="x"), None, [])
    file = tmp_path / "connections.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["connections"][0] |= {"colour": "red"}
    stored["connections"].append(
        {"id": "b", "address": "http://b/v1", "kind": "new", "models": [3]}
    )
    file.write_text(json.dumps({**stored, "version": 2, "more": 1}), encoding="utf-8")
    again = store_in(tmp_path, None)
    first, second = again.all()
    assert replace(first, unknown=made.unknown) == made
    assert second.kind is ServerKind.OPENAI
    again.update(first.id, name="Renamed")
    after = json.loads(file.read_text(encoding="utf-8"))
    assert after["more"] == 1
    assert after["connections"][0]["colour"] == "red"
    assert after["connections"][0]["name"] == "Renamed"


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Authorization", True), ("X-API-Key", True), ("api-key", True), ("Cookie", True),
        ("CF-Access-Client-Secret", True), ("X-Auth-Token", True), ("HTTP-Referer", False),
        ("X-Title", False), ("OpenAI-Organization", False),
    ],
)  # fmt: skip
def test_which_headers_are_secrets(header: str, secret: bool) -> None:
    assert is_secret(header) is secret


def test_secrets_are_hidden_in_texts_of_servers() -> None:
    credentials = Credentials(KEY, (("X-Token", "abcd1234"),))
    assert credentials.hidden(f"bad {KEY} and abcd1234.") == "bad … and …."


def test_the_package_of_keyrings() -> None:
    """The real package, with the backend that it has where a system has none, and another one."""
    import keyring
    from keyring.backends import chainer, fail

    before = keyring.core._keyring_backend
    try:
        keyring.set_keyring(fail.Keyring())
        with pytest.raises(NoKeyring, match="no keyring"):
            system_keyring()
        other = chainer.ChainerBackend()
        keyring.set_keyring(other)
        assert system_keyring() is other
    finally:
        keyring.core._keyring_backend = before
