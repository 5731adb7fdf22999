"""The CUDA backend: its ops against the reference, whole models in the interpreter, refusals."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import gpu_results
import tiny
from engine.errors import RequestError
from engine.loading.loader import load
from engine.messages import CacheType
from fake_driver import FakeDriver
from gpu_decoding import logits
from gpu_products import MakeRows, energy_of, weight_of
from kernels import backends, cuda
from kernels.backend import reference
from kernels.backend.backend import OTHER_OPS, SHOWN_WEIGHT_OPS
from kernels.backend.refusal import Reason, Refusal
from kernels.gpu.ops import has_kernel
from kernels.ops import Activation
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV, PageTable
from kernels.weights.formats import FORMATS
from kernels.weights.weight import Weight

pytestmark = pytest.mark.sweep

MOST_ERROR = 5e-4
HOST = torch.device("cpu")
BACKEND = cuda.backend_on(HOST)


def check_close(found: Tensor, wanted: Tensor, energy: float | None = None) -> None:
    gpu_results.check_close(found, wanted, MOST_ERROR * (1 + 8 / found.numel()), energy)


@pytest.mark.parametrize("name", ["F32", "F16", "Q4_K", "Q1_0", "IQ2_XS"])
@pytest.mark.parametrize("tokens", [0, 1, 5, 66])
def test_products_of_any_number_of_tokens(
    name: str, tokens: int, even_rows: MakeRows, random: torch.Generator
) -> None:
    weight = weight_of(name, 9, 256, even_rows)
    x = torch.randn(tokens, 256, generator=random)
    prepared = BACKEND.prepare(weight)
    assert prepared.size_bytes == BACKEND.held_bytes(weight.format, weight.shape)
    found = BACKEND.ops.linear(x, prepared)
    assert found.shape == (tokens, 9)
    if tokens:
        dense = weight.dense().double()
        check_close(found, x.double() @ dense.T, energy_of(x, dense))


def test_an_id_outside_the_table_is_refused(even_rows: MakeRows) -> None:
    prepared = BACKEND.prepare(weight_of("Q8_0", 5, 64, even_rows))
    assert BACKEND.ops.embed(torch.tensor([4]), prepared).shape == (1, 64)
    for wrong in (-1, 5):
        with pytest.raises(IndexError, match="outside the 5 rows"):
            BACKEND.ops.embed(torch.tensor([wrong]), prepared)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_attention_of_rotated_queries(dtype: torch.dtype, random: torch.Generator) -> None:
    layout = KVLayout([LayerShape(2, 40)], dtype)
    table = PageTable()
    for _ in range(2):
        table.append(torch.full((layout.page_bytes[0],), 0xFF, dtype=torch.uint8))
    kv = PagedKV(layout.kv(0), table)
    kv.append(*torch.randn(2, 259, 2, 40, generator=random), 0)
    q = torch.randn(5, 6, 40, generator=random)
    operands = q, kv, 254, 40**-0.5, 9, 3.0
    check_close(BACKEND.ops.attention(*operands), reference.attention(*operands).double())


def test_other_ops(random: torch.Generator) -> None:
    x, up = torch.randn(2, 3, 4, 70, generator=random)
    weight, bias = torch.randn(2, 70, generator=random)
    ops = BACKEND.ops
    check_close(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    for added in (bias, None):
        found = ops.layer_norm(x, weight, added, 1e-5)
        check_close(found, reference.layer_norm(x, weight, added, 1e-5))
    check_close(
        ops.gated(x[0], up[0], Activation.GELU), reference.gated(x[0], up[0], Activation.GELU)
    )


def test_the_matrix_names_the_kernels_that_there_are() -> None:
    for op, format in reference.KERNELS:
        if op in (*SHOWN_WEIGHT_OPS, *OTHER_OPS):
            kernel = BACKEND.kernels[op, format]
            assert has_kernel(op, format) == (kernel is not reference.KERNELS[op, format])


# --- whole models -------------------------------------------------------------------------------


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is the processor, in Triton's interpreter."""
    monkeypatch.setattr("kernels.cuda.cuda_backend", lambda device: BACKEND)
    monkeypatch.setattr("kernels.cuda.attention.MOST_SPLITS", 2)  # fewer programs to interpret
    monkeypatch.setattr("kernels.cuda.launch._ROWS", 128)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("architecture", "format", "cache"),
    [
        ("qwen3", "Q4_0", CacheType.F16),
        pytest.param("gemma3", "Q8_0", CacheType.Q8_0, marks=pytest.mark.slow),
    ],
)
def test_a_model_runs_as_on_the_reference(
    architecture: str, format: str, cache: CacheType, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture, format=format, layers=2)
    wanted = logits(load(path, backend="reference", cache=cache), 11)
    model = load(path, backend="cuda", cache=cache)
    assert model.backends.startswith("cuda")
    assert set(model.kernels.values()) == {"cuda"}
    assert model.slow == ()
    found = logits(model, 11)
    check_close(found, wanted, float(wanted.double().square().sum()) * 8)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_a_model_is_split_with_the_processor(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=3)
    wanted = logits(load(path, backend="reference"), 11)
    model = load(path, parts=[("reference", 1), ("cuda", 0)])
    assert model.backends == "layers 1: reference, 2-3: cuda"
    check_close(logits(model, 11), wanted, float(wanted.double().square().sum()) * 8)


# --- refusals -----------------------------------------------------------------------------------


def refusal(reason: Reason, device: str = "") -> str:
    """The sentence with which a GPU is refused for this reason."""
    found = cuda.refused(device)
    assert found is not None
    assert found.reason is reason
    return found.text


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return FakeDriver(monkeypatch)


def test_a_build_of_torch_without_cuda_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.version.cuda", None)
    cuda.cuda_backend.cache_clear()
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=1)
    with pytest.raises(RequestError, match="cannot be used: This build of torch has no CUDA"):
        load(path, backend="cuda")


def test_no_gpu_and_no_driver_are_refused(gpu: FakeDriver) -> None:
    assert cuda.refused() is None
    gpu.available = False
    assert "no NVIDIA GPU or no driver" in refusal(Reason.NO_DEVICE)


def test_other_numbers_are_refused(gpu: FakeDriver) -> None:
    assert cuda.refused("0") is None
    assert refusal(Reason.NO_DEVICE, "1") == "There is no GPU 1; the computer has 1."
    for wrong in ("one", "-1"):
        assert refusal(Reason.NO_DEVICE, wrong) == f"There is no GPU {wrong}; the computer has 1."


def test_an_old_gpu_is_refused(gpu: FakeDriver) -> None:
    gpu.capability = (7, 5)
    assert "too old" in refusal(Reason.TOO_OLD)
    assert "7.5" in refusal(Reason.TOO_OLD)


def test_a_driver_that_fails_is_refused(gpu: FakeDriver) -> None:
    gpu.fails = "CUDA error: unknown error\nCompile with..."
    assert refusal(Reason.DRIVER_FAILS) == "The NVIDIA driver fails: CUDA error: unknown error."


@pytest.mark.usefixtures("gpu")
def test_a_missing_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "C compiler" in refusal(Reason.NO_COMPILER)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "triton" in refusal(Reason.NO_TRITON)


def test_the_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cuda" in backends.NAMES
    refused = Refusal(Reason.NO_DEVICE, "It is off.")
    monkeypatch.setattr("kernels.cuda.refused", lambda device: refused)
    with pytest.raises(ValueError, match="The GPU cannot be used: It is off"):
        backends.choose("cuda:3")


def test_every_format_can_be_prepared(random_rows: MakeRows) -> None:
    for format in FORMATS.values():
        columns = max(format.block, 32)
        data = random_rows(format, 2, columns)
        weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (2, columns))
        x = torch.zeros(1, columns)
        assert not math.isnan(float(BACKEND.ops.linear(x, BACKEND.prepare(weight)).sum()))
