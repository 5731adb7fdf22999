"""What tests of the engine share: a running engine, tiny models, and one thread for torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tiny
from engine_bench import Bench, with_printable_output
from fake_gpu import FakeGpu


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A running engine without a model."""
    made = Bench()
    yield made
    made.engine.stop()


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Tiny models with the two kinds of tokenizer, BPE and SPM."""
    path = tiny.write(tmp_path / "tiny.gguf", architecture=request.param, context=2048)
    return with_printable_output(path)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """One tiny model, where its kind makes no difference."""
    return with_printable_output(tiny.write(tmp_path / "tiny.gguf", context=2048))


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Threads cost more than the small products of hybrid models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A GPU that works, with ample memory."""
    return FakeGpu(monkeypatch)
