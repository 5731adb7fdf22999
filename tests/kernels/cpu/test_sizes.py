"""What ops say they take of memory: exactly what a prepared weight holds, and no less in attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from chosen_backend import ops
from kernels.backends import BACKENDS
from kernels.weights.formats import FORMATS, Format
from kernels.weights.weight import Weight
from paging import stored


@pytest.mark.sweep
@pytest.mark.usefixtures("caplog")  # formats without native kernels say so in the log
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)
def test_a_prepared_weight_holds_what_was_said(backend: str, format: Format) -> None:
    for shape in ((5, 512), (256,), (3, 2, 256)):
        rows = torch.Size(shape[:-1]).numel()
        with ops.only(backend):
            weight = Weight.from_bytes(bytes(rows * format.row_bytes(shape[-1])), format, shape)
            assert ops.prepare(weight).size_bytes == ops.held_bytes(format, shape), shape


HELD = pytest.mark.parametrize("held", [torch.float32, torch.float16, torch.int8], ids=str)


@HELD
@pytest.mark.parametrize(("tokens", "context"), [(512, 4_096), (300, 300), (1, 3_000)])
def test_attention_takes_no_more_than_was_said(
    held: torch.dtype, tokens: int, context: int
) -> None:
    q = torch.randn(tokens, 8, 64)
    kv = stored(torch.randn(context, 2, 64), torch.randn(context, 2, 64), held)
    with ops.only("reference"):
        said = ops.attention_bytes(tokens, context, 8, 2, 64, held)
        taken = _peak_bytes(lambda: ops.attention(q, kv, context - tokens, scale=0.1))
    assert 0.5 * said < taken <= 1.05 * said + (1 << 18)


@pytest.mark.usefixtures("instruction_set")
@HELD
def test_native_attention_takes_no_more_for_a_longer_context(held: torch.dtype) -> None:
    short, long = (ops.attention_bytes(512, context, 8, 2, 64, held) for context in (600, 60_000))
    assert short == long
    assert 0 < ops.attention_bytes(1, 60_000, 8, 2, 64, held) - 4 * 8 * 64 < 1 << 21


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)
def test_decoding_takes_ten_bytes_a_weight_at_most(format: Format) -> None:
    weights = 1 << 18
    blocks = torch.zeros(weights // format.block, format.size, dtype=torch.uint8)
    assert _peak_bytes(lambda: format.decode(blocks)) <= 10 * weights


def _peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes of tensors alive at once while `work` runs, its result included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        kept = work()
    assert run.profiler is not None
    assert run.profiler.kineto_results is not None
    held = most = 0
    for event in run.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    del kept
    return most
