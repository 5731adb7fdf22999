"""Ops: every definition against float64 loops written from the formula, on awkward shapes.

Native kernels are held to the same, but for products, which round x: see test_native_linear.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chosen_backend import ops
from kernels.ops import Activation, Softcap
from kernels.weights.formats import FORMATS, Format, by_name
from kernels.weights.weight import Storage, Weight

LayerKV = Callable[[Format, int, int], Tensor]

pytestmark = pytest.mark.usefixtures("backend")

PATIENCE = 60.0  # seconds
TOLERANCE = 1e-10  # normalized squared error of float32 against float64: only rounding differs

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)


def normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=random)


def nmse(got: Tensor, wanted: Tensor) -> float:
    """Normalized squared error; not a number where the result holds one."""
    assert got.dtype == torch.float32
    assert got.shape == wanted.shape
    return float((got.double() - wanted).square().sum() / wanted.square().sum())


@pytest.mark.sweep
@pytest.mark.usefixtures("caplog")  # formats without native kernels say so in the log
@every_format
def test_embed_picks_rows_exactly(format: Format, random_rows: LayerKV) -> None:
    columns = 2 * format.block
    data = random_rows(format, 9, columns)
    table = Weight.from_bytes(data.numpy().tobytes(), format, (9, columns))
    ids = torch.tensor([8, 0, 3, 3])
    wanted = format.decode(data.view(-1, format.size)).view(9, columns)[ids]
    assert torch.equal(ops.embed(ids, table), wanted)
    assert torch.equal(ops.embed(ids, ops.prepare(table)), wanted)


@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 80), (2, 3, 4, 7)])
@pytest.mark.parametrize("magnitude", [1e-4, 1.0, 300.0])
def test_rms_norm_divides_by_the_root_mean_square(
    shape: tuple[int, ...], magnitude: float, random: torch.Generator
) -> None:
    x, weight = normal(random, *shape) * magnitude, normal(random, shape[-1])
    wanted = torch.empty(shape, dtype=torch.float64).view(-1, shape[-1])
    for row, values in zip(wanted, x.view(-1, shape[-1]).tolist(), strict=True):
        root = math.sqrt(math.fsum(value * value for value in values) / len(values) + 1e-6)
        for column, value in enumerate(values):
            row[column] = value / root * float(weight[column])
    assert nmse(ops.rms_norm(x, weight, 1e-6), wanted.view(shape)) <= TOLERANCE


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("shape", "pairs"), [((1, 1, 2), 1), ((5, 3, 80), 40), ((4, 2, 64), 16)])
@pytest.mark.parametrize("scale", [1.0, 1.1386])
def test_rope_turns_pairs_of_channels(
    interleaved: bool,
    shape: tuple[int, int, int],
    pairs: int,
    scale: float,
    random: torch.Generator,
) -> None:
    x = normal(random, *shape)
    positions = torch.randint(0, 8192, shape[:1], generator=random)
    frequencies = 10000.0 ** -(torch.arange(pairs) / pairs)
    wanted = x.double()
    for t in range(shape[0]):
        for i in range(pairs):
            # The angle is defined in float32, as transformers computes it; the turn is exact.
            angle = float(positions[t].float() * frequencies[i])
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + pairs)
            turned = torch.complex(x[t, :, a].double(), x[t, :, b].double())
            turned = turned * complex(math.cos(angle), math.sin(angle)) * scale
            wanted[t, :, a], wanted[t, :, b] = turned.real, turned.imag
    assert nmse(ops.rope(x, positions, frequencies, interleaved, scale), wanted) <= TOLERANCE


def test_rope_leaves_channels_beyond_the_frequencies_alone(random: torch.Generator) -> None:
    x = normal(random, 3, 2, 10)
    y = ops.rope(x, torch.tensor([1, 2, 3]), torch.tensor([1.0, 0.1]), False, 2.0)
    assert torch.equal(y[..., 4:], x[..., 4:])
    assert not torch.equal(y[..., :4], x[..., :4])


def test_rope_depends_only_on_distance(random: torch.Generator) -> None:
    q, k = normal(random, 1, 1, 64), normal(random, 1, 1, 64)
    frequencies = 10000.0 ** -(torch.arange(32) / 32)

    def score(query: int, key: int) -> float:
        turned = [
            ops.rope(x, torch.tensor([at]), frequencies, True) for x, at in ((q, query), (k, key))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(107, 100) == pytest.approx(score(7, 0), abs=1e-3)


@pytest.mark.parametrize("shape", [(1, 7), (5, 33)])
def test_gated_applies_its_activation(shape: tuple[int, int], random: torch.Generator) -> None:
    gate, up = normal(random, *shape) * 4, normal(random, *shape)
    silu, gelu = (torch.empty(shape, dtype=torch.float64) for _ in range(2))
    for i in range(shape[0]):
        for j in range(shape[1]):
            x, y = float(gate[i, j]), float(up[i, j])
            silu[i, j] = x / (1 + math.exp(-x)) * y
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            gelu[i, j] = 0.5 * x * (1 + math.tanh(inner)) * y
    assert nmse(ops.gated(gate, up, Activation.SILU), silu) <= TOLERANCE
    assert nmse(ops.gated(gate, up, Activation.GELU_TANH), gelu) <= TOLERANCE


def test_softcap_squeezes_into_its_cap(random: torch.Generator) -> None:
    x = normal(random, 4, 50) * 40
    capped = [[30 * math.tanh(value / 30) for value in row] for row in x.tolist()]
    wanted = torch.tensor(capped, dtype=torch.float64)
    one = Softcap("x", 30.0)
    assert nmse(ops.in_place(one, x, x), wanted) <= TOLERANCE
    assert float(ops.in_place(one, x * 1000, x).abs().max()) <= 30.0


def test_prepare_copies_so_that_the_file_may_close(random: torch.Generator) -> None:
    values = normal(random, 3, 4)
    wanted = values.clone()
    prepared = ops.prepare(Weight(values, by_name("F32"), (3, 4)))
    values.fill_(math.nan)
    assert torch.equal(ops.embed(torch.arange(3), prepared), wanted)


def test_prepare_stops_where_its_checkpoint_raises() -> None:
    class StopError(Exception):
        pass

    looks = 0
    caller, stopped = threading.current_thread(), threading.Event()

    def checkpoint() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            stopped.set()
            raise StopError

    def done(first: int, end: int) -> None:
        if threading.current_thread() is not caller:
            stopped.wait(PATIENCE)  # so that no helper reads all before the second look

    rows, format = 60_000, by_name("Q1_0")
    weight = Weight.from_bytes(bytes(rows * format.row_bytes(1024)), format, (rows, 1024))
    with pytest.raises(StopError):
        ops.prepare(weight, checkpoint, done)
    assert looks == 2


def test_prepare_tells_of_every_row_once_as_it_goes() -> None:
    ranges: list[tuple[int, int]] = []
    rows, format = 60_000, by_name("Q1_0")
    weight = Weight.from_bytes(bytes(rows * format.row_bytes(1024)), format, (rows, 1024))
    ops.prepare(weight, done=lambda first, end: ranges.append((first, end)))
    ranges.sort()
    assert len(ranges) > 1
    assert [first for first, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == rows


@pytest.mark.parametrize("storage", [Storage.FLOAT32, Storage.FILE])
@pytest.mark.parametrize("name", ["F32", "F16", "Q4_0", "Q1_0"])
def test_weights_without_kernels_run_on_the_reference(
    name: str, storage: Storage, random: torch.Generator, even_rows: LayerKV
) -> None:
    """So many of them that those of the file are decoded in pieces."""
    format, columns, outputs = by_name(name), 1024, 2_500
    rows = even_rows(format, outputs, columns)
    weight = Weight.from_bytes(rows.numpy().tobytes(), format, (outputs, columns))
    done: list[int] = []
    prepared = ops.prepare(weight, done=lambda first, end: done.append(end), storage=storage)
    assert done[-1] == outputs
    assert prepared.size_bytes == ops.held_bytes(format, weight.shape, storage)
    x, ids = normal(random, 3, columns), torch.tensor([0, 7, outputs - 1])
    dense = weight.dense()
    assert nmse(ops.linear(x, prepared), x.double() @ dense.double().T) <= TOLERANCE
    assert torch.equal(ops.embed(ids, prepared), dense[ids])
