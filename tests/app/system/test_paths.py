"""Folders of the app."""

import sys
from pathlib import Path

import platformdirs
import pytest

from app.system import paths
from engine import data_folder, models_folder


def test_home_variable_moves_every_folder_into_one_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "home"))
    home = tmp_path / "home"
    assert [paths.data(), paths.config(), paths.state(), paths.cache()] == [
        home / "data",
        home / "config",
        home / "state",
        home / "cache",
    ]
    assert paths.data() == data_folder()
    assert models_folder().is_relative_to(paths.data())
    assert paths.database().parent == paths.data()
    assert paths.settings_file().parent == paths.config()
    assert paths.log_file().parent == paths.state()


def test_a_folder_beside_a_bundled_program_makes_it_portable(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKONOMA_HOME", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "Tokonoma.exe"))
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    elsewhere = paths.data()
    assert not elsewhere.is_relative_to(tmp_path)
    home = tmp_path / "Data"
    home.mkdir()
    assert [paths.data(), paths.config(), paths.state(), paths.cache()] == [
        home / "data",
        home / "config",
        home / "state",
        home / "cache",
    ]
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "other"))
    assert paths.data() == tmp_path / "other" / "data"
    monkeypatch.delenv("TOKONOMA_HOME")
    monkeypatch.delattr(sys, "frozen")
    assert paths.data() == elsewhere  # beside a Python it means nothing


def test_path_functions_create_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "home"))
    for place in (paths.data, paths.config, paths.state, paths.cache, paths.database):
        place()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("value", [None, ""])
def test_without_home_variable_system_folders_are_used(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("TOKONOMA_HOME", raising=False)
    else:
        monkeypatch.setenv("TOKONOMA_HOME", value)
    system = platformdirs.PlatformDirs("Tokonoma", appauthor=False)
    assert paths.data() == Path(system.user_data_dir)
    assert paths.config() == Path(system.user_config_dir)
    assert paths.state() == Path(system.user_state_dir)
    assert paths.cache() == Path(system.user_cache_dir)


def test_resources_are_next_to_the_package(monkeypatch):
    monkeypatch.delattr(sys, "_MEIPASS", raising=False)
    assert paths.resources() == Path(paths.__file__).parents[2] / "resources"


def test_resources_are_in_a_frozen_bundle(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    assert paths.resources() == tmp_path / "resources"


def test_programs_of_windows_are_named_by_their_whole_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SYSTEMROOT", str(Path("/win").absolute()))
    assert paths.windows_program("System32", "a.exe") == Path("/win/System32/a.exe").absolute()
