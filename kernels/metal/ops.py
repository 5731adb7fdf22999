"""Ops of the Metal backend, run one by one."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.gpu.ops import GpuOps
from kernels.metal import arena, elementwise, products, weights
from kernels.metal import attention as pages
from kernels.metal.arena import Arena
from kernels.metal.attention import MetalHeads
from kernels.ops import Activation, Spans
from kernels.states.kv_pages import PagedKV, PageTable
from kernels.weights.weight import Weight


class MetalOps(GpuOps[MetalHeads]):
    """Launches of the shaders."""

    store = weights.STORE
    heads = MetalHeads
    macs = 50_000_000_000  # at 1 TFLOP/s, about half of what the slowest GPU of Apple has

    def table(self, device: torch.device) -> dict[tuple[str, str], reference.Kernel]:
        memory = Arena(partial(reference.memory, device=device)).take
        more = {("memory", "F32"): memory, ("attention_any", "F32"): self.attention_any}
        return super().table(device) | more

    def attention_any(
        self,
        q: Tensor,
        kv: PagedKV,
        position: int,
        scale: float,
        window: int,
        cap: float,
        sinks: Tensor | None,
        spans: Spans,
    ) -> Tensor:
        """Attention of spans; with sinks, which no shader has, the definition."""
        operands = q, kv, position, scale, window, cap, sinks, spans
        return self.attention(*operands) if sinks is None else reference.attention(*operands)

    def dense(self, weight: Weight) -> Tensor:
        return weights.operand(weight).data.view(torch.float32).view(weight.shape[0], -1)

    def launch_linear(self, x: Tensor, weight: Weight) -> Tensor:
        operand, tokens = weights.operand(weight), len(x)
        y = torch.empty(tokens, operand.rows, device=x.device)
        if tokens > products.FEW:
            products.linear_many(x, operand, y, tokens)
        else:
            products.linear(x, [operand], [y], tokens)
        return y

    def launch_embed(self, ids: Tensor, table: Weight, out: Tensor) -> None:
        products.embed(ids, weights.operand(table), out)

    def launch_norm(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        centred: bool,
        out: Tensor,
    ) -> None:
        elementwise.norm_launch(x, weight, bias, epsilon, centred, out)()

    def launch_gated(
        self, gate: Tensor, up: Tensor | None, activation: Activation, out: Tensor
    ) -> None:
        elementwise.gated_launch(gate, up, activation, out)()

    def launch_attention(
        self,
        one: MetalHeads,
        q: Tensor,
        table: PageTable,
        position: int,
        out: Tensor,
        spans: Spans = Spans.CAUSAL,
    ) -> None:
        count = len(table)
        found = arena.places([table], count) or arena.places([arena.copied(table)], count)
        assert found is not None, "pages of one buffer"
        entries = torch.tensor(found.entries[0]).to(q.device)
        pages.attend_rows(one, q, entries, found.chunks, position, out, spans)
