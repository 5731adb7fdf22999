"""Secrets in a file, where the system has no keyring: of the user alone, and none is lost."""

from __future__ import annotations

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.system import json_file
from app.system.secret_store import SecretStore
from tool_servers import no_keyring


def test_secrets_that_are_kept_at_once_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    replaced = json_file.replace
    begin = threading.Barrier(4)

    def slow(path: Path, values: dict[str, Any]) -> None:
        time.sleep(0.01)
        replaced(path, values)

    def save(number: int) -> None:
        begin.wait()
        store.save(f"id {number}", f"secret {number}")

    monkeypatch.setattr(json_file, "replace", slow)
    store = SecretStore(file, no_keyring)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(4)))
    assert [store.load(f"id {number}") for number in range(4)] == [
        f"secret {number}" for number in range(4)
    ]
    assert os.name == "nt" or stat.S_IMODE(file.stat().st_mode) == 0o600
    for number in range(4):
        store.delete(f"id {number}")
    assert json_file.read(file) == {}
