"""Recorded decode steps of hybrid models: states in pages, launches per layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import every_architecture
import gpu_decoding
import hybrids
from engine.adapters.stack import NO_ADAPTERS
from engine.cli.quantize import quantize
from engine.core.runner import Runner
from engine.loading.loader import load
from engine.messages import CacheType
from engine.models.forward import forward_program
from engine.state.pages import PagePool
from engine.state.sequence import Sequence
from gpu_results import check_close
from kernels import cuda
from kernels.backend.backend import Backend
from kernels.cuda.program import Recorded
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import PAGE_TOKENS
from launch_names import launches

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("few_programs")]

BACKEND = cuda.backend_on(torch.device("cpu"))
MOST_ERROR = 5e-4


def hybrid(name: str, backend: Backend = BACKEND) -> tuple[Program, PagePool]:
    decoder = hybrids.HYBRIDS[name](48, backend)
    pool = Runner(decoder, CacheType.F32).new_pool()
    return forward_program(decoder, pool.layout, NO_ADAPTERS), pool


def sequence(pool: PagePool, length: int) -> Sequence:
    """A sequence of so many tokens whose keys, values and states are zeros."""
    one = Sequence(pool, 600)
    if length:
        one.reserve(length)
        for table in one.segment([3]).tables:
            for page in table.pages:
                assert page is not None
                page.zero_()
        one.commit([3] * length)
    return one


@pytest.mark.parametrize("name", hybrids.HYBRIDS)
def test_steps_of_hybrids(name: str) -> None:
    """Of several sequences, on both sides of the end of a page, and run again."""
    program, pool = hybrid(name)
    recorded = BACKEND.record(program)
    assert isinstance(recorded, Recorded)
    interpreter = Interpreter(program, BACKEND.ops)
    sequences = [sequence(pool, length) for length in (PAGE_TOKENS - 1, 3, 0)]
    for token in (5, 6):
        for one in sequences:
            one.reserve(1)
        segments = [one.segment([token]) for one in sequences]
        wanted = interpreter.step(segments)
        check_close(recorded.step(segments), wanted, MOST_ERROR)
        for one in sequences:
            one.commit([token])


@pytest.mark.parametrize("name", ["recurrent", "convolutional"])
def test_prompts_of_hybrids(name: str) -> None:
    """Tokens over the end of a page, by the backend's ops and by the reference."""
    hidden = []
    for backend in (BACKEND, hybrids.EXACT):
        program, pool = hybrid(name, backend)
        one = sequence(pool, PAGE_TOKENS - 5)
        one.reserve(9)
        hidden.append(Interpreter(program, backend.ops).hidden([one.segment(list(range(9)))]))
    check_close(hidden[0], hidden[1], MOST_ERROR)


DELTA_NET = ["products", "products", "convolution_step", "recurrence_step", "heads"]
GATED_ATTENTION = ["products", "products", "attend_step", "heads"]
MLP = ["product_added", "products_gated", "product_added"]
CONVOLUTION = ["products", "convolution_step", *MLP]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "layers"),
    [("qwen35", [*DELTA_NET, *MLP, *GATED_ATTENTION, *MLP]), ("lfm2", CONVOLUTION)],
)
def test_launches_of_quantized_layers(
    architecture: str, layers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No launch quantizes activations: the kernel that makes them does."""
    monkeypatch.setattr("kernels.cuda.cuda_backend", lambda device: BACKEND)
    path = every_architecture.write(architecture, tmp_path / "f.gguf", context=64, window=16)
    quantize(path, tmp_path / "m.gguf", "Q8_0")
    model = load(tmp_path / "m.gguf", backend="cuda", cache=CacheType.F16, ids_only=True)
    decoding = gpu_decoding.Decoding(
        model, BACKEND, lambda program: Recorded(program, BACKEND.ops, BACKEND.device), MOST_ERROR
    )
    one = decoding.sequence(5, 6)
    launched = launches(monkeypatch)
    decoding.step(decoding.recorded, [one], 9)
    assert launched[:2] == ["embedded", "norm"]
    shown = " ".join(launched)
    assert " ".join(layers) in shown, launched
