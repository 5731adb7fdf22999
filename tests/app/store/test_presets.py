"""Presets in the store: kept, replaced, deleted, salvaged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.domain import ids
from app.domain.chat import Preset
from app.domain.chat_settings import ChatSettings
from app.domain.snippet import Snippet
from app.store.store import Store

ONE = Preset(3, "One", ChatSettings(instructions="1"), frozenset(["instructions"]), "", "Hi")
TWO = Preset(1 << 40, "Two", ChatSettings(stop=("x",)), frozenset(["stop"]), "D", "A", ("B", "C"))


def test_presets_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    with closing(Store.open(path)) as store:
        assert store.presets() == []
        store.set_preset(TWO)
        store.set_preset(ONE)
    with closing(Store.open(path)) as store:
        assert store.presets() == [TWO, ONE]
        changed = Preset(3, "Uno \ud800", ONE.settings, ONE.parts)
        store.set_preset(changed)
        assert [preset.name for preset in store.presets()] == ["Two", "Uno \ufffd"]
        store.delete_preset(TWO.id)
        store.delete_preset(99)
        assert [preset.id for preset in store.presets()] == [3]


def test_presets_survive_damage(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    with closing(Store.open(path)) as store:
        store.set_preset(ONE)
        store.set_preset(TWO)
    Store.salvage(path, tmp_path / "other.sqlite")
    with closing(Store.open(tmp_path / "other.sqlite")) as store:
        assert sorted(store.presets(), key=lambda each: each.id) == [ONE, TWO]


def test_new_ones_replace_none_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, late = tmp_path / "conversations.sqlite", 1 << 51
    with closing(Store.open(path)) as store:
        store.set_preset(Preset(late, "One"))
        store.write_snippet(Snippet(late + 1, "Two", "Text", 1.0))
    seen = ids.Ids(lambda: 0)
    monkeypatch.setattr("app.store.store.id_seen", seen.seen)
    Store.open(path).close()
    assert seen.new() > late + 1
