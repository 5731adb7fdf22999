"""Type numbers with several meanings, and models in every format."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import tiny
from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from gguf_bytes import ARRAY, STRING, U32, array, entry, model, refusal, tensor, text
from kernels.weights.formats import FORMATS, by_name
from kernels.weights.weight import Weight

Q2_0, E4M3, E5M2 = 42, 43, 44
VERSION = "general.quantization_version"
OWN = entry("oxibonsai.quant_scale_rule", STRING, text("AbsMean"))
ROWS, COLUMNS = 9, 512
OF_64, OF_128 = ROWS * COLUMNS // 64 * 18, ROWS * COLUMNS // 128 * 34

every_format = pytest.mark.parametrize("format", [row.name for row in FORMATS.values()])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def on_32(size: int) -> int:
    return -(-size // 32) * 32


def two_bit(size: int, *entries: bytes, behind: bool = True, data_bytes: int = 0) -> bytes:
    """A model with one matrix of type 42 of `size` bytes, followed by a vector."""
    tensors = [tensor("first", 8), tensor("matrix", COLUMNS, ROWS, type=Q2_0, offset=32)]
    if behind:
        tensors.append(tensor("last", 8, offset=32 + on_32(size)))
    whole = 32 + on_32(size) + 32 if behind else 32 + size
    return model(*entries, tensors=tuple(tensors), data=bytes(data_bytes or whole))


@pytest.mark.usefixtures("caplog")  # formats without native kernels log a warning
@every_format
def test_a_model_in_every_format_opens_and_answers(format: str, path: Path) -> None:
    tiny.write(path, format=format, layers=1)
    with GGUFFile.open(path) as file:
        matrices = [info for info in file.tensors.values() if len(info.shape) == 2]
        assert {info.format.name for info in matrices} == {format}
        info = file.tensors["blk.0.ffn_down.weight"]
        dense = Weight.from_bytes(file.data(info.name), info.format, info.shape).dense()
        assert float(dense.std()) * info.shape[-1] ** 0.5 == pytest.approx(1, abs=0.35)
        assert abs(float(dense.mean())) < 0.1 * float(dense.std())
    session = load(path).new_session()
    for _ in session.prefill([5, 6, 7]):
        pass
    assert session.step(8).isfinite().all()


def test_2_bit_groups_of_64_are_ggmls_q2_0(path: Path) -> None:
    for behind in (True, False):
        path.write_bytes(two_bit(OF_64, entry(VERSION, U32, struct.pack("<I", 2)), behind=behind))
        with GGUFFile.open(path) as file:
            assert file.tensors["matrix"].format is by_name("Q2_0")
            assert file.tensors["matrix"].size_bytes == OF_64


def test_a_truncated_q2_0_file_must_be_downloaded_again(path: Path) -> None:
    for behind in (True, False):
        error = refusal(path, two_bit(OF_64, behind=behind, data_bytes=OF_64 - 64))
        assert "The file ends at byte" in str(error)
        assert "download it again" in error.remedy


@pytest.mark.parametrize("size", [OF_64 + 32, OF_128 - 32, (OF_64 + OF_128) // 2])
def test_2_bit_tensors_of_unknown_block_size_are_refused(size: int, path: Path) -> None:
    error = refusal(path, two_bit(size, data_bytes=2 * OF_64))
    assert "'last' has offset" in str(error)
    assert not isinstance(error, UnsupportedModel)


def test_rows_that_are_no_multiple_of_128_are_q2_0(path: Path) -> None:
    tensors = (tensor("odd", 64, 3, type=Q2_0), tensor("last", 8, offset=64))
    path.write_bytes(model(tensors=tensors, data=bytes(96)))
    with GGUFFile.open(path) as file:
        assert file.tensors["odd"].size_bytes == 54
    tensors = (tensor("odd", 96, type=Q2_0),)
    assert "rows of 96 weights, which Q2_0 cannot store" in str(
        refusal(path, model(tensors=tensors, data=bytes(96)))
    )


@pytest.mark.parametrize(
    "other",
    [
        entry(VERSION, STRING, text("TQ2_0_G12")),
        entry(VERSION, STRING, text(b"\xff" * 10)),
        entry(VERSION, ARRAY, array(U32, 0)),
        entry("general.name", STRING, text("oxibonsai.quant_format")),
        OWN,
    ],
)
def test_other_keys_do_not_select_a_2_bit_layout(other: bytes, path: Path) -> None:
    path.write_bytes(two_bit(OF_64, other))
    with GGUFFile.open(path) as file:
        assert file.tensors["matrix"].format.id == Q2_0


@pytest.mark.parametrize("type", [E4M3, E5M2])
@pytest.mark.parametrize("mark", [OWN, entry(VERSION, STRING, text("FP8_E4M3"))])
def test_8_bit_floats_are_read_in_oxibonsais_files(type: int, mark: bytes, path: Path) -> None:
    tensors = (tensor("m", 64, type=type), tensor("n", 8, offset=96))
    path.write_bytes(model(mark, tensors=tensors, data=bytes(128)))
    with GGUFFile.open(path) as file:
        assert file.tensors["m"].format is FORMATS[type]
        assert file.tensors["m"].size_bytes == 68


@pytest.mark.parametrize("type", [E4M3, E5M2])
@pytest.mark.parametrize(
    "other",
    [
        entry(VERSION, U32, struct.pack("<I", 2)),
        entry("oxibonsai", STRING, text("x")),
        entry("general.oxibonsai.x", STRING, text("x")),
    ],
)
def test_8_bit_floats_are_unknown_in_other_files(type: int, other: bytes, path: Path) -> None:
    tensors = (tensor("m", 64, type=type),)
    error = refusal(path, model(other, tensors=tensors, data=bytes(96)))
    assert isinstance(error, UnsupportedModel)
    assert f"'m' has the unknown type number {type}" in str(error)


def test_type_45_is_unknown_in_oxibonsais_files_too(path: Path) -> None:
    tensors = (tensor("m", 64, type=45),)
    assert "unknown type number 45" in str(refusal(path, model(OWN, tensors=tensors)))


def test_8_bit_floats_with_wrong_offsets_are_refused(path: Path) -> None:
    tensors = (tensor("m", 64, type=E4M3), tensor("n", 8, offset=64))
    error = refusal(path, model(OWN, tensors=tensors, data=bytes(128)))
    assert "'n' has offset 64, but the tensor 'm' ends at 96" in str(error)
    assert isinstance(error, ModelFileError)
