"""The record of contacts: what it keeps, across restarts, and what it never holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.net.hub import HubError, search
from app.net.ledger import Contact, Ledger, Purpose
from app.net.offline import Gate
from hostile_hub import Hub
from offline import clean_gate

KEY = ("hub.example", 443, Purpose.DOWNLOAD)


def test_contacts_add_up_and_survive_a_restart(tmp_path: Path) -> None:
    clock = iter(range(100, 200))
    path = tmp_path / "contacts.json"
    ledger = Ledger(lambda: next(clock))
    ledger.open(path)
    ledger.record(KEY, count=1, sent=5)
    ledger.record(KEY, received=10)
    ledger.record(KEY, count=1)
    ledger.record(("10.0.0.2", 8000, Purpose.ANSWERS), count=1)
    ledger.close()
    again = Ledger()
    again.record(("10.0.0.2", 8000, Purpose.ANSWERS), count=1)  # before the file was read
    again.open(path)
    first, second = again.all()
    assert (first.host, first.count, first.first) == ("10.0.0.2", 2, 103)
    assert second == Contact(*KEY, 2, 100, 102, 5, 10)
    again.clear()
    again.close()
    assert json.loads(path.read_text(encoding="utf-8"))["contacts"] == []


@pytest.mark.parametrize(
    "row",
    ["x", {}, {"host": 1}, {"host": "a", "port": "1", "purpose": "search"},
     {"host": "a", "port": 1, "purpose": "other"}, {"host": "a", "port": -1, "purpose": "search"},
     {"host": "a", "port": 1, "purpose": ["search"]},
     {"host": "a", "port": 1, "purpose": "search", "first": float("nan")}],
)  # fmt: skip
def test_a_damaged_row_is_left_out(tmp_path: Path, row: object) -> None:
    path = tmp_path / "contacts.json"
    good = {"host": "b", "port": 1, "purpose": "search"}
    path.write_text(json.dumps({"contacts": [row, good]}), encoding="utf-8")
    ledger = Ledger()
    ledger.open(path)
    assert [each.host for each in ledger.all()] == ["b"]


def test_the_oldest_contacts_are_dropped() -> None:
    clock = iter(range(1000))
    ledger = Ledger(lambda: next(clock))
    for number in range(600):
        ledger.record((f"host{number}", 80, Purpose.DOWNLOAD), count=1)
    kept = ledger.all()
    assert len(kept) == 500
    assert kept[-1].host == "host100"


def test_a_search_leaves_no_words_in_the_file(tmp_path: Path, hub: Hub) -> None:
    with clean_gate() as gate:
        gate.ledger.open(tmp_path / "contacts.json")
        with pytest.raises(HubError):  # it has no answer for this
            search("my secret words", hub.endpoint)
        gate.ledger.close()
        (contact,) = gate.ledger.all()
    assert (contact.host, contact.purpose, contact.count) == ("127.0.0.1", Purpose.SEARCH, 1)
    assert "secret" in hub.requests[-1].path
    assert "secret" not in (tmp_path / "contacts.json").read_text(encoding="utf-8")


def test_bytes_of_a_download_are_counted(hub: Hub, tmp_path: Path) -> None:
    with clean_gate() as gate:
        assert isinstance(gate, Gate)
        from app.downloads.transfer import FileDownload

        FileDownload(hub.url("maker/model1/model1-Q4_0.gguf"), tmp_path / "m.gguf").run()
        (contact,) = gate.ledger.all()
    assert contact.received_bytes == (tmp_path / "m.gguf").stat().st_size
    assert contact.count == 2  # the redirect, and the file
