"""Tests of `app.system.translation`: catalogs, plural forms and values."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from app.system import paths, translation
from app.system.translation import tr, trn


def _write_catalog(path: Path, texts: dict[str, str]) -> None:
    """Write a gettext .mo file (little endian, no hash table)."""
    keys = sorted(texts)
    stored = [(key.encode(), texts[key].encode()) for key in keys]
    offset = 28 + 16 * len(stored)
    table, data = [b"", b""], b""
    for column in (0, 1):
        for pair in stored:
            table[column] += struct.pack("<II", len(pair[column]), offset + len(data))
            data += pair[column] + b"\0"
    count = len(stored)
    header = struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, offset)
    path.parent.mkdir(parents=True)
    path.write_bytes(header + table[0] + table[1] + data)


@pytest.fixture
def german(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _write_catalog(
        tmp_path / "locale" / "de" / "LC_MESSAGES" / f"{translation.DOMAIN}.mo",
        {
            "": "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n!=1;\n",
            "Delete {name}": "{name} löschen",
            "{count} model\0{count} models": "{count} Modell\0{count} Modelle",
        },
    )
    monkeypatch.setattr(paths, "resources", lambda: tmp_path)
    monkeypatch.setenv("LANGUAGE", "de")
    translation._catalog.cache_clear()
    yield
    translation._catalog.cache_clear()


def test_without_a_catalog_the_english_text_is_returned() -> None:
    assert tr("Delete {name}", name="a {b}") == "Delete a {b}"
    assert tr("100 {percent}") == "100 {percent}"
    assert trn("{count} model", "{count} models", 1) == "1 model"
    assert trn("{count} model", "{count} models", 1200) == "1,200 models"


def test_a_catalog_of_the_language_replaces_the_text(german: None) -> None:
    assert tr("Delete {name}", name="x") == "x löschen"
    assert tr("Not in the catalog") == "Not in the catalog"
    assert trn("{count} model", "{count} models", 1) == "1 Modell"
    assert trn("{count} model", "{count} models", 2) == "2 Modelle"
