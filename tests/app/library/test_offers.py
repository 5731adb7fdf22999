"""Offers: layout of a hub file, and the recommended one."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.library.offers import RUNS, in_words, layout_of, offers
from app.net.hub import HubFile
from app.ui.widgets import units as words
from kernels.formats import FORMATS

GB = 1_000_000_000


def hub_file(name: str, size: int = GB, kind: str = "model") -> HubFile:
    return HubFile("owner/name", "main", name, size, "", kind)


@pytest.mark.parametrize(
    ("file", "layout", "said"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M", "4-bit"),
        ("sub/folder/model.q8_0.gguf", "Q8_0", "8-bit"),
        ("model-IQ2_XS.gguf", "IQ2_XS", "2-bit"),
        ("model-BF16.gguf", "BF16", "16-bit"),
        ("Bonsai-8B-Q1_0.gguf", "Q1_0", "1-bit"),
        ("falcon-TQ1_0.gguf", "TQ1_0", "Ternary"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4", "4-bit"),
        ("Ternary-Bonsai-8B-Q2_0_g64.gguf", "Q2_0_G64", "2-bit"),
        ("model-f8_e4m3.gguf", "F8_E4M3", "8-bit"),
        ("big-Q6_K-00001-of-00003.gguf", "Q6_K", "6-bit"),
        ("model.gguf", "", ""),
        ("Q8-notes/model.gguf", "", ""),
    ],
)
def test_layout_is_parsed_from_the_file_name(file: str, layout: str, said: str) -> None:
    assert layout_of(file) == layout
    assert in_words(layout) == said


def test_supported_layouts_match_the_kernels() -> None:
    names = {format.name for format in FORMATS.values()}
    mixed = {"IQ3_M": "IQ3_S", "IQ3_XS": "IQ3_S", "IQ2_M": "IQ2_S"}  # layout of most weights
    roots = {
        layout if layout in names else mixed.get(layout, layout.rpartition("_")[0])
        for layout in RUNS
    }
    assert roots == names


def test_first_layout_that_fits_the_memory_is_recommended() -> None:
    files = [
        hub_file("m-Q8_0.gguf", 9 * GB),
        hub_file("m-Q4_K_M.gguf", 5 * GB),
        hub_file("m-Q4_0.gguf", 4 * GB),
        hub_file("m-IQ1_S.gguf", GB),
    ]

    def best(room: int) -> list[str]:
        made = offers(files, room, lambda source: None, lambda source: False)
        return [each.format for each in made if each.recommended]

    assert best(32 * GB) == ["Q4_K_M"]
    assert best(6 * GB) == ["Q4_0"]
    assert best(2 * GB) == []


def test_of_two_layouts_of_one_name_the_supported_one_is_recommended() -> None:
    files = [hub_file("m-Q2_0.gguf"), hub_file("m-Q2_0_g64.gguf"), hub_file("m-F16.gguf", 5 * GB)]
    made = offers(files, 32 * GB, lambda source: None, lambda source: False)
    assert (made[0].format, made[0].recommended) == ("Q2_0_G64", True)
    assert not any(each.problem for each in made)


def test_unusable_files_have_a_problem_and_come_last() -> None:
    files = [
        hub_file("mmproj-F16.gguf", kind="projector"),
        hub_file("m-Q4_0_8_8.gguf"),
        hub_file("lora-adapter.gguf", kind="adapter"),
        hub_file("m-00001-of-00002.gguf", kind="incomplete"),
        hub_file("m-Q8_0.gguf"),
    ]
    made = offers(files, 32 * GB, lambda source: None, lambda source: False)
    assert [bool(each.problem) for each in made] == [False, True, True, True, True]
    assert all(each.problem.endswith(".") for each in made[1:])


def test_installed_and_downloading_files_are_marked() -> None:
    here = Path("/models/m-Q8_0.gguf")
    made = offers(
        [hub_file("m-Q8_0.gguf"), hub_file("m-F16.gguf")],
        GB,
        lambda source: here if source.file == here.name else None,
        lambda source: source.file == "m-F16.gguf",
    )
    assert {each.format: (each.here, each.coming) for each in made} == {
        "Q8_0": (here, False),
        "F16": (None, True),
    }


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (words.size(0), "0 MB"),
        (words.size(300), "1 kB"),
        (words.size(999_499), "999 kB"),
        (words.size(98_362_432), "98 MB"),
        (words.size(999_600_000), "1.0 GB"),
        (words.size(5_027_783_488), "5.0 GB"),
        (words.progress(1_210_000_000, 2_500_000_000), "1.2 of 2.5 GB"),
        (words.progress(90_000_000, 2_500_000_000), "90 MB of 2.5 GB"),
        (words.progress(90_000_000, 0), "90 MB"),
        (words.speed(0), ""),
        (words.speed(3_420_000), "3.4 MB/s"),
        (words.speed(14_200_000), "14 MB/s"),
        (words.speed(90_000), "90 kB/s"),
        (words.time_left(None), ""),
        (words.time_left(1), "5 s left"),
        (words.time_left(44), "45 s left"),
        (words.time_left(91), "2 min left"),
        (words.time_left(3700), "1 h 2 min left"),
        (words.time_left(400_000), "more than a day left"),
        (words.parameters(134_515_008), "135M"),
        (words.parameters(8_030_000_000), "8B"),
        (words.parameters(1_720_028_160), "1.7B"),
        (words.parameters(0), ""),
    ],
)
def test_sizes_are_formatted(said: str, wanted: str) -> None:
    assert said == wanted
