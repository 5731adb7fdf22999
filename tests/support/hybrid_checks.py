"""Checks of the CUDA kernels of hybrid models and mixtures against the reference, on fresh data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from cuda_kernels import Checks, nmse
from torch import Tensor

from kernels.backend import reference
from kernels.backends import KNOWN
from kernels.cuda import attention, experts, heads, launch, states
from kernels.cuda.heads import HeadGates, HeadNorms
from kernels.cuda.lowering import Lowering
from kernels.cuda.states import RecurrenceOperands, Steps
from kernels.ops import Activation, Add, Experts, Linear, Recurrence, Segment, ShortConv
from kernels.ops.routing import Gating, Routing
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedKV, PagedState, PageTable
from kernels.states.layer_state import ConvState, FixedState, LayerShape, RecurrentState
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

POSITIONS = (0, 1, 255, 256, 4000)  # the first token, and about the ends of pages
MOST = 1e-9


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Shapes of a recurrence: heads, key heads, widths of keys and values."""

    heads: int
    key_heads: int
    key_width: int
    value_width: int


DELTA_NET = Recurrent(32, 16, 128, 128)  # Qwen3.5-4B
STATE_SPACE = Recurrent(48, 1, 128, 64)  # Granite 4 hybrids
SMALL_NET = Recurrent(4, 2, 20, 24)


class HybridChecks(Checks):
    """The checks of one run on a device."""

    is_small = False

    def paged_states(self, state: FixedState) -> tuple[KVLayout, list[PageTable]]:
        """Page tables with random states before POSITIONS, and NaN elsewhere."""
        layout = KVLayout([ConvState(3, 2), state], torch.float16)
        tables: list[PageTable] = []
        for position in POSITIONS:
            table, index = PageTable(), -(-position // PAGE_TOKENS)
            for at in range(index + 1):
                size = layout.page_bytes[0]
                page = torch.full((size,), 0xFF, dtype=torch.uint8, device=self.device)
                table.append(page if at >= index - 1 else None)
            if index:
                PagedState(layout.state(1), table).write(index - 1, self.normal(*state.shape))
            tables.append(table)
        return layout, tables

    def steps(self, tables: list[PageTable]) -> Steps:
        """Positions and addresses on the device."""
        width = max(map(len, tables))
        addresses = attention.addresses(tables, width).to(self.device)
        return Steps(torch.tensor(POSITIONS).to(self.device), addresses)

    def recurrence(self, shape: Recurrent, *, is_delta: bool, floor: bool = False) -> Recurrence:
        """A delta rule, or a state-space layer with a skip."""
        rate = -(self.normal(shape.heads).abs() * 0.3 + 0.05)
        return Recurrence(
            *("q", "k", "v", "d"), "s" if is_delta else "", "o", 1,
            -rate if floor else rate, self.normal(shape.heads),
            shape.key_width**-0.5 if is_delta else 1.0, 1e-6 if is_delta else -1.0,
            is_delta, True, None if is_delta else self.normal(shape.heads), -5.0 if floor else 0.0,
        )  # fmt: skip

    def rows_of(self, one: Recurrence, shape: Recurrent, tokens: int) -> RecurrenceOperands:
        """Random operands of so many tokens."""
        keys, values = shape.key_heads * shape.key_width, shape.heads * shape.value_width
        size = 1.0 if one.epsilon >= 0 else shape.key_width**-0.5
        return RecurrenceOperands(
            self.normal(tokens, keys) * size, self.normal(tokens, keys) * size,
            self.normal(tokens, values), self.normal(tokens, shape.heads),
            self.normal(tokens, shape.heads) if one.strength else None,
            self.empty(tokens, values),
        )  # fmt: skip

    def recurrences(self) -> None:
        """Steps and prompts of recurrences, and the states after them."""
        shapes = (SMALL_NET,) if self.is_small else (DELTA_NET, STATE_SPACE, SMALL_NET)
        for shape in shapes:
            for kind in ("delta", "floor", "space"):
                one = self.recurrence(shape, is_delta=kind != "space", floor=kind == "floor")
                state = RecurrentState(shape.heads, shape.key_width, shape.value_width)
                self._recurrence_step(f"{kind} {shape.heads}", one, shape, state)
                self._recurrence_rows(f"{kind} {shape.heads}", one, shape, state)

    def _right(
        self,
        one: Recurrence,
        shape: Recurrent,
        rows: RecurrenceOperands,
        part: slice,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """What the reference gives in double precision."""
        q, k, v = (
            x[part].unflatten(1, (-1, width)).double()
            for x, width in (
                (rows.q, shape.key_width), (rows.k, shape.key_width), (rows.v, shape.value_width)
            )
        )  # fmt: skip
        strength = None if rows.strength is None else rows.strength[part].double()
        skip = None if one.skip is None else one.skip.double()
        exact = replace(one, rate=one.rate.double(), decay_bias=one.decay_bias.double(), skip=skip)
        y, after = reference.recurrence(
            q, k, v, rows.decay[part].double(), strength, state.double(), exact
        )
        return y.flatten(1), after

    def _recurrence_step(
        self, words: str, one: Recurrence, shape: Recurrent, state: RecurrentState
    ) -> None:
        layout, tables = self.paged_states(state)
        layer, count = layout.state(1), len(POSITIONS)
        rows = self.rows_of(one, shape, count)
        before = [
            PagedState(layer, table).read(-(-position // PAGE_TOKENS) - 1)
            for table, position in zip(tables, POSITIONS, strict=True)
        ]
        states.recurrence_step(one, layer, rows, self.steps(tables))
        for at, (table, position) in enumerate(zip(tables, POSITIONS, strict=True)):
            y, after = self._right(one, shape, rows, slice(at, at + 1), before[at])
            found = PagedState(layer, table).read(-(-position // PAGE_TOKENS))
            self.expect("recurrence, step", words, nmse(rows.out[at : at + 1], y), MOST)
            self.expect("recurrence, state", words, nmse(found, after), MOST)

    def _recurrence_rows(
        self, words: str, one: Recurrence, shape: Recurrent, state: RecurrentState
    ) -> None:
        tokens = 5 if self.is_small else 130
        rows = self.rows_of(one, shape, tokens)
        before, after = self.normal(*state.shape), self.empty(*state.shape)
        states.recurrence_rows(one, rows, before, after)
        y, right = self._right(one, shape, rows, slice(0, tokens), before)
        self.expect("recurrence, prompt", words, nmse(rows.out, y), MOST)
        self.expect("recurrence, prompt's state", words, nmse(after, right), MOST)

    def convolutions(self) -> None:
        """Steps and prompts of convolutions; LFM2's with its two gates, quantized."""
        width = 288 if self.is_small else 4096
        for taps in (3, 4):
            weight, bias = self.normal(width, taps), self.normal(width)
            layout, tables = self.paged_states(ConvState(width, taps))
            layer, steps = layout.state(1), self.steps(tables)
            x, first, last = (self.normal(len(POSITIONS), width) for _ in range(3))
            one = ShortConv("x", weight, 1, bias, Activation.SILU)
            gated = ShortConv("x", weight, 1)
            y, then = x.clone(), launch.new_quantized(len(x), width, self.device)
            states.convolution_step([(one, layer, y)], steps)
            states.convolution_step([(gated, layer, x.clone())], steps, first, last, then)
            for at, (table, position) in enumerate(zip(tables, POSITIONS, strict=True)):
                index = -(-position // PAGE_TOKENS)
                before = PagedState(layer, table).read(index - 1)
                right, _ = reference.short_conv(x[at : at + 1], weight, bias, before)
                right = reference.gated(right, None, Activation.SILU)
                self.expect("convolution, step", f"{taps}", nmse(y[at : at + 1], right), MOST)
                product, after = reference.short_conv(
                    (x * first)[at : at + 1], weight, None, before
                )
                found = values(then)[at : at + 1, :width]
                error = nmse(found, product * last[at])
                self.expect("convolution, gated and quantized", f"{taps}", error, 1e-3)
                found = PagedState(layer, table).read(index)
                self.expect("convolution, state", f"{taps}", nmse(found, after), MOST)
            tokens = 9 if self.is_small else 300
            x, before = self.normal(tokens, width), self.normal(taps - 1, width)
            out, after = self.empty(tokens, width), self.empty(taps - 1, width)
            states.convolution_rows(x, weight, bias, out, before, after)
            right, kept = reference.short_conv(x, weight, bias, before)
            self.expect("convolution, prompt", f"{taps}", nmse(out, right), MOST)
            self.expect("convolution, prompt's state", f"{taps}", nmse(after, kept), MOST)

    def head_norms(self) -> None:
        """Norms of heads with gates, as floats and quantized; all activations with a limit."""
        count, width = (2, 64) if self.is_small else (32, 128)
        x, gate = self.normal(3, count * width), self.normal(3, count * width)
        norms = HeadNorms(self.normal(count, width), 1e-6, False)
        normed = reference.rms_norm(x.view(3, count, width), torch.ones_like(x[0, :width]), 1e-6)
        normed = (normed * norms.weight).flatten(1)
        for activation in Activation:
            gates = HeadGates(heads.AFTER, gate, activation, 1.5)
            out, then = self.empty(*x.shape), launch.new_quantized(3, x.shape[1], self.device)
            heads.launch(x, norms, gates, 3, out)
            heads.launch(x, norms, gates, 3, out, then)
            right = reference.gated(gate.double(), normed.double(), activation, 1.5)
            self.expect("norms and gates of heads", activation.name, nmse(out, right), MOST)
            error = nmse(values(then)[:3, : x.shape[1]], right)
            self.expect("norms and gates, quantized", activation.name, error, 1e-3)

    def sinks(self) -> None:
        """Attention with sinks, a window, chunks and norms after RoPE: steps, and a prompt."""
        group, kv_heads, width = 8, 2 if self.is_small else 8, 64
        layout = KVLayout([LayerShape(kv_heads, width)] * 2, torch.float16)
        frequencies = (1e6 ** (-torch.arange(0, width // 2) / (width // 2))).to(self.device)
        norms = self.normal(2, width).abs() + 0.5
        plain = attention.CudaHeads(
            layout.kv(1), group * kv_heads, norms[0], norms[1], 1e-6, frequencies, False, 1.0,
            width**-0.5, sinks=self.normal(group * kv_heads),
        )  # fmt: skip
        cases = {
            "window": replace(plain, window=128),
            "chunk": replace(plain, chunk=PAGE_TOKENS),
            "norms after": replace(plain, norms_rotated=True),
        }
        lengths, tokens = (0, 75, 300), 7 if self.is_small else 200
        for words, one in cases.items():
            for length in lengths:
                for count in (1, tokens):
                    self._sinks(f"{words}, {length} + {count}", one, length, count)

    def _sinks(self, words: str, one: attention.CudaHeads, length: int, count: int) -> None:
        kv, copies = self.sequence(one, length, count)
        q = self.normal(count, one.heads * one.width)
        k, v = (self.normal(count, one.kv_heads * one.width) for _ in "kv")
        positions, frequencies = torch.arange(length, length + count), one.frequencies.cpu()

        def turned(x: Tensor, norm: Tensor | None) -> Tensor:
            assert norm is not None
            y = x.cpu().view(count, -1, one.width)
            y = y if one.norms_rotated else reference.rms_norm(y, norm.cpu(), one.epsilon)
            y = reference.rope(y, positions, frequencies, False, 1.0)
            return reference.rms_norm(y, norm.cpu(), one.epsilon) if one.norms_rotated else y

        kv.append(turned(k, one.key_norm), v.cpu().view(count, -1, one.width), length)
        query, rows = turned(q, one.query_norm), list[Tensor]()
        assert one.sinks is not None
        for at in range(count):  # each token with the pages of its chunk
            start = (length + at) // one.chunk * one.chunk if one.chunk else 0
            seen = PagedKV(kv.layer, kv.table.since(start // PAGE_TOKENS))
            options = one.scale, one.window, one.cap, one.sinks.cpu()
            position = length + at - start
            rows.append(reference.attention(query[at : at + 1], seen, position, *options))
        out = self.empty(count, one.heads * one.width)
        table = attention.addresses([copies], len(copies)).to(self.device)
        if count == 1:
            scratch = attention.scratch_for(one, 1, attention.MOST_SPLITS, self.device)
            scratch.partial.fill_(math.nan)
            position = torch.tensor([length], device=self.device)
            attention.attend_step(one, q, k, v, position, table, scratch, out)
        else:
            attention.append_rows(one, q, k, v, table[0], length)
            attention.attend_rows(one, q, table[0], length, out)
        name = "attention with sinks, step" if count == 1 else "attention with sinks, prompt"
        self.expect(name, words, nmse(out.cpu(), torch.cat(rows)), 1e-5)

    def routes(self) -> None:
        """Routing by every gating, with a bias and groups."""
        count, chosen = (12, 3) if self.is_small else (128, 6)
        for gating in Gating:
            for groups, best in ((1, 1), (4, 2)):
                routing = Routing(chosen, gating, self.normal(count), groups, best, scale=2.5)
                scores = self.normal(5, count) * 3
                made = experts.new_routes(5, chosen, self.device)
                made.shares.fill_(math.nan)
                experts.route(scores, 5, made, routing)
                cpu = replace(
                    routing, bias=routing.bias.cpu() if routing.bias is not None else None
                )
                right = reference.route(scores.cpu(), chosen, cpu).to(self.device)
                found = torch.zeros_like(right).scatter_(1, made.chosen.long(), made.shares)
                error = float((found - right).abs().max())
                self.expect("routes", f"{gating.name}, {groups} groups", error, 1e-5)

    def clamped_experts(self) -> None:
        """A mixture as in gpt-oss: MXFP4, biases, a limit and its activation."""
        tokens, count, width = 2, 8, 96 if self.is_small else 2880
        floats = by_name("F32")
        made, dense = list[tuple[Weight, ...]](), list[tuple[Weight, ...]]()
        for _ in range(3):
            each = [self.prepared("MXFP4", width, width) for _ in range(count)]
            made.append(tuple(weight for weight, _ in each))
            dense.append(
                tuple(Weight(one.float().cpu(), floats, (width, width)) for _, one in each)
            )
        biases = [self.normal(count, width) for _ in range(3)]
        options = Routing(4, Gating.SOFTMAX_OF_CHOSEN), Activation.GPT_OSS, "y", 7.0
        one = Experts("x", "s", made[0], made[1], made[2], *options, *biases)
        cpu = [bias.cpu() for bias in biases]
        right = Experts("x", "s", dense[0], dense[1], dense[2], *options, *cpu)
        router = self.normal(count, width)
        lines = [
            Linear("x", (Weight(each, floats, (count, width)),), ("s",))
            for each in (router, router.cpu())
        ]
        widths = {"x": width, "s": count, "y": width, "": 1}
        kv, add = KVLayout([], torch.float16), Add("x", "y", 1.0)
        program = Program((lines[0], one, add), (0,), (), "x", "", widths, kv)
        lowered = Lowering(program, tokens, 1, self.device)
        x = self.normal(tokens, width) * width**-0.5
        lowered.buffers["x"][:tokens] = x
        for each in lowered.body:
            each()
        program = replace(program, body=(lines[1], right, add))
        segments = [Segment([at], 0, []) for at in range(tokens)]
        run = Interpreter(program, KNOWN["reference"].ops)
        wanted = run.hidden(segments, given=x.cpu())
        error = nmse(lowered.buffers["x"][:tokens].cpu(), wanted)
        self.expect("experts with biases and a limit", "MXFP4", error, 1e-3)


def values(made: launch.Quantized) -> Tensor:
    """The values of quantized activations."""
    codes = made.words[:, :8].transpose(1, 2).contiguous().view(torch.int8).float()
    return (codes * made.words[:, 8].view(torch.float32)[..., None]).flatten(1)
