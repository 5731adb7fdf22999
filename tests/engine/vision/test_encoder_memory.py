"""The memory of picture encoders: as predicted from the file, and with room in a model's plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
import vision_files
from engine import inspect_model
from engine.gguf.reader import GGUFFile
from engine.loading.memory import MemoryPlan
from engine.loading.placement import Placement, predict
from engine.loading.preflight import identify
from engine.messages import CacheType
from engine.vision import encoder_memory, pairing
from engine.vision.encoder import Encoder
from engine.vision.encoder_memory import EncoderSizes, read_encoder_sizes
from engine.vision.encoders import build_encoder
from engine.vision.pairing import find_encoder
from engine.vision.registry import ROWS_BYTES
from kernels.backends import BACKENDS
from kernels.cpu import library
from kernels.cpu.program import Recorded
from kernels.weights.weight import Weight

TIMES = 8  # so many times as many channels: what does not depend on them counts little
# A tower of the shape of Qwen3.5-4B's, by the sizes of the small one.
QWEN = {36: 1_152, 108: 3_456, 52: 4_304, 40: 2_560, 144: 4_608, 25: 2_304, 7: 16}


@pytest.fixture(autouse=True)
def native() -> None:
    if not library.available():
        pytest.skip(library.reason())


def encoder_of(path: Path) -> Encoder:
    with GGUFFile.open(path) as file:
        return build_encoder(file, BACKENDS["cpu"])


def weights_of(value: Any) -> Iterator[Weight]:
    """The weights of instructions."""
    if isinstance(value, Weight):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from weights_of(one)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from weights_of(getattr(value, name))


def wide(name: str, path: Path, format: str) -> tuple[Encoder, EncoderSizes]:
    """An encoder with many channels, and its sizes."""
    model = vision_files.recorded()[name]
    tensors = vision_files.tensors(model.case, model.state)
    file = vision_files.widened(vision_files.keys(model.case), tensors, TIMES)
    vision_files.write(path, *file, format)
    return encoder_of(path), read_encoder_sizes(path)


@pytest.mark.parametrize(
    ("name", "format"), [*((name, "F16") for name in vision_files.CASES), ("gemma3", "Q8_0")]
)
def test_weights_take_what_is_predicted(name: str, format: str, tmp_path: Path) -> None:
    encoder, sizes = wide(name, tmp_path / "mmproj.gguf", format)
    programs = encoder.wiring.programs
    weights = {id(one): one for one in weights_of([program.body for program in programs])}
    positions = encoder.wiring.positions
    tables = [one for one in getattr(positions, "args", ()) if isinstance(one, Tensor)]
    held = sum(one.size_bytes for one in weights.values()) + sum(one.nbytes for one in tables)
    assert held <= sizes.weights_bytes(BACKENDS["cpu"]) <= 1.2 * held


@pytest.mark.parametrize(
    "name",
    [
        "gemma3",
        "idefics3",
        "internvl",
        "qwen3vl-deep",
        "gemma4v",
        "gemma4uv",
        "pixtral",
        "minicpmv4_6",
        "resampler",
    ],
)
def test_buffers_take_at_most_what_is_predicted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, sizes = wide(name, tmp_path / "mmproj.gguf", "F16")
    picture = vision_files.pixels(*_of(name))
    config = sizes.config
    patches = picture.shape[0] // config.patch * (picture.shape[1] // config.patch)
    if name in ("gemma3", "idefics3", "internvl"):
        assert sizes.patches == patches  # the only one that it takes
    monkeypatch.setattr(EncoderSizes, "patches", patches)
    monkeypatch.setattr(encoder_memory, "_FIXED_BYTES", 0)
    held: list[int] = []

    def note() -> None:
        for program in encoder.programs:
            assert isinstance(program, Recorded)
            buffers = map(Tensor.untyped_storage, program._buffers.values())
            memory = {one.data_ptr(): one.nbytes() for one in buffers}
            held.append(sum(memory.values()))

    encoder.encode(picture, note)
    given = 4 * patches * config.pixels
    assert max(held) + given <= sizes.buffer_bytes <= 3 * (max(held) + given)


def _of(name: str) -> tuple[Any, Any]:
    model = vision_files.recorded()[name]
    return model.case, model.pictures[0]


@pytest.mark.slow
def test_a_picture_in_the_shape_of_a_real_tower_takes_at_most_200_mb(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory is measured as Linux does")
    model = vision_files.recorded()["qwen3vl"]
    random = np.random.default_rng(7)
    tensors = {
        name: 0.02 * random.standard_normal([QWEN.get(size, size) for size in value.shape])
        for name, value in vision_files.tensors(model.case, model.state).items()
    }
    sizes = {
        "projection_dim": 2_560,
        "image_size": 768,
        "patch_size": 16,
        "embedding_length": 1_152,
    }
    sizes |= {"feed_forward_length": 4_304, "attention.head_count": 16}
    keys = vision_files.keys(model.case) | {f"clip.vision.{key}": n for key, n in sizes.items()}
    path = vision_files.write(tmp_path / "mmproj.gguf", keys, tensors, "F16")
    encoder, predicted = encoder_of(path), read_encoder_sizes(path)
    encoder.encode(torch.zeros(64, 64, 3))
    picture = torch.randn(896, 896, 3)
    del tensors
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = status("VmRSS")
    encoder.encode(picture)
    taken = status("VmHWM") - before
    assert taken <= 200_000_000
    bound = predicted.buffer_bytes * (896 // 16) ** 2 / predicted.patches
    assert 0.6 * bound <= taken <= bound


def status(name: str) -> int:
    """A figure of the memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


# --- in the plan of a model -----------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A text model, and a picture encoder beside it that fits."""
    model = vision_files.recorded()["gemma3"]
    path = tiny.write(tmp_path / "model.gguf", architecture="gemma3", hidden=model.case.output)
    return path, model.write(tmp_path / "mmproj-model.gguf")


def planned(model: Path, encoder: Path | None, available: int, context: int = 64) -> MemoryPlan:
    with GGUFFile.open(model) as file:
        _, config = identify(file)
        placement = Placement.on(BACKENDS["cpu"], config.layers)
        sizes = None if encoder is None else read_encoder_sizes(encoder)
        cache = CacheType.F32
        found, _ = predict(
            file, config, placement, context, cache, available=available, encoder=sizes
        )
        return found


def test_room_is_kept_for_pictures_where_the_model_fits_with_it(pair: tuple[Path, Path]) -> None:
    plain = planned(pair[0], None, 1 << 33)
    seeing = planned(*pair, 1 << 33)
    sizes = read_encoder_sizes(pair[1])
    assert seeing.encoder_bytes == sizes.total_bytes(BACKENDS["cpu"]) > ROWS_BYTES
    assert seeing.total_bytes == plain.total_bytes + seeing.encoder_bytes
    assert replace(seeing, encoder_bytes=0, total_bytes=plain.total_bytes) == plain
    enough = int(seeing.total_bytes / 0.9) + 1
    assert planned(*pair, enough).encoder_bytes == seeing.encoder_bytes
    without = planned(*pair, enough - 2)
    assert without.encoder_bytes == 0
    assert without.fits
    assert without.offloading is None


def test_a_model_is_inspected_with_the_encoder_beside_it(pair: tuple[Path, Path]) -> None:
    facts = inspect_model(pair[0])
    assert (facts.encoder, facts.problem) == (pair[1], "")
    parts = facts.weights_bytes, facts.cache_bytes, facts.scratch_bytes, facts.encoder_bytes
    assert facts.memory_bytes == sum(parts)
    assert facts.encoder_bytes > ROWS_BYTES
    small = inspect_model(pair[0], memory_bytes=facts.memory_bytes - 1)
    assert (small.encoder, small.encoder_bytes, small.fits) == (None, 0, True)
    pair[1].unlink()
    alone = inspect_model(pair[0])
    assert (alone.encoder, alone.encoder_bytes) == (None, 0)
    assert alone.memory_bytes == facts.memory_bytes - facts.encoder_bytes


def test_only_encoders_among_the_files_beside_a_model_are_read_whole(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, encoder = pair
    tiny.write(model.with_name("other.gguf"))
    opened: list[Path] = []
    read = GGUFFile.open

    def watched(path: Path) -> GGUFFile:
        opened.append(path)
        return read(path)

    monkeypatch.setattr(pairing.GGUFFile, "open", watched)
    width = vision_files.CASES["gemma3"].output
    assert find_encoder(model, "gemma3", width) == encoder
    assert opened == [encoder]
    assert find_encoder(model, "bert", width) is None
    assert opened == [encoder]
