"""Picture encoders on GPU backends: lowered, and as exact as the reference with the same weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import metal_library
import vision_files
from engine.gguf.reader import GGUFFile
from engine.vision.encoder import Encoder
from engine.vision.encoders import build_encoder
from kernels import cuda, metal
from kernels.backend.backend import Backend
from kernels.backend.torch_backend import torch_backend
from kernels.backends import BACKENDS
from kernels.cuda import launch
from kernels.gpu.encoding import Recorded
from kernels.programs.interpreter import Interpreter
from other_device import DEVICE, Elsewhere, OtherDevice

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of Triton's interpreter

TIMES = 8  # so many times the channels: rows of whole units
MOST_ERROR, CLIPPED_ERROR = 1e-10, 1e-9  # squared and normalized; clipped scores are large
CUDA = cuda.backend_on(torch.device("cpu"))
METAL = metal.backend_on(torch.device("cpu"))
# Interpreted kernels take seconds: these are always tried.
QUICK = {("cuda", "qwen3vl-deep"), ("metal", "pixtral")}


@cache
def recorded() -> dict[str, vision_files.Recorded]:
    return vision_files.recorded()


def encoder_of(path: Path, backend: Backend) -> Encoder:
    with GGUFFile.open(path) as file:
        return build_encoder(file, backend)


def error_of(found: Tensor, wanted: Tensor) -> float:
    """The squared error, normalized."""
    assert found.shape == wanted.shape
    found, wanted = found.double(), wanted.double()
    return float((found - wanted).square().sum() / wanted.square().sum())


def written(name: str, format: str, folder: Path, times: int = TIMES) -> tuple[Path, Tensor]:
    """An encoder's file with weights of a format, and a picture for it."""
    model = recorded()[name]
    tensors = vision_files.tensors(model.case, model.state)
    file = vision_files.widened(vision_files.keys(model.case), tensors, times)
    path = vision_files.write(folder / f"{format}.gguf", *file, format)
    return path, vision_files.pixels(model.case, model.pictures[0])


@pytest.fixture(autouse=True)
def shaders_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles shaders with the stand-in of Metal's compiler."""
    metal_library.install(monkeypatch)


@pytest.mark.parametrize("name", vision_files.CASES)
@pytest.mark.parametrize("backend", [CUDA, METAL], ids=lambda backend: backend.name)
def test_every_encoder_is_lowered(name: str, backend: Backend, tmp_path: Path) -> None:
    encoder = encoder_of(written(name, "F16", tmp_path, 1)[0], backend)
    assert {type(one) for one in encoder.programs} == {Recorded}


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        pytest.param(backend, name, marks=() if (backend.name, name) in QUICK else pytest.mark.slow)
        for name in vision_files.CASES
        for backend in (CUDA, METAL)
    ],
    ids=lambda given: getattr(given, "name", given),
)
def test_rows_are_those_of_the_reference_with_the_same_weights(
    backend: Backend, name: str, tmp_path: Path
) -> None:
    path, picture = written(name, "F16", tmp_path)
    encoder = encoder_of(path, backend)
    calls: list[int] = []
    found = encoder.encode(picture, lambda: calls.append(1))
    assert len(calls) > recorded()[name].case.layers  # it may be cancelled before each
    wanted = encoder_of(path, BACKENDS["reference"]).encode(picture)
    most = CLIPPED_ERROR if name == "gemma4v-clipped" else MOST_ERROR
    assert error_of(found, wanted) <= most


@pytest.mark.slow
@pytest.mark.parametrize("backend", [CUDA, METAL], ids=lambda backend: backend.name)
def test_an_encoder_op_by_op_on_the_device(backend: Backend, tmp_path: Path) -> None:
    """As after a failed check of a kernel: products are rounded as those of a prompt."""
    path, picture = written("qwen3vl", "F16", tmp_path)
    encoder = encoder_of(path, backend)
    programs = encoder.wiring.tower, encoder.wiring.projector
    encoder.programs = tuple(backend.record(one, {"gated"}) for one in programs)
    assert isinstance(encoder.programs[0], Interpreter)
    wanted = encoder_of(path, BACKENDS["reference"]).encode(picture)
    assert error_of(encoder.encode(picture), wanted) <= 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_halves_are_as_exact_as_those_of_floats(
    dtype: torch.dtype, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of values that are too large or too small for halves, too."""
    monkeypatch.setattr(launch, "_HALVES", 4)
    x = torch.randn(9, 64, generator=random) * 10.0 ** torch.arange(-20, 25, 5)[:, None]
    x[3] = 0
    matrix = torch.randn(20, 64, generator=random).to(dtype)
    out = torch.full((9, 20), float("nan"))
    launch.linear_halves(x, matrix, out)
    wanted = x.double() @ matrix.double().T
    errors = (out - wanted).norm(dim=1) / wanted.norm(dim=1).clamp_min(1e-300)
    assert float(errors.max()) < {torch.float16: 1e-6, torch.bfloat16: 3e-5}[dtype]
    assert not out[3].any()


@pytest.mark.parametrize("name", vision_files.CASES)
def test_an_encoder_mixes_no_tensors_of_host_and_device(name: str, tmp_path: Path) -> None:
    """Op by op on a device of torch, without kernels; pixels come from the host, rows go there."""
    model = recorded()[name]
    path = model.write(tmp_path / "mmproj.gguf")
    picture = vision_files.pixels(model.case, model.pictures[0])
    wanted = encoder_of(path, BACKENDS["reference"]).encode(picture)
    with OtherDevice() as device:
        encoder = encoder_of(path, torch_backend(str(DEVICE)))
        device.moves.clear()
        found = encoder.encode(picture)
    assert not isinstance(found, Elsewhere)
    assert torch.equal(found, wanted)
    assert device.moves.count("from") == 1
