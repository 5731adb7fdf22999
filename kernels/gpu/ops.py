"""Ops of a GPU backend, run one by one: checks and shapes around the launches of its kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.gpu.heads import Heads
from kernels.gpu.layout import FORMATS
from kernels.gpu.weights import WeightStore
from kernels.ops import Activation, Spans
from kernels.states.kv_pages import PagedKV, PageTable
from kernels.weights import formats
from kernels.weights.weight import Weight

WEIGHT_OPS = ("linear", "embed")  # with kernels for the formats of `kernels.gpu.layout`
OTHER_OPS = ("rms_norm", "layer_norm", "attention", "gated")


def has_kernel(op: str, format: str) -> bool:
    """Whether an op has a kernel for weights of a format, F32 where it reads none."""
    return (op in WEIGHT_OPS and format in FORMATS) or op in OTHER_OPS


H = TypeVar("H", bound=Heads)


class GpuOps(ABC, Generic[H]):
    """The ops of `kernels.ops` on a device; a backend launches kernels with contiguous operands."""

    store: WeightStore
    heads: type[H]
    macs: int  # multiply-adds in about 100 ms
    most_channels = 1 << 16  # of a head whose attention has a kernel

    def table(self, device: torch.device) -> dict[tuple[str, str], reference.Kernel]:
        """The kernels of a backend on a device; ops that it lacks run as torch operations there."""
        decoded = {
            ("prepare", format.name): partial(reference.prepare, device=device)
            for format in formats.FORMATS.values()
        }
        made = {**reference.KERNELS, **decoded, **self.store.entries(device)}
        for name in FORMATS:
            made["linear", name] = self.linear
            made["embed", name] = self.embed
        for op in (self.rms_norm, self.layer_norm, self.gated, self.attention):
            made[op.__name__, "F32"] = op
        made["attention_bytes", "F32"] = self.attention_bytes
        made["macs_per_100_ms", "F32"] = lambda: self.macs
        made["memory", "F32"] = partial(reference.memory, device=device)
        made["read_bandwidth", "F32"] = partial(reference.read_bandwidth, device=device)
        return made

    # --- launches -------------------------------------------------------------------------------

    @abstractmethod
    def dense(self, weight: Weight) -> Tensor:
        """A stored F32 matrix [N, D]."""

    @abstractmethod
    def launch_linear(self, x: Tensor, weight: Weight) -> Tensor:
        """Product of x [T, D] f32, T at least 1, with a stored matrix: [T, N] f32."""

    @abstractmethod
    def launch_embed(self, ids: Tensor, table: Weight, out: Tensor) -> None:
        """out [T, D] f32 = rows of a stored table."""

    @abstractmethod
    def launch_norm(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        centred: bool,
        out: Tensor,
    ) -> None:
        """out [T, D] f32 = RMS norm of x, or layer norm if `centred`."""

    @abstractmethod
    def launch_gated(
        self, gate: Tensor, up: Tensor | None, activation: Activation, out: Tensor
    ) -> None:
        """out = activation(gate) * up."""

    @abstractmethod
    def launch_attention(
        self,
        one: H,
        q: Tensor,
        table: PageTable,
        position: int,
        out: Tensor,
        spans: Spans = Spans.CAUSAL,
    ) -> None:
        """out [T, H * C] f32 = attention of rotated queries [T, H * C] to pages."""

    # --- ops ------------------------------------------------------------------------------------

    def linear(self, x: Tensor, weight: Weight) -> Tensor:
        """Product with a stored weight, by the number of tokens; F32 matrices are exact."""
        if not self.store.has(weight):
            return reference.linear(x, weight)
        if not len(x):
            return x.new_empty(0, weight.shape[0])
        if weight.format.name == "F32":
            return torch.nn.functional.linear(x, self.dense(weight))
        return self.launch_linear(x.contiguous(), weight)

    def exact_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """out [T, N] f32 = a product of many tokens, for an encoder: as exact as of float32."""
        if self.store.has(weight) and weight.format.name == "F32":
            torch.mm(x, self.dense(weight).T, out=out)
        else:
            out.copy_(self.linear(x, weight))

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        """Embedding rows of a stored table, bit-identical to the format's decoder."""
        if not self.store.has(weight):
            return reference.embed(ids, weight)
        out = torch.empty(len(ids), weight.columns, device=ids.device)
        if len(ids):
            if ids.min() < 0 or ids.max() >= weight.shape[0]:
                raise IndexError(f"embed: an id is outside the {weight.shape[0]} rows of the table")
            self.launch_embed(ids.contiguous(), weight, out)
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """RMS norm of every row."""
        return self._norm(x, weight, None, epsilon, centred=False)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
        """Layer norm of every row."""
        return self._norm(x, weight, bias, epsilon, centred=True)

    def _norm(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, *, centred: bool
    ) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            width = x.shape[-1]
            bias = None if bias is None else bias.contiguous()
            operands = x.view(-1, width), weight.contiguous(), bias, epsilon, centred
            self.launch_norm(*operands, out.view(-1, width))
        return out

    def gated(self, gate: Tensor, up: Tensor | None, activation: Activation) -> Tensor:
        """activation(gate) * up; activation(gate) without `up`."""
        gate = gate.contiguous()
        out = torch.empty_like(gate)
        if gate.numel():
            self.launch_gated(gate, None if up is None else up.contiguous(), activation, out)
        return out

    def attention(
        self,
        q: Tensor,
        kv: PagedKV,
        position: int,
        scale: float,
        window: int,
        cap: float,
        sinks: Tensor | None = None,
        spans: Spans = Spans.CAUSAL,
    ) -> Tensor:
        """Attention over KV pages, of queries [T, H, C] that were rotated before."""
        tokens, heads, width = q.shape
        if width > self.most_channels:
            return reference.attention(q, kv, position, scale, window, cap, sinks, spans)
        out = torch.empty(tokens, heads * width, device=q.device)
        if tokens:
            one = self.heads.rotated(kv.layer, q, scale, window, cap, sinks)
            self.launch_attention(one, q.reshape(out.shape), kv.table, position, out, spans)
        return out

    def attention_bytes(
        self, T: int, S: int, H: int, K: int, C: int, cache_dtype: torch.dtype
    ) -> int:
        """Bytes of the queries and the result; of heads without a kernel those of the definition."""
        if self.most_channels < C:
            return reference.attention_bytes(T, S, H, K, C, cache_dtype)
        return 8 * T * H * C
