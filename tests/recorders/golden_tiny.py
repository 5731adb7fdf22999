"""The two-layer qwen3 models of golden/tiny.json, written again from their seeds.

Each tensor's bytes come from numpy's PCG64 seeded by (0, crc32 of its name), so a format's model
is the same on every machine; the recorded logits were computed over exactly these bytes. The order
in which a format draws its random numbers is therefore part of the record and must not change.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from kernels.weights.formats import by_name

Bytes = NDArray[np.uint8]
Random = np.random.Generator

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_WIDTH, FEED_FORWARD, VOCABULARY = 256, 2, 4, 2, 128, 768, 1024
_EMBEDDING_SPREAD = 0.02
_BRANCH_SPREAD = _EMBEDDING_SPREAD * 10 / math.sqrt(2 * LAYERS)


def write(path: Path, format: str) -> Path:
    """One of the recorded models; `format` is a key of golden/tiny.json that the engine runs."""
    row = by_name(format)
    writer = GGUFWriter(path, "qwen3")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_WIDTH)
    writer.add_value_length(HEAD_WIDTH)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    data: list[Bytes] = []
    for name, shape, spread in _tensors():
        random = np.random.Generator(np.random.PCG64([0, zlib.crc32(name.encode())]))
        count = math.prod(shape)
        if spread is None:
            norm = 1 + 0.1 * (random.random(count, dtype=np.float32) - 0.5)
            raw, kind = norm.astype("<f4").view(np.uint8), 0
        else:
            raw, kind = _MAKERS[format](random, count // row.block, spread), row.id
        data.append(np.ascontiguousarray(raw).reshape(-1))
        # A dtype of int8 keeps the writer from taking `shape` for a shape in bytes.
        writer.add_tensor_info(name, shape, np.dtype(np.int8), data[-1].size, raw_dtype=kind)  # type: ignore[arg-type]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for raw in data:
        writer.write_tensor_data(raw)
    writer.close()
    return path


def _tensors() -> Iterator[tuple[str, tuple[int, ...], float | None]]:
    """Name, shape and spread of every tensor in file order; spread None is a norm near 1."""

    def product(name: str, rows: int, columns: int, out: float = 1.0, rms: float = 1.0) -> Any:
        return f"{name}.weight", (rows, columns), out / (rms * math.sqrt(columns))

    queries, keys = HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
    yield "token_embd.weight", (VOCABULARY, WIDTH), _EMBEDDING_SPREAD
    for block in (f"blk.{index}" for index in range(LAYERS)):
        yield f"{block}.attn_norm.weight", (WIDTH,), None
        yield product(f"{block}.attn_q", queries, WIDTH)
        yield product(f"{block}.attn_k", keys, WIDTH)
        yield product(f"{block}.attn_v", keys, WIDTH)
        yield f"{block}.attn_q_norm.weight", (HEAD_WIDTH,), None
        yield f"{block}.attn_k_norm.weight", (HEAD_WIDTH,), None
        yield product(f"{block}.attn_output", WIDTH, queries, _BRANCH_SPREAD, 0.5)
        yield f"{block}.ffn_norm.weight", (WIDTH,), None
        yield product(f"{block}.ffn_gate", FEED_FORWARD, WIDTH)
        yield product(f"{block}.ffn_up", FEED_FORWARD, WIDTH)
        yield product(f"{block}.ffn_down", WIDTH, FEED_FORWARD, _BRANCH_SPREAD, 0.6)
    yield "output_norm.weight", (WIDTH,), None


def _halves(random: Random, n: int, unit: float, spread: float, either_sign: bool = False) -> Bytes:
    """n float16 scales, 25 % about the one that gives `spread` to weights of rms `unit`."""
    scale = random.random(n, dtype=np.float32) * 0.5 + 0.75
    scale *= np.float32(spread / unit / math.sqrt(1 + 0.25 / 12))
    scale = np.maximum(scale, 6e-8)
    if either_sign:
        scale *= random.integers(0, 2, n).astype(np.float32) * 2 - 1
    return scale.astype("<f2").view(np.uint8).reshape(n, 2)


def _times(halves: Bytes, factor: float) -> Bytes:
    return (halves.view("<f2").astype(np.float32) * factor).astype("<f2").view(np.uint8)


def _noise(random: Random, n: int, size: int) -> Bytes:
    return np.frombuffer(random.bytes(n * size), dtype=np.uint8).reshape(n, size)


def _float(random: Random, n: int, spread: float) -> NDArray[np.float32]:
    return random.standard_normal(n, dtype=np.float32) * np.float32(spread)


def _plain(unit: float, size: int, either_sign: bool) -> Callable[[Random, int, float], Bytes]:
    """A scale followed by `size` bytes of codes."""
    return lambda random, n, spread: np.hstack(
        [_halves(random, n, unit, spread, either_sign), _noise(random, n, size)]
    )


def _q4_1(random: Random, n: int, spread: float) -> Bytes:
    scale = _halves(random, n, math.sqrt(21.25), spread)
    return np.hstack([scale, _times(scale, -7.5), _noise(random, n, 16)])


def _k_quant(largest: int, size: int) -> Callable[[Random, int, float], Bytes]:
    """Q4_K and Q5_K: sub-scales equal to sub-minima, so that weights lie about zero."""

    def make(random: Random, n: int, spread: float) -> Bytes:
        scales = random.integers(16, 64, (n, 8), dtype=np.uint8)
        mean_square = np.mean(np.arange(16, 64.0) ** 2) * ((largest + 1) ** 2 - 1) / 12
        scale = _halves(random, n, math.sqrt(mean_square), spread)
        low, high = scales[:, :4], scales[:, 4:]
        first = low | (high >> 4) << 6
        last = (high & 15) | (high & 15) << 4
        minimum = _times(scale, largest / 2)
        return np.hstack([scale, minimum, first, first, last, _noise(random, n, size)])

    return make


def _q6_k(random: Random, n: int, spread: float) -> Bytes:
    scales = random.integers(16, 128, (n, 16), dtype=np.uint8)
    negative = random.random((n, 16), dtype=np.float32) >= 0.5
    scales = np.where(negative, -scales.astype(np.int8).view(np.uint8), scales).astype(np.uint8)
    unit = math.sqrt(np.mean(np.arange(16, 128.0) ** 2) * 341.5)
    codes = _noise(random, n, 192)
    return np.hstack([codes, scales, _halves(random, n, unit, spread)])


_TERNARY = math.sqrt(2 / 3)  # rms of -1, 0 and 1
_FOURS = np.array([a + 4 * b + 16 * c + 64 * d for a, b, c, d in np.ndindex(3, 3, 3, 3)], np.uint8)


def _four(random: Random, n: int, size: int) -> Bytes:
    """Bytes of four 2-bit codes each, none of them 3; the recorded order counts from the left."""
    return _FOURS[random.integers(0, 81, (n, size), dtype=np.uint8)]


def _q2_0(random: Random, n: int, spread: float) -> Bytes:
    scale = _halves(random, n, _TERNARY, spread)
    return np.hstack([scale, _four(random, n, 16)])


def _tq2_0(random: Random, n: int, spread: float) -> Bytes:
    codes = _four(random, n, 64)
    return np.hstack([codes, _halves(random, n, _TERNARY, spread)])


def _tq1_0(random: Random, n: int, spread: float) -> Bytes:
    fives = random.integers(0, 3**5, (n, 48), dtype=np.uint16)
    fours = random.integers(0, 3**4, (n, 4), dtype=np.uint16) * 3
    # A byte is the fraction its digits stand for, rounded up to 256ths.
    codes = -(-(np.hstack([fives, fours]).astype(np.int32) * 256) // 3**5)
    return np.hstack([codes.astype(np.uint8), _halves(random, n, _TERNARY, spread)])


_MAKERS: dict[str, Callable[[Random, int, float], Bytes]] = {
    "F32": lambda random, n, spread: _float(random, n, spread).view(np.uint8),
    "F16": lambda random, n, spread: _float(random, n, spread).astype("<f2").view(np.uint8),
    "BF16": lambda random, n, spread: (
        (_float(random, n, spread).view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    ),
    "Q4_0": _plain(math.sqrt(21.5), 16, either_sign=True),
    "Q4_1": _q4_1,
    "Q5_0": _plain(math.sqrt(85.5), 20, either_sign=True),
    "Q8_0": _plain(math.sqrt(5461.5), 32, either_sign=False),
    "Q4_K": _k_quant(15, 128),
    "Q5_K": _k_quant(31, 160),
    "Q6_K": _q6_k,
    "Q1_0": _plain(1.0, 16, either_sign=False),
    "Q2_0": _q2_0,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
}
FORMATS = tuple(_MAKERS)
