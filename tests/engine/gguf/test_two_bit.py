"""2-bit layout detection: three layouts of type number 42, and refusal without evidence."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.gguf.two_bit import OVERRIDE
from engine.loading.loader import load
from gguf_bytes import STRING, U32, entry, model, refusal, tensor, text
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

NUMBER, ROWS, COLUMNS = 42, 9, 512
VERSION = "general.quantization_version"
OXIBONSAI = entry("oxibonsai.quant_format", STRING, text("TQ2_0_G128"))
LAYOUTS = {"g64": "Q2_0", "g128": "PQ2_0", "g128-last": "TQ2_0_G128"}

each_layout = pytest.mark.parametrize(("layout", "format"), LAYOUTS.items())
groups_of_128 = pytest.mark.parametrize(("layout", "format"), list(LAYOUTS.items())[1:])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


@pytest.fixture(autouse=True)
def no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)


def ternary(layout: str, seed: int) -> bytes:
    """Bytes of a random ternary matrix [ROWS, COLUMNS] in one of the layouts."""
    random = np.random.default_rng(seed)
    block = 64 if layout == "g64" else 128
    count = ROWS * COLUMNS // block
    codes = random.integers(0, 3, (count, block // 4, 4), dtype=np.uint8)
    bytes_ = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2, dtype=np.uint8)
    scales = random.uniform(0.01, 0.1, (count, 1)).astype("<f2").view(np.uint8)
    parts = [bytes_, scales] if layout == "g128-last" else [scales, bytes_]
    return np.hstack(parts).tobytes()


def on_32(size: int) -> int:
    return -(-size // 32) * 32


def holding(data: bytes, *entries: bytes, behind: bool = True, cut: int = 0) -> bytes:
    """A model with one matrix of type 42, followed by a vector."""
    size = on_32(len(data))
    tensors = [tensor("first", 8), tensor("matrix", COLUMNS, ROWS, type=NUMBER, offset=32)]
    whole = bytes(32) + data
    if behind:
        tensors.append(tensor("last", 8, offset=32 + size))
        whole = whole.ljust(32 + size, b"\0") + bytes(32)
    return model(*entries, tensors=tuple(tensors), data=whole[: len(whole) - cut])


@each_layout
@pytest.mark.parametrize("behind", [True, False])
def test_every_layout_is_detected_and_decoded(
    layout: str, format: str, behind: bool, path: Path, seed: int
) -> None:
    data = ternary(layout, seed)
    path.write_bytes(holding(data, behind=behind))
    with GGUFFile.open(path) as file:
        info = file.tensors["matrix"]
        assert info.format is by_name(format)
        assert file.two_bit
        assert file.two_bit.layout.name == layout
        evidence = "offsets" if layout == "g64" else "offsets and scales"
        assert file.two_bit.by == f"the {evidence} of its tensors"
        dense = Weight.from_bytes(file.data("matrix"), info.format, info.shape).dense()
    scales = dense.view(-1, info.format.block).abs().amax(1, keepdim=True)
    assert torch.equal(
        dense.view(-1, info.format.block).div(scales).abs().unique(), torch.tensor([0.0, 1.0])
    )


@pytest.mark.parametrize(
    "mark",
    [
        OXIBONSAI,
        entry("oxibonsai.quant_format", U32, struct.pack("<I", 1)),
        entry(VERSION, STRING, text("TQ2_0_G128")),
    ],
)
def test_an_oxibonsai_key_selects_its_layout(mark: bytes, path: Path) -> None:
    # The blocks are all zero, so they fit the other layout too.
    path.write_bytes(holding(bytes(ROWS * COLUMNS // 128 * 34), mark))
    with GGUFFile.open(path) as file:
        assert file.tensors["matrix"].format is by_name("TQ2_0_G128")
        assert file.two_bit
        assert "OxiBonsai" in file.two_bit.by


def test_a_key_that_contradicts_the_offsets_is_refused(path: Path, seed: int) -> None:
    error = refusal(path, holding(ternary("g64", seed), OXIBONSAI))
    assert "'last' has offset" in str(error)


def test_ambiguous_blocks_are_refused_with_the_override_as_remedy(path: Path) -> None:
    error = refusal(path, holding(bytes(ROWS * COLUMNS // 128 * 34)))
    assert isinstance(error, UnsupportedModel)
    assert "'matrix' is stored in 2 bits with 128 weights to a group" in str(error)
    assert "g128 (PrismML) or g128-last (OxiBonsai)" in error.remedy


@groups_of_128
def test_the_override_decides_for_an_ambiguous_file(
    layout: str, format: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVERRIDE, layout)
    path.write_bytes(holding(bytes(ROWS * COLUMNS // 128 * 34)))
    with GGUFFile.open(path) as file:
        assert file.tensors["matrix"].format is by_name(format)
        assert file.two_bit
        assert file.two_bit.by == OVERRIDE


@each_layout
@pytest.mark.parametrize("wanted", LAYOUTS)
def test_a_wrong_override_is_refused(
    layout: str, format: str, wanted: str, path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVERRIDE, wanted)
    data = holding(ternary(layout, seed))
    if wanted == layout:
        path.write_bytes(data)
        with GGUFFile.open(path) as file:
            assert file.tensors["matrix"].format is by_name(format)
        return
    error = refusal(path, data)
    assert isinstance(error, ModelFileError)
    assert "it would answer with noise" in str(error)
    assert OVERRIDE in error.remedy


def test_an_unknown_override_is_refused(
    path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVERRIDE, "g256")
    error = refusal(path, holding(ternary("g64", seed)))
    assert "'g256', which is no 2-bit layout" in str(error)
    assert "g64, g128, g128-last" in error.remedy


def test_files_without_2_bit_tensors_ignore_the_override(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVERRIDE, "g256")
    path.write_bytes(model(tensors=(tensor("first", 8),), data=bytes(32)))
    with GGUFFile.open(path) as file:
        assert file.two_bit is None


@groups_of_128
@pytest.mark.parametrize("cut", [64, ROWS * COLUMNS // 128 * 34])
def test_a_truncated_file_with_groups_of_128_must_be_downloaded_again(
    layout: str, format: str, cut: int, path: Path, seed: int
) -> None:
    error = refusal(path, holding(ternary(layout, seed), cut=cut))
    assert "The file ends at byte" in str(error)
    assert "download it again" in error.remedy


@pytest.mark.parametrize("format", ["PQ2_0", "TQ2_0_G128"])
def test_a_2_bit_model_gives_the_logits_of_its_float_copy(format: str, path: Path) -> None:
    """Through the loader, so that the kernels get the detected layout."""
    tiny.write(path, format=format, layers=1)
    session = load(path).new_session()
    for _ in session.prefill([5, 6, 7]):
        pass
    assert session.step(8).isfinite().all()
