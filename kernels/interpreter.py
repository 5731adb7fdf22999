"""Interpreter of programs: runs each instruction with the ops of a backend.

It defines what a program computes. A backend that lowers programs must give the same bits as its
ops run one by one here. Models run on it where no backend lowers their program: without native
kernels, and after a kernel failed its check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import assert_never

import torch
from torch import Tensor

from kernels.kv_pages import PAGE_TOKENS, PagedKV, PagedState, pieces
from kernels.ops import Ops
from kernels.program import (
    Activation,
    Add,
    AddRows,
    Attend,
    Columns,
    Embed,
    Experts,
    Fetch,
    Gate,
    HeadGate,
    HeadLinear,
    HeadNorm,
    Instruction,
    Join,
    Linear,
    LoraDelta,
    Multiply,
    Norm,
    PositionScale,
    Program,
    Recurrence,
    Scale,
    Segment,
    ShortConv,
    Softcap,
    Transfer,
    Xielu,
)
from kernels.rotation import Rotation, rotated, rotated_back
from kernels.streams import AddToStreams, GaussianTopK, MatchMagnitude, MixStreams, ScaleChannels
from kernels.weight import Weight

# Causal attention of a batch, of an instruction and the buffers → [T, H*C]; None: run by ops.
Attending = Callable[[Attend, Mapping[str, Tensor]], Tensor | None]


class Interpreter:
    """A program that is run op by op; results belong to the caller."""

    equal_bits = False  # torch's sums depend on the size of a batch
    exact = True

    def __init__(
        self,
        program: Program,
        ops: Ops,
        attending: Callable[[Sequence[Segment]], Attending] | None = None,
        reason: str = "",
    ) -> None:
        """`attending` makes what a batch's causal attention runs on, in place of several ops.

        `reason` is what a backend lacks to lower the program: "Attend with sinks".
        """
        self.program = program
        self.reason = reason
        self._ops = ops
        self._attending = attending

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch → hidden states [T, D] f32."""
        buffers = {} if given is None else {self.program.hidden: given}
        pass_ = _Pass(self._ops, self.program, buffers, batch, self._attending)
        for at, one in enumerate(self.program.body):
            if at in self.program.layers:
                checkpoint()
            if isinstance(one, Fetch):
                one.pager.fetch(one.layer, one.upcoming, checkpoint)
            else:
                pass_.run(one, checkpoint)
        return pass_.buffers[self.program.hidden]

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        pass_ = _Pass(self._ops, self.program, {self.program.hidden: hidden}, ())
        for one in self.program.head:
            pass_.run(one)
        return pass_.buffers[self.program.logits]

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens of a batch → logits [T, V] f32."""
        return self.logits(self.hidden(batch, given=given))


class _Pass:
    """One run over the body or the head, with the buffers written so far."""

    def __init__(
        self,
        ops: Ops,
        program: Program,
        buffers: dict[str, Tensor],
        batch: Sequence[Segment],
        attending: Callable[[Sequence[Segment]], Attending] | None = None,
    ) -> None:
        """`batch` is empty in a head, which has no embedding and no attention."""
        self._attending = attending(batch) if attending is not None else None
        self.buffers = buffers
        self._ops = ops
        self._widths = program.widths
        self._kv = program.kv
        self._batch = batch
        self._rows = torch.tensor(
            [
                [token for one in batch for token in one.tokens],
                [one.position + at for one in batch for at in range(len(one.tokens))],
            ]
        )  # [2, T]: token ids and positions
        self._tokens = self._rows[0]  # on the host

    def run(self, one: Instruction, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Execute one instruction; see its class for what it computes."""
        ops, buffers = self._ops, self.buffers
        match one:
            case Embed():
                self._set(one.out, self._embed(one))
            case AddRows():
                rows = one.table.rows(self._tokens).to(buffers[one.x].device)
                self._set(one.x, buffers[one.x] + rows * one.scale)
            case Norm(centred=True):
                y = ops.layer_norm(buffers[one.x], one.weight, one.bias, one.epsilon)
                self._set(one.out, y)
            case Norm():
                y = ops.rms_norm(buffers[one.x], one.weight, one.epsilon)
                self._set(one.out, y if one.bias is None else y + one.bias)
            case HeadNorm():
                self._set(one.x, _head_norm(ops, buffers[one.x], one))
            case Linear():
                self._linear(one)
            case HeadLinear():
                self._set(one.out, self._head_linear(one))
            case Join():
                heads = [buffers[x].unflatten(1, (one.heads, -1)) for x in one.xs]
                self._set(one.out, torch.cat(heads, -1).flatten(1))
            case Columns():
                self._set(one.out, buffers[one.x][:, one.start : one.start + one.width])
            case PositionScale():
                self._set(one.x, self._position_scale(one))
            case Attend():
                self._set(one.out, self._attend(one))
            case ShortConv():
                self._set(one.x, self._short_conv(one))
            case Recurrence():
                self._set(one.out, self._recurrence(one))
            case Multiply():
                self._set(one.x, buffers[one.x] * buffers[one.y])
            case Gate():
                self._set(one.out, self._gated(one))
            case HeadGate():
                gate = ops.gated(buffers[one.gate], None, one.activation)  # [T, H]
                heads = buffers[one.x].unflatten(1, (gate.shape[1], -1))
                self._set(one.x, (heads * gate[..., None]).flatten(1))
            case Xielu():
                self._set(one.x, ops.xielu(buffers[one.x], one))
            case Experts():
                y = _experts(ops, buffers[one.x], buffers[one.scores], one, checkpoint)
                self._set(one.out, y)
            case Add():
                y = buffers[one.y] if one.scale == 1.0 else buffers[one.y] * one.scale
                self._set(one.x, buffers[one.x] + y)
            case Scale():
                self._set(one.x, buffers[one.x] * one.scale)
            case Softcap():
                self._set(one.x, ops.softcap(buffers[one.x], one.cap))
            case MixStreams():
                y = ops.mix_streams(buffers[one.x], buffers[one.coefficients])
                self._set(one.x, y)
            case AddToStreams():
                some = buffers[one.coefficients] if one.coefficients else None
                y = ops.add_to_streams(buffers[one.x], buffers[one.y], some, one.first)
                self._set(one.x, y)
            case MatchMagnitude():
                y = ops.match_magnitude(buffers[one.x], buffers[one.like], one.epsilon)
                self._set(one.x, y)
            case ScaleChannels():
                self._set(one.x, buffers[one.x] * one.weight)
            case GaussianTopK():
                self._set(one.x, ops.gaussian_top_k(buffers[one.x], one.deviations))
            case Fetch():
                one.pager.fetch(one.layer, one.upcoming, lambda: None)
            case Transfer():
                raise ValueError(f"Transfer to {one.backend}: the program is not split in stages")
            case _:
                assert_never(one)

    def _gated(self, one: Gate) -> Tensor:
        """A gate; GELU of encoders for each text alone: torch's bits depend on how many there are."""
        gate, up = self.buffers[one.gate], self.buffers[one.up] if one.up else None
        if one.activation is not Activation.GELU or len(self._batch) < 2:
            return self._ops.gated(gate, up, one.activation, one.limit)
        sizes = [len(segment.tokens) for segment in self._batch]
        ups = up.split(sizes) if up is not None else (None,) * len(sizes)
        pairs = zip(gate.split(sizes), ups, strict=True)
        return torch.cat([self._ops.gated(*pair, one.activation, one.limit) for pair in pairs])

    def _set(self, name: str, values: Tensor) -> None:
        assert values.shape[1] == self._widths[name], name
        self.buffers[name] = values

    def _on(self, device: torch.device) -> Tensor:
        """Token ids and positions [2, T] on a device, where they are copied once."""
        if self._rows.device != device:
            self._rows = self._rows.to(device)
        return self._rows

    def _embed(self, one: Embed) -> Tensor:
        ops = self._ops
        tokens, positions = self._on(one.table.data.device)
        rows = ops.embed(tokens, one.table)
        if one.rotation is not None:
            rows = rotated_back(rows, one.rotation, ops.hadamard)
        if one.change is not None:
            rows = rows + _lora(ops, ops.embed(tokens, one.change.down), one.change)
        if one.scale != 1.0:
            rows = rows * one.scale
        if one.positions is not None:
            rows = rows + ops.embed(positions, one.positions)
        if one.types is not None:
            rows = rows + ops.embed(self._types(one, one.types), one.types)
        return rows

    def _types(self, one: Embed, table: Weight) -> Tensor:
        """The type [T] i64 of each token: 1 after the first separator of its segment, else 0."""
        types: list[int] = []
        for segment in self._batch:
            tokens = list(segment.tokens)
            known = one.separator in tokens and table.shape[0] > 1
            first = tokens.index(one.separator) + 1 if known else len(tokens)
            types += [0] * first + [1] * (len(tokens) - first)
        return torch.tensor(types, device=table.data.device)

    def _linear(self, one: Linear) -> None:
        ops, x = self._ops, self.buffers[one.x]
        changes = one.changes or (None,) * len(one.outs)
        biases = one.biases or (None,) * len(one.outs)
        scales = one.scales or (1.0,) * len(one.outs)
        rotations = one.rotations or (None,) * len(one.outs)
        products = zip(one.weights, one.outs, changes, biases, scales, rotations, strict=True)
        inputs: dict[Rotation | None, Tensor] = {None: x}
        for weight, out, change, bias, scale, rotation in products:
            if rotation is not None and rotation not in inputs:
                inputs[rotation] = rotated(x, rotation, ops.hadamard)
            y = ops.linear(inputs[rotation], weight)
            if scale != 1.0:
                y = y * scale
            if change is not None:
                y = y + _lora(ops, ops.linear(x, change.down), change)
            self._set(out, y if bias is None else y + bias)

    def _head_linear(self, one: HeadLinear) -> Tensor:
        heads = self.buffers[one.x].unflatten(1, (len(one.weights), -1))
        end = one.start + one.weights[0].columns
        some = heads[..., one.start : end].transpose(0, 1).contiguous()  # [H, T, columns]
        products = list(map(self._ops.linear, some, one.weights))
        for head, change in enumerate(one.changes):
            low = self._ops.linear(some[head], change.down)
            products[head] = products[head] + _lora(self._ops, low, change)
        return torch.cat(products, 1)

    def _position_scale(self, one: PositionScale) -> Tensor:
        x = self.buffers[one.x]
        steps = ((self._rows[1].cpu().float() + one.offset) / one.length).floor()
        # In double precision, which gives every backend the same factor.
        growth = (1 + steps.double()).log().float()
        return x * (1 + one.strength * growth)[:, None].to(x.device)

    def _attend(self, one: Attend) -> Tensor:
        if one.causal and self._attending is not None:
            found = self._attending(one, self.buffers)
            if found is not None:
                return found
        query = self._rotated(one, one.q, one.query_norm)
        key = self._rotated(one, one.k, one.key_norm) if one.k else None
        value = self._heads(one.v, one.head_width) if one.v else None
        if not one.causal:
            assert key is not None, "full attention has keys"
            assert value is not None, "full attention has values"
            return self._attend_fully(one, query, key, value)
        layer = self._kv.kv(one.layer)
        outs: list[Tensor] = []
        first = 0
        for segment in self._batch:
            rows = slice(first, first + len(segment.tokens))
            table = segment.tables[layer.group]
            if key is not None:
                own = None if value is None else value[rows]
                PagedKV(layer, table).append(key[rows], own, segment.position)
            options = one.scale, one.window, one.cap, one.sinks
            for piece, start in _chunks(segment, one.chunk):
                seen = PagedKV(layer, table.since(start // PAGE_TOKENS) if start else table)
                position = segment.position + piece.start - start
                some = query[first + piece.start : first + piece.stop]
                outs.append(self._ops.attention(some, seen, position, *options))
            first = rows.stop
        return torch.cat(outs)

    def _attend_fully(self, one: Attend, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        outs: list[Tensor] = []
        first = 0
        for segment in self._batch:
            rows = slice(first, first + len(segment.tokens))
            q, k, v = query[rows], key[rows], value[rows]
            outs.append(self._ops.full_attention(q, k, v, one.scale, one.window))
            first = rows.stop
        return torch.cat(outs)

    def _rotated(self, one: Attend, name: str, norm: Tensor | None) -> Tensor:
        """Norm and RoPE of queries or keys: [T, H, C]."""
        x = self._heads(name, one.head_width)
        if norm is not None and not one.norms_rotated:
            x = self._ops.rms_norm(x, norm, one.epsilon)
        _, positions = self._on(x.device)
        x = self._ops.rope(x, positions, one.frequencies, one.interleaved, one.rope_scale)
        if norm is not None and one.norms_rotated:
            x = self._ops.rms_norm(x, norm, one.epsilon)
        return x

    def _heads(self, name: str, width: int) -> Tensor:
        """A buffer [T, H*C] as [T, H, C]."""
        x = self.buffers[name]
        return x.view(len(x), -1, width)

    def _short_conv(self, one: ShortConv) -> Tensor:
        x = self.buffers[one.x]
        outs: list[Tensor] = []
        if not one.causal:
            taps = one.weight.shape[1]
            before, behind = x.new_zeros(taps - 1, x.shape[1]), (taps - 1) // 2
            for text in x.split([len(segment.tokens) for segment in self._batch]):
                padded = torch.cat((text, before[:behind]))
                y, _ = self._ops.short_conv(padded, one.weight, one.bias, before)
                outs.append(y[behind:])
        for rows, state, index in self._states(one) if one.causal else ():
            y, after = self._ops.short_conv(x[rows], one.weight, one.bias, state.read(index - 1))
            state.write(index, after)
            outs.append(y)
        y = torch.cat(outs)
        return y if one.activation is None else self._ops.gated(y, None, one.activation)

    def _recurrence(self, one: Recurrence) -> Tensor:
        layer = self._kv.state(one.layer)
        _, C, V = layer.shape.shape
        q, k, v = self._heads(one.q, C), self._heads(one.k, C), self._heads(one.v, V)
        decay = self.buffers[one.decay]
        strength = self.buffers[one.strength] if one.strength else None
        outs: list[Tensor] = []
        for rows, state, index in self._states(one):
            some = None if strength is None else strength[rows]
            operands = q[rows], k[rows], v[rows], decay[rows], some, state.read(index - 1)
            y, after = self._ops.recurrence(*operands, one)
            state.write(index, after)
            outs.append(y.flatten(1))
        return torch.cat(outs)

    def _states(self, one: ShortConv | Recurrence) -> Iterator[tuple[slice, PagedState, int]]:
        """The pieces of the batch: its rows, the states, and the page that the piece writes."""
        layer, first = self._kv.state(one.layer), 0
        for segment in self._batch:
            state = PagedState(layer, segment.tables[layer.group])
            index = -(-segment.position // PAGE_TOKENS)
            for number, piece in enumerate(pieces(segment.position, len(segment.tokens))):
                yield slice(first + piece.start, first + piece.stop), state, index + number
            first += len(segment.tokens)


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


def _lora(ops: Ops, low: Tensor, change: LoraDelta) -> Tensor:
    """The LoRA term of rows [T, R] that were multiplied by the first factor."""
    return ops.linear(low * change.scales, change.up)


def _head_norm(ops: Ops, x: Tensor, one: HeadNorm) -> Tensor:
    """Norm of each head of x [T, H*C], then its weights."""
    heads = x.view(len(x), *one.weight.shape)
    ones = torch.ones(one.weight.shape[1], device=x.device)
    if one.centred:
        normed = ops.layer_norm(heads, ones, None, one.epsilon)
    else:
        normed = ops.rms_norm(heads, ones, one.epsilon)
    return (normed * one.weight).view(x.shape)


def _experts(
    ops: Ops, x: Tensor, scores: Tensor, one: Experts, checkpoint: Callable[[], None]
) -> Tensor:
    """Outputs of each token's experts times their shares, added in the order of the experts."""
    shares = ops.route(scores, one.routing)  # [T, E]
    y = torch.zeros_like(x)
    chosen: list[int] = shares.any(0).nonzero()[:, 0].cpu().tolist()
    groups = (chosen,) if one.pager is None else one.pager.read(one.paged_layer, chosen, checkpoint)
    for number in chain.from_iterable(groups):
        tokens = shares[:, number].nonzero()[:, 0]
        some, share = x[tokens], shares[tokens, number, None]
        added = _expert(ops, some * share if one.weighs_input else some, one, number)
        y.index_add_(0, tokens, added if one.weighs_input else added * share)
    return y


def _expert(ops: Ops, x: Tensor, one: Experts, number: int) -> Tensor:
    """The output of one expert: [t, D]."""

    def product(
        x: Tensor,
        weights: tuple[Weight, ...],
        scale: Tensor | None,
        bias: Tensor | None,
        rotation: Rotation | None,
        changes: tuple[LoraDelta, ...],
    ) -> Tensor:
        read = x if rotation is None else rotated(x, rotation, ops.hadamard)
        y = ops.linear(read, weights[number])
        y = y if scale is None else y * scale[number]
        if changes:
            change = changes[number]
            y = y + _lora(ops, ops.linear(x, change.down), change)
        return y if bias is None else y + bias[number]

    gates = one.gate_scale, one.gate_bias, one.gate_rotation, one.gate_changes
    gate, up = product(x, one.gates, *gates), None
    if one.ups:
        up = product(x, one.ups, one.up_scale, one.up_bias, one.up_rotation, one.up_changes)
    inner = ops.gated(gate, up, one.activation, one.limit)
    downs = one.down_scale, one.down_bias, one.down_rotation, one.down_changes
    return product(inner, one.downs, *downs)
