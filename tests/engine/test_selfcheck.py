"""A kernel that is wrong is found when a model is loaded, refused, and the answers are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import oracle
import tiny
from engine.loader import LoadedModel, load
from kernels import ops
from kernels.dispatch import BACKENDS, DISPATCH
from kernels.weight import Weight

pytestmark = pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")


@pytest.fixture(autouse=True)
def nothing_refused() -> Iterator[None]:
    """Kernels that a test spoils are as they were after it."""
    before = dict(BACKENDS["cpu"])
    yield
    BACKENDS["cpu"].clear()
    BACKENDS["cpu"].update(before)
    DISPATCH._refused.clear()
    DISPATCH._found.clear()


def spoil(op: str, format: str, wrong: object) -> None:
    BACKENDS["cpu"][op, format] = wrong
    DISPATCH._found.clear()


def logits(model: LoadedModel) -> Tensor:
    session = model.new_session()
    (hidden,) = session.read([5, 6, 7, 8])
    return session.logits(hidden)


@pytest.mark.parametrize("format", ["Q4_K", "Q1_0", "F16"])
def test_sound_kernels_are_kept(format: str, tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf", format=format))
    assert model.fallbacks == ()
    assert not DISPATCH._refused


def test_a_product_that_is_wrong_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right = BACKENDS["cpu"]["linear", "Q4_0"]
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0")
    wanted = logits(load(path))

    def wrong(x: Tensor, weight: Weight) -> Tensor:
        return right(x, weight) * 1.1

    spoil("linear", "Q4_0", wrong)
    model = load(path)
    assert "linear on Q4_0 is wrong" in caplog.text
    assert set(model.fallbacks) == {"linear Q4_0", "embed Q4_0"}
    assert float((logits(model) - wanted).abs().max()) < 0.1 * float(wanted.abs().max())


def test_weights_that_are_packed_wrongly_are_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right = BACKENDS["cpu"]["prepare", "Q8_0"]

    def wrong(weight: Weight, *callbacks: object) -> Weight:
        return right(Weight(weight.data.roll(1, 0), weight.format, weight.shape), *callbacks)

    path = tiny.write(tmp_path / "m.gguf", format="Q8_0")
    spoil("prepare", "Q8_0", wrong)
    assert "linear Q8_0" in load(path).fallbacks
    assert "embed on Q8_0 is wrong" in caplog.text


@pytest.mark.parametrize("op", ["rms_norm", "rope", "attention", "gated"])
def test_other_ops_are_tried_too(op: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    right = BACKENDS["cpu"][op, "F32"]
    path = tiny.write(tmp_path / "m.gguf", architecture="qwen3")
    wanted = logits(load(path))

    def wrong(*operands: object) -> Tensor:
        y = right(*operands)
        return torch.where(torch.arange(y.shape[-1]) == y.shape[-1] - 1, torch.nan, y)

    spoil(op, "F32", wrong)
    model = load(path)
    assert op in model.fallbacks
    assert torch.allclose(logits(model), wanted, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", list(oracle.CASES))
def test_no_architecture_is_suspected(name: str, tmp_path: Path) -> None:
    """Whatever its parts are called in the file: fused, tied, experts, positions."""
    from engine.gguf import GGUFFile
    from engine.models.config import read_config
    from engine.selfcheck import refuse_faulty_kernels
    from sessions import open_session

    state = oracle.recorded(name)
    del state["tokens"], state["logits"]
    path = oracle.write_gguf(oracle.CASES[name], state, tmp_path / "m.gguf")
    with GGUFFile.open(path) as file:
        assert not refuse_faulty_kernels(file, read_config(file), open_session(path).model)


def test_watching_ends_with_the_block() -> None:
    seen: list[str] = []
    with ops.watched(lambda op, operands, result: seen.append(op)):
        ops.softcap(torch.ones(3), 2.0)
    ops.softcap(torch.ones(3), 2.0)
    assert seen == ["softcap"]
