"""Attention with norms and RoPE of queries and keys, over the KV cache or a whole text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor
from torch.nn import functional

from kernels.ops.norm import checked_rms_norm
from kernels.ops.running import Pass, Segment
from kernels.ops.softcap import softcap
from kernels.ops.table import Table, dtype_name
from kernels.states.kv_pages import PAGE_TOKENS, PagedKV
from kernels.states.quantized_kv import QuantizedKV

# Causal attention of a batch, of an instruction and the buffers → [T, H*C]; None: run by ops.
Attending = Callable[["Attend", Mapping[str, Tensor]], Tensor | None]


class Spans(IntEnum):
    """What the tokens of a span of a batch see of each other; see `ImageRows`."""

    CAUSAL = 0  # what other tokens see
    WHOLE = 1  # all of the span, whatever the window
    WINDOWED = 2  # besides what other tokens see, the later tokens of the span


# Attention scores of one tile of queries, all heads: bounds memory for any length.
_SCORES = 1 << 24  # floats, 64 MiB


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """Attention: norm and RoPE of q and k, append k and v to the KV cache, attend to it.

    q [T, H*C] and k, v [T, K*C] may be overwritten. `window`, `cap`: as in the op attention. With a
    `chunk`, positions are in chunks of so many, and a token attends to its chunk alone.
    Without k and v, both "", it attends to what an earlier instruction appended to its layer.
    Without v only, the values are the keys, after norm and RoPE, as its layer says: those of latent
    attention, which has one row for both.
    With `axes`, on the host, RoPE has several positions of a token, and pair i rotates by that of axis axes[i];
    `spans` says what the tokens of the batch's spans attend to. See `ImageRows`.
    If it is not `causal`, each token attends to all tokens of its segment, as in the op
    full_attention, and nothing is cached: the segment is the whole text, and `layer` is not used.
    """

    q: str
    k: str
    v: str
    out: str  # [T, H*C]; another buffer than q, k and v
    layer: int  # index in the program's KVLayout
    head_width: int  # C
    query_norm: Tensor | None  # f32 [C]; both norms or none, without k only this one or none
    key_norm: Tensor | None
    epsilon: float
    frequencies: Tensor  # f32 [n], as in the op rope, whose `scale` is `rope_scale`
    interleaved: bool
    rope_scale: float
    scale: float
    window: int = 0
    cap: float = 0.0
    causal: bool = True
    norms_rotated: bool = False  # queries and keys are normed after RoPE, not before
    sinks: Tensor | None = None  # f32 [H]: one more score of every head, of a value of zeros
    chunk: int = 0  # tokens, a multiple of those of a page; 0: none
    axes: Tensor | None = None  # i32 [n], on the host
    spans: Spans = Spans.CAUSAL

    @property
    def values_are_keys(self) -> bool:
        """Whether it appends keys alone, which are the values too."""
        return bool(self.k) and not self.v

    def run(self, on: Pass) -> None:
        if self.causal and on.attending is not None:
            found = on.attending(self, on.buffers)
            if found is not None:
                on.set(self.out, found)
                return
        query = self._rotated(on, self.q, self.query_norm)
        key = self._rotated(on, self.k, self.key_norm) if self.k else None
        value = on.heads(self.v, self.head_width) if self.v else None
        if not self.causal:
            assert key is not None, "full attention has keys"
            assert value is not None, "full attention has values"
            on.set(self.out, self._full(on, query, key, value))
            return
        layer = on.kv.kv(self.layer)
        outs: list[Tensor] = []
        first = 0
        for segment in on.batch:
            rows = slice(first, first + len(segment.tokens))
            table = segment.tables[layer.group]
            if key is not None:
                own = None if value is None else value[rows]
                PagedKV(layer, table).append(key[rows], own, segment.position)
            options = self.scale, self.window, self.cap, self.sinks
            for piece, start, spans in self.pieces(segment):
                seen = PagedKV(layer, table.since(start // PAGE_TOKENS) if start else table)
                position = segment.position + piece.start - start
                some = query[first + piece.start : first + piece.stop]
                outs.append(checked_attention(on.ops, some, seen, position, *options, spans))
            first = rows.stop
        on.set(self.out, torch.cat(outs))

    def pieces(self, segment: Segment) -> list[tuple[range, int, Spans]]:
        """Tokens of a segment, where what they see begins, and how they see each other.

        They see the chunk of positions that they are in; without chunks, all positions.
        """
        spans = segment.images.spans if self.spans and segment.images is not None else ()
        if not spans:
            return [(piece, start, Spans.CAUSAL) for piece, start in _chunks(segment, self.chunk)]
        found: list[tuple[range, int, Spans]] = []
        at = 0
        for span in (*spans, range(len(segment.tokens), len(segment.tokens))):
            found += [(range(at, span.start), 0, Spans.CAUSAL)] if span.start > at else []
            found += [(span, 0, self.spans)] if span else []
            at = span.stop
        return found

    def _full(self, on: Pass, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        outs: list[Tensor] = []
        first = 0
        for segment in on.batch:
            rows = slice(first, first + len(segment.tokens))
            q, k, v = query[rows], key[rows], value[rows]
            outs.append(checked_full_attention(on.ops, q, k, v, self.scale, self.window))
            first = rows.stop
        return torch.cat(outs)

    def _rotated(self, on: Pass, name: str, norm: Tensor | None) -> Tensor:
        """Norm and RoPE of queries or keys: [T, H, C]."""
        x = on.heads(name, self.head_width)
        if norm is not None and not self.norms_rotated:
            x = checked_rms_norm(on.ops, x, norm, self.epsilon)
        positions = on.rope_positions(self.axes, x.device)
        x = checked_rope(on.ops, x, positions, self.frequencies, self.interleaved, self.rope_scale)
        if norm is not None and self.norms_rotated:
            x = checked_rms_norm(on.ops, x, norm, self.epsilon)
        return x


def _chunks(segment: Segment, chunk: int) -> list[tuple[range, int]]:
    """The tokens of a segment in each chunk of positions, and where the chunk begins; 0: one."""
    T, position = len(segment.tokens), segment.position
    if not chunk:
        return [(range(T), 0)]
    starts = range(position // chunk * chunk, position + T, chunk)
    return [
        (range(max(start - position, 0), min(start + chunk - position, T)), start)
        for start in starts
    ]


def checked_rope(
    ops: Table,
    x: Tensor,
    positions: Tensor,
    frequencies: Tensor,
    interleaved: bool,
    scale: float = 1.0,
) -> Tensor:
    """Rotary position embedding (RoPE) of x [T, H, C] f32 → [T, H, C] f32.

    positions [T] i64, or [T, n] with one for each pair, as RoPE of images has; frequencies [n]
    f32. The first 2n channels are rotated, pair i by its position * frequencies[i] radians,
    computed in float32; the others are copied. Pairs are channels (2i, 2i+1) when `interleaved`
    (GGUF's llama), else (i, i+n). `scale` multiplies cosine and sine (YaRN's attention factor).
    Source: https://arxiv.org/abs/2104.09864 section 3.4.2
    """
    each = (x.shape[0], frequencies.shape[-1])
    if x.dim() != 3 or positions.shape not in (x.shape[:1], each):
        raise ValueError(
            f"rope: positions {list(positions.shape)} do not fit x {list(x.shape)}, [T, H, C]"
        )
    if frequencies.dim() != 1 or 2 * frequencies.shape[0] > x.shape[2]:
        raise ValueError(
            f"rope: frequencies {list(frequencies.shape)} rotate more channels than x "
            f"{list(x.shape)} has"
        )
    if x.dtype != torch.float32 or frequencies.dtype != torch.float32:
        raise ValueError(
            f"rope: x is {dtype_name(x)}, frequencies {dtype_name(frequencies)}, not float32"
        )
    if positions.dtype != torch.int64:
        raise ValueError(f"rope: positions are {dtype_name(positions)}, not int64")
    return ops.find("rope")(x, positions, frequencies, interleaved, scale)


def checked_attention(
    ops: Table,
    q: Tensor,
    kv: PagedKV,
    position: int,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    spans: Spans = Spans.CAUSAL,
) -> Tensor:
    """Causal attention over KV pages: q [T, H, C] f32, K heads of `kv` → [T, H*C] f32.

    Query t is at `position` + t and attends to the keys up to that position: to all of them, or to
    the last `window` when that is not 0. By `spans` the T tokens may be a span. Head h reads key/value head h // (H / K). Scores are
    multiplied by `scale`, then capped at ±`softcap` when that is not 0. `sinks` [H] f32 are one
    more score of each head, whose value is 0: it only takes a share. Masked rows of pages may
    have any contents, NaN included. Memory is bounded for any T, except for the reference's
    float32 copies of the visible rows.
    Source: https://arxiv.org/abs/2305.13245; cap: https://arxiv.org/abs/2408.00118 section 2;
    sinks: https://arxiv.org/abs/2508.10925 section 2.2
    """
    shape, pages = kv.layer.shape, kv.table.pages
    if q.dim() != 3 or q.shape[2] != shape.head_width or q.shape[1] % shape.kv_heads:
        raise ValueError(
            f"attention: q is [T, H, C], got {list(q.shape)} for {shape.kv_heads} key/value heads "
            f"of width {shape.head_width}"
        )
    if position < 0 or position + q.shape[0] > PAGE_TOKENS * len(pages):
        raise ValueError(
            f"attention: {q.shape[0]} queries from position {position} need more than "
            f"{len(pages)} pages of {PAGE_TOKENS} keys"
        )
    if q.dtype != torch.float32:
        raise ValueError(f"attention: q is {dtype_name(q)}, not float32")
    if window < 0 or softcap < 0:
        raise ValueError(f"attention: window {window} and softcap {softcap} cannot be negative")
    first = max(position - window + 1, 0) if window else 0
    visible = pages[first // PAGE_TOKENS : -(-(position + q.shape[0]) // PAGE_TOKENS)]
    if any(page is None for page in visible):
        raise ValueError(f"attention: a page that is visible from position {position} is missing")
    if sinks is None and not spans:
        return ops.find("attention")(q, kv, position, scale, window, softcap)
    if sinks is not None and (sinks.shape != q.shape[1:2] or sinks.dtype != torch.float32):
        raise ValueError(
            f"attention: sinks {dtype_name(sinks)} {list(sinks.shape)} do not fit q {list(q.shape)}"
        )
    return ops.find_any("attention")(q, kv, position, scale, window, softcap, sinks, spans)


def checked_full_attention(
    ops: Table, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int = 0
) -> Tensor:
    """Attention in both directions: q [T, H, C], k and v [T, K, C] f32 → [T, H*C] f32.

    Each of the T tokens of a text attends to all of them, or to those at most `window` // 2
    away when that is not 0. Head h reads key/value head h // (H / K). Scores are multiplied by
    `scale`.
    Source: https://arxiv.org/abs/1810.04805 section 3
    """
    if q.dim() != 3 or k.shape != v.shape or q[:, :1].shape != k[:, :1].shape:
        shapes = f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}"
        raise ValueError(f"full_attention: {shapes} are not [T, H, C] and twice [T, K, C]")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"full_attention: {q.shape[1]} heads cannot share {k.shape[1]}")
    for tensor in (q, k, v):
        if tensor.dtype != torch.float32:
            raise ValueError(f"full_attention: an operand is {dtype_name(tensor)}, not float32")
    if window < 0:
        raise ValueError(f"full_attention: the window {window} cannot be negative")
    return ops.find("full_attention")(q, k, v, scale, window)


def checked_attention_bytes(
    ops: Table,
    tokens: int,
    context: int,
    heads: int,
    kv_heads: int,
    head_width: int,
    cache_dtype: torch.dtype,
) -> int:
    """Maximum bytes that `attention` allocates for `tokens` queries, its result included.

    `context` is the number of keys; `cache_dtype` is float32, float16 or int8.
    """
    return ops.find("attention_bytes")(tokens, context, heads, kv_heads, head_width, cache_dtype)


def rope(
    x: Tensor, positions: Tensor, frequencies: Tensor, interleaved: bool, scale: float
) -> Tensor:
    """RoPE: rotate each pair (a, b) of channels by the angle position * frequency of that pair."""
    pairs = frequencies.shape[0]
    angles = positions.to(torch.float32).view(len(x), 1, -1) * frequencies  # [T, 1, pairs]
    cos, sin = angles.cos() * scale, angles.sin() * scale
    rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        y = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = rotated[..., :pairs], rotated[..., pairs:]
        y = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return torch.cat((y, rest), dim=-1) if rest.shape[-1] else y


def attention(
    q: Tensor,
    kv: PagedKV,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None = None,
    spans: Spans = Spans.CAUSAL,
) -> Tensor:
    """Causal softmax attention, in tiles of queries."""
    T, H, C = q.shape
    first = max(position - window + 1, 0) if window else 0
    k, v = (
        rows.dense() if isinstance(rows, QuantizedKV) else rows.to(torch.float32)
        for rows in kv.rows(first, position + T)
    )
    y = q.new_empty(T, H * C)
    step = max(_SCORES // (H * (position + T)), 1)
    for start in range(0, T, step):
        tile = q[start : start + step]
        at = position - first + start
        span = range(position - first, position - first + T), spans
        y[start : start + step] = _attend(tile, k, v, at, scale, window, cap, sinks, span)
    return y


def full_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Softmax attention of every token to all, or to those at most window // 2 away."""
    T, H, C = q.shape
    group = H // k.shape[1]
    k, v = (each.repeat_interleave(group, 1).transpose(0, 1) for each in (k, v))  # [H, T, C]
    y = q.new_empty(T, H, C)
    step = max(_SCORES // (H * T), 1)
    at = torch.arange(T, device=q.device)
    for start in range(0, T, step):
        tile = q[start : start + step].transpose(0, 1)
        near = (at[start : start + step, None] - at).abs() <= window // 2 if window else None
        found = functional.scaled_dot_product_attention(
            tile[None], k[None], v[None], near, scale=scale
        )
        y[start : start + step] = found[0].transpose(0, 1)
    return y.flatten(1)


def attention_bytes(T: int, S: int, H: int, K: int, C: int, cache_dtype: torch.dtype) -> int:
    """Bytes of the largest tile's mask and queries, float32 copies of K and V, and the result."""
    tile = min(max(_SCORES // (H * S), 1), T)
    # Bool, then for each head of a group bool and float32; a single query needs none.
    mask = tile * S * (1 + 5 * H // K) if tile > 1 else 0
    # Rows are copied from their pages, joined and decoded to float32; the Hadamard transform of
    # int8 takes two more float32 copies.
    copies = {torch.float32: 4, torch.float16: 4, torch.int8: 6}[cache_dtype] * S * K * C
    return mask + 4 * (copies + (3 * tile + T) * H * C)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None,
    span: tuple[range, Spans],
) -> Tensor:
    """Attention of one tile of queries [t, H, C] over the keys visible to any of them.

    `span`: the keys of the span that they are in, if they are in one.
    """
    t, H, C = q.shape
    K = k.shape[1]
    first = max(position - window + 1, 0) if window else 0
    end = position + t
    own, spans = span
    if spans:
        end = own.stop
    if spans is Spans.WHOLE:
        first = min(first, own.start)
    k, v = k[first:end].transpose(0, 1), v[first:end].transpose(0, 1)  # [K, s, C]
    # Grouped-query attention: heads that share keys become further queries, [K, G*t, C].
    q = q.view(t, K, H // K, C).permute(1, 2, 0, 3).reshape(K, -1, C)
    mask = None  # a single query attends to every key of the slice
    if t > 1 or spans:
        mask = _mask(t, range(first, end), position, window, q.device, span).repeat(H // K, 1)
    if cap or sinks is not None:
        scores = q @ k.mT * scale  # [K, G*t, s]
        scores = softcap(scores, cap) if cap else scores
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        if sinks is not None:
            sink = sinks.view(K, -1, 1).repeat_interleave(t, 1)  # [K, G*t, 1]
            scores = torch.cat((scores, sink), -1)
        y = scores.softmax(-1)[..., : v.shape[1]] @ v
    else:  # the same without a cap and sinks: torch's fused kernel, in one pass over the keys
        y = functional.scaled_dot_product_attention(q[None], k[None], v[None], mask, scale=scale)
    return y.view(K, -1, t, C).permute(2, 0, 1, 3).reshape(t, H * C)


def _mask(
    t: int,
    keys: range,
    position: int,
    window: int,
    device: torch.device,
    span: tuple[range, Spans],
) -> Tensor:
    """Causal and window mask of t queries over `keys`, with what they see of a span: bool [t, s]."""
    query = torch.arange(position, position + t, device=device)[:, None]
    key = torch.arange(keys.start, keys.stop, device=device)
    mask = key <= query
    mask = mask & (query - key < window) if window else mask
    own, spans = span
    if spans:
        first = query if spans is Spans.WINDOWED else own.start
        mask |= (first <= key) & (key < own.stop)
    return mask
