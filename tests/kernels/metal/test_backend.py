"""The Metal backend: its ops against the reference, and whole models on the processor."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import tiny
from engine.loading.loader import load
from engine.messages import CacheType
from gpu_decoding import logits
from gpu_products import MakeRows, weight_of
from gpu_results import check_close
from kernels import metal
from kernels.backend import reference
from kernels.backend.backend import OTHER_OPS, SHOWN_WEIGHT_OPS
from kernels.gpu.ops import has_kernel
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV, PageTable
from kernels.weights.formats import FORMATS
from kernels.weights.weight import Weight

MOST_ERROR = 5e-4
BACKEND = metal.backend_on(torch.device("cpu"))


@pytest.mark.parametrize("name", ["F32", "F16", "Q4_K", "IQ2_XS"])
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
        check_close(found, x.double() @ weight.dense().double().T, 1e-6)


def test_an_id_outside_the_table_is_refused(even_rows: MakeRows) -> None:
    prepared = BACKEND.prepare(weight_of("Q8_0", 5, 64, even_rows))
    assert BACKEND.ops.embed(torch.tensor([4]), prepared).shape == (1, 64)
    assert BACKEND.ops.embed(torch.tensor([], dtype=torch.int64), prepared).shape == (0, 64)
    for wrong in (-1, 5):
        with pytest.raises(IndexError, match="outside the 5 rows"):
            BACKEND.ops.embed(torch.tensor([wrong]), prepared)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("tokens", [0, 5])
def test_attention_of_rotated_queries(
    tokens: int, dtype: torch.dtype, random: torch.Generator
) -> None:
    layout = KVLayout([LayerShape(2, 40)], dtype)
    table = PageTable()
    for _ in range(20):  # more buffers than a kernel is given
        table.append(torch.full((layout.page_bytes[0],), 0xFF, dtype=torch.uint8))
    kv = PagedKV(layout.kv(0), table)
    kv.append(*torch.randn(2, 259, 2, 40, generator=random), 0)
    q = torch.randn(tokens, 6, 40, generator=random)
    found = BACKEND.ops.attention(q, kv, 254, 40**-0.5, 9, 3.0)
    assert found.shape == (tokens, 240)
    if tokens:
        check_close(found, reference.attention(q, kv, 254, 40**-0.5, 9, 3.0), 1e-5)


def test_the_matrix_names_the_kernels_that_there_are() -> None:
    for op, format in reference.KERNELS:
        if op in (*SHOWN_WEIGHT_OPS, *OTHER_OPS):
            kernel = BACKEND.kernels[op, format]
            assert has_kernel(op, format) == (kernel is not reference.KERNELS[op, format])


def test_formats_without_kernels_are_decoded(random_rows: MakeRows) -> None:
    for format in FORMATS.values():
        if has_kernel("linear", format.name):
            continue
        columns = max(format.block, 32)
        data = random_rows(format, 2, columns)
        weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (2, columns))
        found = BACKEND.ops.embed(torch.tensor([1]), BACKEND.prepare(weight))
        assert torch.equal(found.nan_to_num(), weight.dense()[1:].nan_to_num())


def test_pages_share_buffers() -> None:
    pages = [BACKEND.memory(4096) for _ in range(4)]
    assert len({page.untyped_storage().data_ptr() for page in pages}) == 3
    assert BACKEND.read_bandwidth(1 << 16) > 0
    assert math.isfinite(BACKEND.macs_per_100_ms())


# --- whole models -------------------------------------------------------------------------------


@pytest.fixture
def on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is the processor, by the stand-in of Metal's compiler."""
    monkeypatch.setattr("kernels.metal.metal_backend", lambda device: BACKEND)


@pytest.mark.usefixtures("on_the_processor")
@pytest.mark.parametrize(
    ("architecture", "format", "cache", "most"),
    [
        ("qwen3", "Q4_0", CacheType.F16, 1e-9),
        ("gemma3", "Q8_0", CacheType.Q8_0, 1e-6),
        pytest.param("llama", "Q4_K", CacheType.F32, 1e-9, marks=pytest.mark.slow),
    ],
)
def test_a_model_runs_as_on_the_reference(
    architecture: str, format: str, cache: CacheType, most: float, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture, format=format, layers=2)
    wanted = logits(load(path, backend="reference", cache=cache), 11, 12, 4)
    model = load(path, backend="metal", cache=cache)
    assert model.backends == "metal"
    assert set(model.kernels.values()) == {"metal"}
    assert model.slow == ()
    assert model.new_runner().is_recorded
    check_close(logits(model, 11, 12, 4), wanted, most)


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_processor")
def test_a_model_is_split_with_the_processor(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=3)
    wanted = logits(load(path, backend="reference"), 11, 12, 4)
    model = load(path, parts=[("reference", 1), ("metal", 0)])
    assert model.backends == "layers 1: reference, 2-3: metal"
    check_close(logits(model, 11, 12, 4), wanted, MOST_ERROR)
