"""Ops of the CUDA backend, run one by one."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.cuda import attention as pages
from kernels.cuda import launch, states, weights
from kernels.cuda.attention import CudaHeads
from kernels.gpu.ops import GpuOps
from kernels.ops import Activation, Kernel, Recurrence, Spans
from kernels.states.kv_pages import PageTable
from kernels.weights.weight import Weight


class CudaOps(GpuOps[CudaHeads]):
    """Launches of the Triton kernels."""

    store = weights.STORE
    heads = CudaHeads
    macs = 1_000_000_000_000  # at 20 TFLOP/s, which any GPU that Triton supports has
    most_channels = pages.MOST_CHANNELS

    def table(self, device: torch.device) -> dict[tuple[str, str], Kernel]:
        """Those of all GPUs, and of layers with a state of fixed size."""
        more = {
            "attention_any": self.attention,
            "gated_any": self.gated_any,
            "short_conv": self.short_conv,
            "recurrence": self.recurrence,
            "recurrence_any": self.recurrence,
        }
        return super().table(device) | {(name, "F32"): op for name, op in more.items()}

    def dense(self, weight: Weight) -> Tensor:
        return weights.operand(weight).arrays[0].view(weight.shape[0], weight.columns)

    def exact_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """Weights of halves are multiplied as they are, others as in a prompt."""
        if self.store.has(weight) and weight.format.name in ("F16", "BF16"):
            launch.linear_halves(x, self.dense(weight), out)
        else:
            super().exact_linear(x, weight, out)

    def launch_linear(self, x: Tensor, weight: Weight) -> Tensor:
        operand, tokens = weights.operand(weight), len(x)
        if tokens >= launch.MANY:
            return launch.linear_decoded(x, operand, tokens)
        if tokens > launch.FEW:
            y = torch.empty(tokens, operand.rows, device=x.device)
            launch.linear_tiles(x, operand, y, tokens)
            return y
        padded = torch.zeros(launch.padded(tokens), operand.columns, device=x.device)
        padded[:tokens] = x
        quantized = None if operand.reads_floats else launch.quantized(padded, tokens)
        y = torch.empty(len(padded), operand.rows, device=x.device)
        launch.linear(padded, quantized, [operand], [y], tokens)
        return y[:tokens]

    def launch_embed(self, ids: Tensor, table: Weight, out: Tensor) -> None:
        launch.embed(ids, weights.operand(table), out)

    def launch_norm(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        centred: bool,
        out: Tensor,
    ) -> None:
        launch.normed(x, weight, bias, epsilon, centred, len(x), out)

    def launch_gated(
        self, gate: Tensor, up: Tensor | None, activation: Activation, out: Tensor
    ) -> None:
        launch.gated(gate, up, activation, out)

    def gated_any(
        self, gate: Tensor, up: Tensor | None, activation: Activation, limit: float
    ) -> Tensor:
        """activation(gate) * up of any activation, within a limit."""
        gate = gate.contiguous()
        out = torch.empty_like(gate)
        if gate.numel():
            factor = None if up is None else up.contiguous()
            launch.gated(gate, factor, activation, out, limit)
        return out

    def launch_attention(
        self,
        one: CudaHeads,
        q: Tensor,
        table: PageTable,
        position: int,
        out: Tensor,
        spans: Spans = Spans.CAUSAL,
    ) -> None:
        places = pages.addresses([table], len(table))[0].to(q.device)
        pages.attend_rows(one, q, places, position, out, spans)

    # --- layers with a state of fixed size --------------------------------------------------------

    def short_conv(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Causal depthwise convolution of a sequence's tokens, and the state after them."""
        x = x.contiguous()
        y, after = torch.empty_like(x), torch.empty_like(state)
        operands = x, weight.contiguous(), None if bias is None else bias.contiguous()
        states.convolution_rows(*operands, y, state.contiguous(), after)
        return y, after

    def recurrence(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        strength: Tensor | None,
        state: Tensor,
        one: Recurrence,
    ) -> tuple[Tensor, Tensor]:
        """Gated linear recurrence of a sequence's tokens, and the state after them."""
        y, after = torch.empty(v.shape, device=v.device), torch.empty_like(state)
        q, k, v, decay = (x.reshape(len(x), -1).contiguous() for x in (q, k, v, decay))
        share = None if strength is None else strength.contiguous()
        rows = states.RecurrenceOperands(q, k, v, decay, share, y)
        states.recurrence_rows(one, rows, state.contiguous(), after)
        return y, after
