"""Offers: layout of a hub file, and the recommended one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.library.offers import RUNS, file_of, in_words, layout_of, offers, runs
from app.net.hub import HubFile, kind_of
from app.state.library import Offer
from app.system import durations
from app.ui.widgets import units as words
from engine import BeginningFacts, Fault, FaultKind
from kernels.weights.formats import FORMATS

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
        (durations.time_left(None), ""),
        (durations.time_left(1), "5 s left"),
        (durations.time_left(44), "45 s left"),
        (durations.time_left(91), "2 min left"),
        (durations.time_left(3700), "1 h 2 min left"),
        (durations.time_left(400_000), "more than a day left"),
        (words.parameters(134_515_008), "135M"),
        (words.parameters(8_030_000_000), "8B"),
        (words.parameters(1_720_028_160), "1.7B"),
        (words.parameters(0), ""),
    ],
)
def test_sizes_are_formatted(said: str, wanted: str) -> None:
    assert said == wanted


# --- names are a first guess, contents decide -----------------------------------------------------


def made_of(*names: str, **read: BeginningFacts) -> tuple[Offer, ...]:
    files = [replace(hub_file(name), kind=kind_of(name)) for name in names]
    known = {file.source: read[key] for file in files for key in read if key in file.file}
    return offers(files, 32 * GB, lambda source: None, lambda source: False, read=known)


@pytest.mark.parametrize(
    "layout",
    [
        *("Q2_K_XL", "Q3_K_XL", "Q4_K_XL", "Q5_K_XL", "Q6_K_XL", "Q8_K_XL", "IQ4_NL_XL"),
        *("Q2_K_L", "Q4_K_L", "Q5_K_L", "Q6_K_L", "Q4_K_M_imat", "Q4_K_M_fixed"),
    ],
)
def test_mixes_of_usual_formats_run(layout: str) -> None:
    assert runs(layout_of(f"Model-UD-{layout}.gguf"))
    assert not made_of(f"Model-UD-{layout}.gguf")[0].problem


@pytest.mark.parametrize("layout", ["Q4_0_4_8", "Q4_0_8_8", "Q4_K_R4", "IQ4_KS", "IQ5_K", "Q7_0"])
def test_other_orders_and_unknown_formats_do_not_run_by_their_name(layout: str) -> None:
    assert not runs(layout_of(f"Model-{layout}.gguf"))


@pytest.mark.parametrize(
    "name",
    [
        "imatrix_unsloth.gguf", "Model-imatrix.gguf", "Model.imatrix.gguf", "ggml-vocab-m.gguf",
        "mmproj-F16.gguf", "Model-mmproj-BF16.gguf", "lora-adapter.gguf", "Model-LoRA-F16.gguf",
    ],
)  # fmt: skip
def test_what_is_no_model_is_not_offered(name: str) -> None:
    assert made_of(name)[0].problem


@pytest.mark.parametrize(
    "name",
    [
        "guanaco-7b-qlora.Q4_K_M.gguf", "model-qlora-merged.gguf", "Model-lora-merged-Q8_0.gguf",
        "Vocabulary-Coach-Q4_K_M.gguf", "Explora-7B-Q4_K_M.gguf", "i1-model.i1-Q4_K_M.gguf",
    ],
)  # fmt: skip
def test_models_named_after_what_they_were_made_with_are_offered(name: str) -> None:
    assert not made_of(name)[0].problem


def test_layouts_in_names_of_folders_tell_rows_apart() -> None:
    made = made_of(
        "Q4_K_M/model-00001-of-00002.gguf", "UD-Q4_K_XL/model-00001-of-00002.gguf",
        "BF16/model-00001-of-00002.gguf", "Q8-notes/model.gguf",
    )  # fmt: skip
    assert {each.label for each in made} == {"Q4_K_M", "UD-Q4_K_XL", "BF16", "model"}


def test_files_of_one_layout_are_labelled_by_their_paths() -> None:
    made = made_of("a/m-Q4_K_M.gguf", "b/m-Q4_K_M.gguf", "m-Q8_0.gguf")
    assert [each.label for each in made] == ["a/m-Q4_K_M", "b/m-Q4_K_M", "Q8_0"]


def test_the_beginning_of_a_file_overrules_its_name() -> None:
    model = BeginningFacts(is_model=True)
    known = BeginningFacts(is_model=True, formats_run=True, format="Q4_K")
    matrix = BeginningFacts(
        problem="The file is an importance matrix.", fault=Fault(FaultKind.OTHER_TYPE, "imatrix")
    )
    embeds = BeginningFacts(
        problem="The model only turns texts into vectors.",
        fault=Fault(FaultKind.OTHER_TYPE, "embeddings"),
    )
    found = made_of("encoder-Q8_0.gguf", encoder=embeds)
    assert [each.problem for each in found] == [""]  # documents are searched with it
    family = BeginningFacts(
        problem="The file is a 'wavy' model.", fault=Fault(FaultKind.ARCHITECTURE, "wavy")
    )
    problems = {
        each.source.file: each.problem
        for each in made_of(
            "my-lora.gguf", "data-Q4_K_M.gguf", "other-Q8_0.gguf", "odd-Q9_Z.gguf", "odd-Q9_Y.gguf",
            **{"my-lora": model, "data": matrix, "other": family, "Q9_Z": known, "Q9_Y": model},
        )
    }  # fmt: skip
    assert problems["my-lora.gguf"] == ""
    assert "importance matrix" in problems["data-Q4_K_M.gguf"]
    assert "wavy" in problems["other-Q8_0.gguf"]
    assert problems["odd-Q9_Z.gguf"] == ""
    assert problems["odd-Q9_Y.gguf"] == "Q9_Y is not supported yet."


def test_reading_files_does_not_move_their_rows() -> None:
    names = ["m-Q4_K_M.gguf", "m-Q4_0.gguf", "my-lora.gguf"]
    refused = BeginningFacts(problem="No.", fault=Fault(FaultKind.ARCHITECTURE, "wavy"))
    before, after = made_of(*names), made_of(*names, Q4_K_M=refused)
    assert [each.source for each in before] == [each.source for each in after]
    assert [each.format for each in before if each.recommended] == ["Q4_K_M"]
    assert [each.format for each in after if each.recommended] == ["Q4_0"]


@pytest.mark.parametrize(
    ("quantization", "file"),
    [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("UD-Q4_K_XL", "UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00002.gguf"),
        ("Q4_K_XL", "UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00002.gguf"),
        ("Q4_K", ""),
        ("latest", ""),
    ],
)
def test_the_file_of_a_quantization_is_found(quantization: str, file: str) -> None:
    names = ("m-Q8_0.gguf", "m-Q4_K_M.gguf", "UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00002.gguf")
    assert file_of([hub_file(name) for name in names], quantization) == file
