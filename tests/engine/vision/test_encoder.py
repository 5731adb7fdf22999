"""Picture encoders: transformers' rows, weights of each format, and equal bits on every way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vision_files
from engine.errors import Cancelled
from engine.gguf.reader import GGUFFile
from engine.vision.encoder import Encoder
from engine.vision.encoders import build_encoder
from kernels.backend.backend import Backend
from kernels.backends import BACKENDS
from kernels.cpu import library
from kernels.cpu.program import Recorded
from kernels.programs.interpreter import Interpreter

SETS = library.instruction_sets()
LARGEST_ERROR = 3e-12  # normalised and squared; 7e-13 measured
CLIPPED_ERROR = 1e-10  # where scores of attention are large, 7e-12 measured
# Of the kernels, beside the reference with the same weights. With those of Q8_0 inputs are rounded
# too, which may cost as much again as the rounding of the weights.
FORMATS = {"F16": 1e-9, "BF16": 1e-9, "Q8_0": math.inf}  # 4e-11 measured
TIMES = 8  # so many times the channels have rows of whole blocks of Q8_0


@cache
def recorded() -> dict[str, vision_files.Recorded]:
    return vision_files.recorded()


@pytest.fixture(params=("reference", *SETS))
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The reference, then the native kernels on every instruction set of this processor."""
    if request.param == "reference":
        yield BACKENDS["reference"]
        return
    before, threads = library.instruction_set(), library.threads()
    library.use(request.param)
    yield BACKENDS["cpu"]
    library.use(before)
    library.set_threads(threads)


def encoder_of(path: Path, backend: Backend) -> Encoder:
    with GGUFFile.open(path) as file:
        return build_encoder(file, backend)


def error_of(found: Tensor, wanted: Tensor) -> float:
    """The squared error, normalised."""
    assert found.shape == wanted.shape
    found, wanted = found.double(), wanted.double()
    return float((found - wanted).square().sum() / wanted.square().sum())


def picture_of(model: vision_files.Recorded, at: int = 0) -> Tensor:
    return vision_files.pixels(model.case, model.pictures[at])


@pytest.mark.parametrize("name", vision_files.CASES)
def test_rows_are_those_of_transformers(name: str, backend: Backend, tmp_path: Path) -> None:
    model = recorded()[name]
    encoder = encoder_of(model.write(tmp_path / "mmproj.gguf"), backend)
    for at, rows in enumerate(model.rows):
        found = encoder.encode(picture_of(model, at))
        most = CLIPPED_ERROR if name == "gemma4v-clipped" else LARGEST_ERROR
        assert error_of(found, torch.from_numpy(rows)) <= most


@pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=[pytest.mark.sweep] if at else []) for at, name in enumerate(SETS)],
    indirect=True,
)
@pytest.mark.parametrize("name", vision_files.CASES)
def test_weights_of_each_format_are_lowered_and_close(
    name: str, backend: Backend, tmp_path: Path
) -> None:
    model = recorded()[name]
    tensors = vision_files.tensors(model.case, model.state)
    file = vision_files.widened(vision_files.keys(model.case), tensors, TIMES)
    path = vision_files.write(tmp_path / "F32.gguf", *file)
    exact = encoder_of(path, BACKENDS["reference"]).encode(picture_of(model))
    for format, most in FORMATS.items():
        path = vision_files.write(tmp_path / f"{format}.gguf", *file, format)
        wanted = encoder_of(path, BACKENDS["reference"]).encode(picture_of(model))
        encoder = encoder_of(path, backend)
        assert set(map(type, encoder.programs)) == {Recorded}
        found = encoder.encode(picture_of(model))
        rounded = error_of(wanted, exact)
        assert 0 < rounded < 0.05, format
        assert error_of(found, wanted) <= min(most, 2 * rounded), format
        assert torch.equal(interpreted(encoder).encode(picture_of(model)), found), format


def interpreted(encoder: Encoder) -> Encoder:
    """The same encoder, run op by op by the native kernels."""
    other = Encoder(encoder.wiring, BACKENDS["cpu"])
    programs = encoder.wiring.programs
    other.programs = tuple(Interpreter(one, BACKENDS["cpu"].ops) for one in programs)
    return other


@pytest.mark.parametrize("name", vision_files.CASES)
def test_a_picture_has_the_same_bits_on_every_way(
    name: str, backend: Backend, tmp_path: Path
) -> None:
    model = recorded()[name]
    encoder = encoder_of(model.write(tmp_path / "mmproj.gguf"), backend)
    first = encoder.encode(picture_of(model))
    encoder.encode(picture_of(model, -1))
    assert torch.equal(encoder.encode(picture_of(model)), first)
    if backend.name == "reference":
        return  # torch's sums depend on threads
    for threads in (1, 2):
        library.set_threads(threads)
        for one in (encoder, interpreted(encoder)):
            assert torch.equal(one.encode(picture_of(model)), first), threads


@pytest.mark.parametrize("name", vision_files.CASES)
def test_other_pixels_give_other_rows(name: str, tmp_path: Path) -> None:
    model = recorded()[name]
    encoder = encoder_of(model.write(tmp_path / "mmproj.gguf"), BACKENDS["reference"])
    picture = picture_of(model)
    before = encoder.encode(picture)
    for row, column in ((0, 0), (-1, -1)):
        changed = picture.clone()
        changed[row, column, 1] += 0.5
        assert error_of(encoder.encode(changed), before) > LARGEST_ERROR


@pytest.mark.parametrize("name", vision_files.CASES)
def test_buffers_of_an_encoder_share_memory_and_are_freed(name: str, tmp_path: Path) -> None:
    model = recorded()[name]
    encoder = encoder_of(model.write(tmp_path / "mmproj.gguf"), BACKENDS["cpu"])
    programs = [one for one in encoder.programs if isinstance(one, Recorded)]
    assert len(programs) == len(encoder.programs)
    shares: list[float] = []  # of the bytes that the tower's buffers would take apart

    def note() -> None:
        buffers = list(programs[0]._buffers.values())
        memory = {one.data_ptr(): one.nbytes() for one in map(Tensor.untyped_storage, buffers)}
        if buffers:
            shares.append(sum(memory.values()) / (4 * sum(map(Tensor.numel, buffers))))

    def cancel() -> None:
        if programs[0]._buffers:
            raise Cancelled

    encoder.encode(picture_of(model), note)
    assert max(shares) < 0.75 or not model.case.layers
    assert not any(one._buffers for one in programs)
    with pytest.raises(Cancelled):
        encoder.encode(picture_of(model), cancel)
    assert not any(one._buffers for one in programs)


def test_a_picture_can_be_cancelled_before_each_layer(backend: Backend, tmp_path: Path) -> None:
    model = recorded()["qwen3vl-deep"]
    encoder = encoder_of(model.write(tmp_path / "mmproj.gguf"), backend)
    calls = []
    wanted = encoder.encode(picture_of(model), lambda: calls.append(1))
    assert len(calls) > model.case.layers

    def cancel() -> None:
        left.pop()
        if not left:
            raise Cancelled

    for at in range(1, len(calls) + 1):
        left = [1] * at
        with pytest.raises(Cancelled):
            encoder.encode(picture_of(model), cancel)
        assert torch.equal(encoder.encode(picture_of(model)), wanted)


@pytest.mark.parametrize("name", vision_files.CASES)
def test_pictures_of_other_sizes_are_refused(name: str, tmp_path: Path) -> None:
    model = recorded()[name]
    encoder = encoder_of(model.write(tmp_path / "mmproj.gguf"), BACKENDS["reference"])
    side = model.case.patch * model.case.merge
    sizes = [
        (side + 1, side),
        (side, side - 1),
        (0, side),
        (side, 0),
    ]
    if model.case.merge > 1:
        sizes.append((side + model.case.patch, side))
    if name.startswith(("gemma", "internvl", "llama4")):
        sizes.append((side, 40 * side))
    if name in ("gemma3", "llama4") or name.startswith("internvl"):  # of as many patches
        sizes.append((side // 2, 8 * side))
    for height, width in sizes:
        with pytest.raises(ValueError, match=r"pixels|patches"):
            encoder.encode(torch.zeros(height, width, 3))
    with pytest.raises(ValueError, match="pixels"):
        encoder.encode(torch.zeros(side, side, 4))


@pytest.mark.parametrize("name", ["gemma3", "idefics3"])
def test_early_files_name_both_products_of_an_mlp_the_wrong_way_round(
    name: str, tmp_path: Path
) -> None:
    model = recorded()[name]
    other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    swapped = {
        ".".join(other.get(part, part) for part in key.split(".")): value
        for key, value in vision_files.tensors(model.case, model.state).items()
    }
    path = vision_files.write(tmp_path / "m.gguf", vision_files.keys(model.case), swapped)
    found = encoder_of(path, BACKENDS["reference"]).encode(picture_of(model))
    assert error_of(found, torch.from_numpy(model.rows[0])) <= LARGEST_ERROR


def test_an_encoder_of_sounds_in_the_file_is_left_out(tmp_path: Path) -> None:
    model = recorded()["gemma4v-clipped"]
    tensors = vision_files.tensors(model.case, model.state)
    sounds = dict.fromkeys(("a.blk.0.ln", "mm.a.fc"), tensors["mm.input_projection.weight"])
    keys = vision_files.keys(model.case) | {"clip.has_audio_encoder": True}
    path = vision_files.write(tmp_path / "m.gguf", keys, tensors | sounds)
    found = encoder_of(path, BACKENDS["reference"]).encode(picture_of(model))
    assert error_of(found, torch.from_numpy(model.rows[0])) <= CLIPPED_ERROR
