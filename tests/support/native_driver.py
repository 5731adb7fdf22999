"""Test cases for the native kernel driver (tests/native/driver.cpp): operands and expected results.

The driver runs kernels in a separate process, so that an out-of-bounds read ends only that process,
and so that it can run under a sanitizer or an emulator of another CPU.
"""

from __future__ import annotations

import math
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from random import Random

import torch
from torch import Tensor

import blocks
import paging
from kernels.backend import reference
from kernels.cpu import library
from kernels.cpu.schema import NativeActivation
from kernels.ops import Activation
from kernels.ops.softcap import softcap
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV
from kernels.weights.formats import Format
from kernels.weights.weight import decode_rows

DRIVER = Path(__file__).parents[1] / "native" / "driver.cpp"
TOKENS, ROWS, BLOCKS = (1, 2, 7, 13, 33), (1, 15, 16, 17, 64, 65, 100), (1, 2, 3, 9)
COLUMNS = (1, 2, 3, 9, 31, 33, 100)  # for formats whose block is one weight
COUNTS = (1, 2, 15, 16, 17, 63, 65, 300, 5000)
# Tolerances of the normalized squared error.
# Of a whole layer with 8-bit activations: half of the cases agree to 1e-13, but a value near a
# rounding boundary can get the neighbouring code, which moved the logits by up to 2e-4.
_LAYER = 5e-3
CACHES = (torch.float32, torch.float16, torch.int8)  # enum nk_cache
EXACT = 1e-10  # only the order of additions differs
INTEGER = 1e-6  # attention over 8-bit codes: queries and weights are quantized too


class Op(IntEnum):
    """enum Op of driver.cpp."""

    LINEAR, ROWS_OF, RMS_NORM, ROPE, GATED, SOFTCAP, ATTENTION, RUN, FULL_ATTENTION = range(9)


@dataclass(frozen=True)
class Case:
    """One call: parameters and operands as driver.cpp lists them."""

    op: Op
    name: str  # op, format and sizes, for failure messages
    parameters: tuple[int | float, ...]
    operands: tuple[Tensor | None, ...]
    expected: Tensor  # f64
    tolerance: float  # squared error allowed, as a share of `energy`
    energy: float = 0.0  # 0: the sum of squares of `expected`

    def check(self, result: bytes) -> None:
        """Assert that the driver's result is within the tolerance."""
        found = torch.frombuffer(bytearray(result), dtype=torch.float32).double()
        expected = self.expected.flatten()
        assert found.shape == expected.shape, self.name
        energy = self.energy or float(expected.square().sum())
        error = float((found - expected).square().sum())
        assert error <= self.tolerance * energy, f"{self.name}: {error / (energy or 1)}"


def instruction_sets(program: Sequence[str | Path]) -> list[str]:
    """Names of the instruction sets the driver supports on this CPU, by their number."""
    done = subprocess.run([*program, "--names"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def run(
    program: Sequence[str | Path], isa: int, threads: int, cases: Sequence[Case], folder: Path
) -> list[bytes]:
    """Run all cases in one process, check every result and return the results."""
    sent, received = folder / "cases", folder / "results"
    sent.write_bytes(b"".join(_encoded(case, isa, threads) for case in cases))
    ran = subprocess.run(
        [*program, sent, received], capture_output=True, text=True, errors="replace", check=False
    )
    # Results are written one by one, so their number shows which case crashed the driver.
    results = list(_decoded(received.read_bytes()))
    crashed = cases[len(results)].name if len(results) < len(cases) else "the end"
    assert ran.returncode == 0, f"status {ran.returncode} at {crashed} or later: {ran.stderr}"
    assert len(results) == len(cases)
    for case, (status, result) in zip(cases, results, strict=True):
        assert status == 0, f"{case.name}: status {status}"
        case.check(result)
    return [result for _, result in results]


def _encoded(case: Case, isa: int, threads: int) -> bytes:
    numbers = [
        struct.unpack("<I", struct.pack("<f", value))[0] if isinstance(value, float) else value
        for value in case.parameters
    ]
    head = [int(case.op), isa, threads, len(numbers), *numbers, len(case.operands)]
    parts = [struct.pack(f"<{len(head)}q", *head)]
    for operand in case.operands:
        data = b"" if operand is None else operand.contiguous().numpy().tobytes()
        parts += [struct.pack("<q", len(data)), data]
    return b"".join(parts)


def _decoded(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 16 <= len(data):
        status, size = struct.unpack_from("<2q", data, at)
        if at + 16 + size > len(data):
            return
        yield status, data[at + 16 : at + 16 + size]
        at += 16 + size


# --- cases --------------------------------------------------------------------------------------


class CaseGenerator:
    """Generates random test cases from one random number generator."""

    def __init__(self, random: torch.Generator) -> None:
        self._random = random
        self._pick = Random(random.initial_seed())

    def some(self, each: int) -> list[Case]:
        """`each` cases of every format and of every other op."""
        ops = (self.rms_norm, self.rope, self.gated, self.softcap)
        ops += (self.attention, self.full_attention)
        made = [self.linear(format) for format in blocks.PACKED.values() for _ in range(each)]
        made += [
            one(format) for one in (self.rows_of, self.run) for format in blocks.PACKED.values()
        ]
        return made + [op() for op in ops for _ in range(3 * each)]

    def linear(self, format: Format) -> Case:
        tokens = self._pick.choice(TOKENS)
        rows, columns, data, dense = self._matrix(format)
        x = self._normal(tokens, columns)
        exact = x.double()
        return Case(
            Op.LINEAR,
            f"linear {format.name} [{tokens}, {columns}] x [{rows}, {columns}]",
            (format.id, rows, columns, tokens),
            (data, x),
            exact @ dense.T,
            # The mean error of few results varies more than that of many.
            format.tolerance * (1 + 40 / (tokens * rows)),
            float((exact.square() @ dense.square().T).sum()) or 1.0,
        )

    def rows_of(self, format: Format) -> Case:
        rows, columns, data, dense = self._matrix(format)
        ids = torch.randint(0, rows, (self._pick.choice((1, 5)),), generator=self._random)
        name = f"rows_of {format.name} [{rows}, {columns}]"
        parameters = format.id, rows, columns, len(ids)
        return Case(Op.ROWS_OF, name, parameters, (data, ids), dense[ids], 0.0)

    def rms_norm(self) -> Case:
        tokens, width = self._pick.choice(TOKENS), self._pick.choice(COUNTS)
        x, weight = self._normal(tokens, width), self._normal(width)
        expected = reference.rms_norm(x.double(), weight.double(), 1e-5)
        operands = x, weight
        return Case(
            Op.RMS_NORM,
            f"rms_norm [{tokens}, {width}]",
            (tokens, width, 1e-5),
            operands,
            expected,
            EXACT,
        )

    def rope(self) -> Case:
        tokens, heads = self._pick.choice(TOKENS), self._pick.choice((1, 3, 9))
        width = self._pick.choice((2, 6, 32, 64, 80, 128))
        pairs, interleaved = self._pick.choice((width // 2, 1)), self._pick.choice((0, 1))
        x, frequencies = self._normal(tokens, heads, width), self._normal(pairs)
        positions = torch.randint(0, 200, (tokens,), generator=self._random)
        return Case(
            Op.ROPE,
            f"rope [{tokens}, {heads}, {width}] {pairs} pairs, interleaved {interleaved}",
            (tokens, heads, width, pairs, interleaved, 1.25),
            (x, positions, frequencies),
            reference.rope(x, positions, frequencies, bool(interleaved), 1.25).double(),
            EXACT,
        )

    def gated(self) -> Case:
        count, kind = self._pick.choice(COUNTS), self._pick.choice(list(NativeActivation))
        gate, up = self._normal(count), self._normal(count)
        activation = Activation[NativeActivation(kind).name]
        expected = reference.gated(gate.double(), up.double(), activation)
        return Case(Op.GATED, f"gated [{count}]", (count, kind), (gate, up), expected, EXACT)

    def softcap(self) -> Case:
        count = self._pick.choice(COUNTS)
        x = self._normal(count) * 40
        expected = softcap(x.double(), 30.0)
        return Case(Op.SOFTCAP, f"softcap [{count}]", (count, 30.0), (x,), expected, EXACT)

    def attention(self) -> Case:
        tokens, position = self._pick.choice((1, 2, 5, 40)), self._pick.choice((0, 1, 31, 300))
        kv_heads, group = self._pick.choice((1, 2)), self._pick.choice((1, 3, 8))
        width, type = self._pick.choice((16, 20, 64, 80)), self._pick.choice((0, 1, 2))
        window, cap = self._pick.choice((0, 1, 17)), self._pick.choice((0.0, 5.0))
        sinks = self._normal(kv_heads * group) if self._pick.choice((False, True)) else None
        positions, heads = position + tokens, kv_heads * group
        q, k, v = (
            self._normal(n, h, width) for n, h in ((tokens, heads), *2 * [(positions, kv_heads)])
        )
        scale = 1 / math.sqrt(width)
        layout = KVLayout((LayerShape(kv_heads, width),), CACHES[type])
        layer, table = layout.layers[0], paging.tables(layout, positions)[0]
        kv = PagedKV(layer, table)
        kv.append(k, v, 0)
        pages = torch.cat([page for page in table.pages if page is not None])
        sizes = tokens, heads, kv_heads, width, position, type, window, scale, cap
        places = layer.keys, layer.key_scales, layer.values, layer.value_scales
        expected = _attention(
            q, *map(paging.exact, kv.rows(0, positions)), position, scale, window, cap, sinks
        )
        return Case(
            Op.ATTENTION,
            f"attention {sizes}, sinks {sinks is not None}",
            (*sizes, layout.page_bytes[0], *places),
            (q, pages, sinks),
            expected,
            INTEGER if type == 2 else EXACT,
        )

    def full_attention(self) -> Case:
        tokens, window = self._pick.choice((1, 2, 5, 40, 300)), self._pick.choice((0, 1, 17))
        kv_heads, group = self._pick.choice((1, 2)), self._pick.choice((1, 3))
        width = self._pick.choice((16, 20, 64))
        q = self._normal(tokens, kv_heads * group, width)
        k, v = self._normal(tokens, kv_heads, width), self._normal(tokens, kv_heads, width)
        sizes = tokens, kv_heads * group, kv_heads, width, window, 0.2
        expected = reference.full_attention(q.double(), k.double(), v.double(), 0.2, window)
        name = f"full attention {sizes}"
        return Case(Op.FULL_ATTENTION, name, sizes, (q, k, v), expected, EXACT)

    def run(self, format: Format) -> Case:
        """One layer and the head as a recorded program: a prefill, then a decode step."""
        width, heads, kv_heads, head_width, inner, vocabulary = 256, 4, 2, 64, 512, 80
        type, tokens = self._pick.choice((0, 1, 2)), self._pick.choice((2, 7, 14))
        query, key = heads * head_width, kv_heads * head_width
        shapes = ((vocabulary, width), (query, width), (key, width), (key, width), (width, query))
        shapes += ((inner, width), (inner, width), (width, inner))
        data = [
            blocks.similar_scale_blocks(format, n * d // format.block, self._random)
            for n, d in shapes
        ]
        dense = [
            decode_rows(each.view(n, -1), format, d)
            for each, (n, d) in zip(data, shapes, strict=True)
        ]
        # Keep values small, so that an f16 cache can store them for every weight format.
        norms = self._normal(3, width) / (float(dense[3].square().mean().sqrt()) * width**0.5)
        # Keep scores small, so that no softmax is one-hot: rounding of x would then choose the key.
        heads_norms = [0.3 * torch.rand(head_width, generator=self._random) for _ in "qk"]
        frequencies = torch.rand(head_width // 2, generator=self._random)
        ids = torch.randint(0, vocabulary, (tokens,), generator=self._random)
        group = library.native().nk_activation_group(format.id)
        expected = _layer(dense, norms, heads_norms, frequencies, ids, type, group)
        cap = 3 * float(expected.square().mean().sqrt())
        sizes = width, heads, kv_heads, head_width, inner, vocabulary, type, tokens
        return Case(
            Op.RUN,
            f"run {format.name} {tokens} tokens, cache {type}",
            (format.id, 0, 0, *sizes, cap),
            (*data, norms, *heads_norms, frequencies, ids),
            softcap(expected, cap),
            _LAYER if type == 2 or group else 1e-6,
        )

    def _matrix(self, format: Format) -> tuple[int, int, Tensor, Tensor]:
        """A random matrix: rows, columns, packed bytes, and the decoded weights in f64."""
        rows = self._pick.choice(ROWS)
        columns = (
            self._pick.choice(COLUMNS)
            if format.block == 1
            else format.block * self._pick.choice(BLOCKS)
        )
        made = blocks.similar_scale_blocks(
            format, (rows + 1) * columns // format.block, self._random
        )
        data = made.view(rows + 1, -1)[1:]  # drop the row whose first block is all zero
        return rows, columns, data, decode_rows(data.contiguous(), format, columns).double()

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._random)


def _layer(
    dense: list[Tensor],
    norms: Tensor,
    head_norms: list[Tensor],
    frequencies: Tensor,
    ids: Tensor,
    type: int,
    group: int,
) -> Tensor:
    """Logits f64 [T, V] of one layer with the matrices `dense`, as driver.cpp records it.

    Inputs of matrix products are quantized to 8 bits in groups of `group`, as the kernels do; 0:
    not at all. Without that, a softmax with nearly equal scores could differ by any amount.
    """
    table, query, key, value, output, gate, up, down = (each.double() for each in dense)
    tokens, head_width = len(ids), len(head_norms[0])
    x, positions = table[ids], torch.arange(tokens)
    normed = _quantized_activations(reference.rms_norm(x, norms[0].double(), 1e-5), group)
    q, k = (
        reference.rope(
            reference.rms_norm(
                (normed @ weight.T).view(tokens, -1, head_width), norm.double(), 1e-5
            ),
            positions,
            frequencies,
            False,
            1.0,
        )
        for weight, norm in zip((query, key), head_norms, strict=True)
    )
    v = (normed @ value.T).view(tokens, -1, head_width)
    cached = paging.stored(k.float(), v.float(), CACHES[type]).rows(0, tokens)
    attended = _attention(q, *map(paging.exact, cached), 0, 0.125, 0, 0.0, None)
    x = x + _quantized_activations(attended, group) @ output.T
    normed = _quantized_activations(reference.rms_norm(x, norms[1].double(), 1e-5), group)
    inner = reference.gated(normed @ gate.T, normed @ up.T, Activation.SILU)
    x = x + _quantized_activations(inner, group) @ down.T
    normed = _quantized_activations(reference.rms_norm(x, norms[2].double(), 1e-5), group)
    return normed @ table.T


def _quantized_activations(x: Tensor, group: int) -> Tensor:
    """Activations after 8-bit quantization with a scale per group, f64; unchanged for group 0."""
    if not group:
        return x
    parts = x.float().unflatten(-1, (-1, group))
    scales = parts.abs().amax(-1, keepdim=True) / 127
    codes = (parts * torch.where(scales > 0, 1 / scales, 0.0)).round()
    return (codes * scales).flatten(-2).double()


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None,
) -> Tensor:
    """Attention by its definition in double precision, [T, H*C]."""
    tokens, heads = q.shape[:2]
    group = heads // k.shape[1]
    query = torch.arange(position, position + tokens)[:, None]
    key = torch.arange(k.shape[0])
    in_window = (query - key < window) if window else torch.ones((), dtype=torch.bool)
    visible = (key <= query) & in_window
    scores = torch.einsum("thc,shc->hts", q.double(), k.repeat_interleave(group, 1)) * scale
    scores = cap * torch.tanh(scores / cap) if cap else scores
    scores = scores.masked_fill(~visible, -math.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.double()[:, None, None].expand(-1, tokens, 1)), dim=-1)
    weights = scores.softmax(-1)[..., : k.shape[0]]
    return torch.einsum("hts,shc->thc", weights, v.repeat_interleave(group, 1)).reshape(tokens, -1)
