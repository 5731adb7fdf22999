"""Installed models: folder, discovery, split models, names to paths, display names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine import (
    RequestError,
    find_model,
    installed_models,
    model_label,
    model_name,
    model_parts,
    models_folder,
    search_models,
    starter_path,
)

LINKS = pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")


@pytest.fixture
def folder() -> Path:
    models_folder().mkdir(parents=True)
    return models_folder()


def test_the_models_folder_follows_the_home_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "elsewhere"))
    assert models_folder() == tmp_path / "elsewhere" / "data" / "models"


def test_installed_models_are_sorted_with_the_starter_first(folder: Path) -> None:
    assert installed_models() == []
    for name in ("zeta.gguf", "Alpha-Q8_0.gguf", starter_path().name, "notes.txt"):
        (folder / name).touch()
    (folder / "sub").mkdir()
    (folder / "sub" / "beta.gguf").touch()
    names = [path.name for path in installed_models()]
    assert names == [starter_path().name, "Alpha-Q8_0.gguf", "beta.gguf", "zeta.gguf"]


def test_a_split_model_is_listed_once(folder: Path) -> None:
    for part in (1, 2, 3):
        (folder / f"big-{part:05}-of-00003.gguf").touch()
    assert [path.name for path in installed_models()] == ["big-00001-of-00003.gguf"]


def test_several_folders_are_searched_and_missing_ones_skipped(
    folder: Path, tmp_path: Path
) -> None:
    drive, gone = tmp_path / "drive", tmp_path / "unplugged"
    (drive / "deep" / "er").mkdir(parents=True)
    for path in (folder / "own.gguf", drive / "deep" / "er" / "Other.GGUF", drive / "readme.md"):
        path.touch()
    names = [path.name for path in installed_models([gone, drive])]
    assert names == ["Other.GGUF", "own.gguf"]


@LINKS
def test_a_file_reached_through_a_link_is_listed_once(folder: Path, tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    (own := folder / "model.gguf").touch()
    (drive / "link.gguf").symlink_to(own)
    assert installed_models([drive, folder, folder.parent]) == [own]


@LINKS
def test_broken_links_and_link_loops_are_skipped(folder: Path, tmp_path: Path) -> None:
    (folder / "gone.gguf").symlink_to(tmp_path / "nothing.gguf")
    (folder / "round.gguf").symlink_to(folder / "round.gguf")
    (folder / "up").symlink_to(folder.parent)
    (folder / "model.gguf").touch()
    names = {path.name for path in installed_models()}
    assert names == {"gone.gguf", "model.gguf", "round.gguf"}


def test_hidden_files_and_folders_are_never_listed(folder: Path) -> None:
    (folder / ".deleted.gguf").touch()
    (folder / ".trash").mkdir()
    (folder / ".trash" / "model.gguf").touch()
    assert installed_models() == []


def test_missing_parts_of_a_split_model_are_left_out(folder: Path) -> None:
    parts = [folder / f"big-{part:05}-of-00003.gguf" for part in (1, 2, 3)]
    for path in parts:
        path.touch()
    (folder / "big-00001-of-00004.gguf").touch()
    assert model_parts(parts[0]) == parts
    assert model_parts(parts[2]) == parts
    parts[1].unlink()
    assert model_parts(parts[0]) == [parts[0], parts[2]]
    assert model_parts(folder / "one.gguf") == [folder / "one.gguf"]


def test_the_number_of_parts_in_a_name_is_bounded(folder: Path) -> None:
    (path := folder / "big-00001-of-99999.gguf").touch()
    assert model_parts(path) == [path]


def test_a_model_is_found_by_path_name_stem_and_starter(folder: Path, tmp_path: Path) -> None:
    (here := folder / "Some-Model-Q4_0.gguf").touch()
    (there := tmp_path / "other.gguf").touch()
    starter_path().touch()
    assert find_model("some-model-q4_0") == here
    assert find_model("Some-Model-Q4_0.gguf") == here
    assert find_model(str(there)) == there
    assert find_model("starter") == starter_path()


def test_an_unknown_name_lists_the_known_ones(folder: Path) -> None:
    (folder / "known.gguf").touch()
    with pytest.raises(RequestError, match="unheard") as refused:
        find_model("unheard")
    assert "known" in refused.value.remedy
    with pytest.raises(RequestError, match="starter model is not installed"):
        find_model("starter")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2 135M Instruct"),
        ("gemma-3-270m-q4_k_m.gguf", "gemma 3 270m"),
        ("Bonsai-8B-Q1_0.gguf", "Bonsai 8B"),
        ("Qwen3-4B-UD-Q4_K_XL.gguf", "Qwen3 4B"),
        ("Qwen3-4B.i1-Q4_K_M.gguf", "Qwen3 4B"),
        ("Ternary-Bonsai-8B-Q2_0_g64.gguf", "Ternary Bonsai 8B"),
        ("big-IQ4_XS-00001-of-00003.gguf", "big"),
        ("model.gguf", "model"),
        ("模型-F16.gguf", "模型"),
        ("Small-F8_E4M3.gguf", "Small"),
        (".gguf", ".gguf"),
    ],
)
def test_the_display_name_is_the_file_name_without_quantization(file: str, name: str) -> None:
    assert model_name(Path(file)) == name


def test_the_bundled_starter_is_used_until_one_is_installed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = starter_path()
    bundled = tmp_path / "inside" / "models" / installed.name
    bundled.parent.mkdir(parents=True)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "inside"), raising=False)
    assert installed_models() == []
    bundled.touch()
    (folder / "a.gguf").touch()
    assert starter_path() == find_model("starter") == bundled
    assert installed_models() == [bundled, folder / "a.gguf"]
    installed.touch()
    assert starter_path() == installed
    assert installed_models() == [installed, folder / "a.gguf"]


# --- linked folders -------------------------------------------------------------------------------


@LINKS
def test_models_in_linked_folders_are_listed(folder: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "deep").mkdir(parents=True)
    (disk / "a.gguf").touch()
    (disk / "deep" / "b.gguf").touch()
    (folder / "linked").symlink_to(disk)
    (folder / "again").symlink_to(disk)
    assert [path.name for path in installed_models()] == ["a.gguf", "b.gguf"]
    search = search_models().folders[folder]
    assert search.skipped == ()
    assert {path.name for path in search.folders} >= {"models", "deep"}


@LINKS
def test_a_folder_is_searched_by_its_own_name_before_links_to_it(folder: Path) -> None:
    (folder / "z").mkdir()
    (folder / "z" / "m.gguf").touch()
    (folder / "a").symlink_to(folder / "z")
    assert installed_models() == [folder / "z" / "m.gguf"]


@LINKS
def test_loops_and_missing_disks_are_skipped_and_named(folder: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "m.gguf").touch()
    (disk / "back").symlink_to(folder)
    (folder / "disk").symlink_to(disk)
    (folder / "up").symlink_to(folder.parent)
    (folder / "self").symlink_to(folder / "self")
    (folder / "unplugged").symlink_to(tmp_path / "nowhere")
    (folder / "file.txt").symlink_to(disk / "m.gguf")
    search = search_models()
    assert [path.name for path in search.models] == ["m.gguf"]
    skipped = {path.name for path in search.folders[folder].skipped}
    assert skipped == {"up", "self", "unplugged"}  # `back` leads to what was searched already


def test_copies_of_one_model_have_different_labels() -> None:
    files = ("Qwen3-4B-Q4_K_M.gguf", "Qwen3-4B-Q8_0.gguf", "Qwen3-4B-UD-Q4_K_XL.gguf", "m.gguf")
    labels = [model_label(Path(file)) for file in files]
    wanted = ["Qwen3 4B · Q4_K_M", "Qwen3 4B · Q8_0", "Qwen3 4B · UD-Q4_K_XL", "m"]
    assert labels == wanted
