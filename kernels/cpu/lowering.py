"""Lowering of programs: instructions to the flat list of operations that a native call runs.

Instructions are fused: a norm also quantizes its result for the products after it, gate and up are
multiplied tile by tile as they are computed, a product adds its result to the residual stream.
Results are bit-identical to running the ops one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from kernels.cpu import library, weights
from kernels.cpu.lowering_layers import (
    by_head,
    change_streams,
    head_linear,
    recurrence,
    rotate,
    short_conv,
)
from kernels.cpu.operations import Operations, activation_of, refuse_unpacked, weight_group
from kernels.cpu.schema import MAX_EXPERTS, MAX_WEIGHTS, Barrier, NativeOp, OpKind
from kernels.cpu.streamed_experts import StreamedExperts
from kernels.ops import (
    Add,
    AddRows,
    AddToStreams,
    Attend,
    Columns,
    Embed,
    Experts,
    Gate,
    HeadGate,
    HeadLinear,
    HeadNorm,
    Instruction,
    Join,
    Linear,
    LoraDelta,
    MixStreams,
    Norm,
    Recurrence,
    Scale,
    ShortConv,
    StreamWeights,
)
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.ops.routing import Routing
from kernels.programs.not_lowerable import refuse
from kernels.states.layer_state import LayerShape
from kernels.weights.weight import Weight


@dataclass(slots=True)
class Lowering(Operations):
    """The lowering of a program, instruction by instruction."""

    angles: dict[tuple[float, ...], str] = field(default_factory=dict)
    offloaded: dict[int, StreamedExperts] = field(default_factory=dict)  # by their first operation

    def lower(self, rest: Sequence[Instruction]) -> int:
        """Emit the first instruction, fused with the next if possible; returns the number used.

        Raises NotLowerable.
        """
        one, then = rest[0], rest[1] if len(rest) > 1 else None
        match one:
            case Embed():
                self._embed(one)
            case Norm():
                self._norm(one, then)
            case Linear():
                deltas = [delta for delta in one.deltas if delta is not None]
                factors = (half for delta in deltas for half in (delta.down, delta.up))
                refuse_unpacked(one, (*one.weights, *factors))
                return self._linear(one, then)
            case Attend():
                self._attend(one)
            case HeadNorm():
                self._head_norm(one)
            case Gate():
                self._gate(one)
            case Experts():
                self._experts(one)
            case Add():
                names = {"x": self.number(one.x), "y": self.number(one.y)}
                self.add(OpKind.ADD, **names, width=self.widths[one.x], scale=one.scale)
                self.invalidate(one.x)
                if one.scale != 1.0:
                    self.invalidate(one.y)
            case AddRows():
                self._add_rows(one)
            case HeadLinear():
                head_linear(self, one)
            case ShortConv():
                short_conv(self, one, then)
            case Recurrence():
                recurrence(self, one)
            case HeadGate() | Columns() | Join():
                by_head(self, one)
            case MixStreams() | AddToStreams():
                change_streams(self, one)
            case StreamWeights():  # a native call ends here
                self.quantized = ("", 0)
            case _:
                self.add_named(one)
        return 1

    def may_begin_call(self, one: Instruction) -> bool:
        """Whether a native call may begin here: quantized activations do not outlive a call."""
        return isinstance(one, Norm) or (isinstance(one, Linear) and self.quantized[0] != one.x)

    def _embed(self, one: Embed) -> None:
        delta = () if one.delta is None else (one.delta.down, one.delta.up)
        refuse_unpacked(one, (one.table, one.positions, one.types, *delta))
        if one.rotation is not None:  # which comes before the other terms
            added = one.positions is not None or one.types is not None
            refuse(one, {"with a rotation and other embeddings": added})
            _refuse_heads(one, one.rotation)
            plain = replace(one, scale=1.0, delta=None, rotation=None)
            self._embed(plain)
            rotate(self, one.rotation, one.out, one.out, back=True)
            if one.delta is not None:
                added = self._embed_lora(one.table.columns, one.delta)
                self.add(
                    OpKind.ADD,
                    x=self.number(one.out),
                    y=added,
                    width=one.table.columns,
                    scale=1.0,
                )
            if one.scale != 1.0:
                self.add_named(Scale(one.out, one.scale))
            return
        added = -1 if one.delta is None else self._embed_lora(one.table.columns, one.delta)
        op = self.add(
            OpKind.EMBED,
            x=added,
            out=self.number(one.out),
            scale=one.scale,
            width=one.table.columns,
        )
        for at, table in enumerate((one.table, one.positions, one.types)):
            if table is not None:
                self._set_weight(op, at, table)
        op.types, op.separator = one.types is not None, one.separator
        self.invalidate(one.out)

    def _embed_lora(self, width: int, delta: LoraDelta) -> int:
        """Emit the LoRA term of an embedding; returns the number of its buffer."""
        rank = delta.down.columns
        middle, added = f"rank {rank}", "embed delta"
        self.number(middle, rank)
        self.number(added, width)
        op = self.add(OpKind.EMBED, out=self.number(middle), scale=1.0, width=rank)
        self._set_weight(op, 0, delta.down)
        scales = self.pointer(delta.scales)
        self.add(OpKind.SCALE_CHANNELS, x=self.number(middle), width=rank, weight=scales)
        self._products(Linear(middle, (delta.up,), (added,)))
        return self.number(added)

    def _add_rows(self, one: AddRows) -> None:
        """Add the rows that are read into a buffer before the first operation of a pass."""
        width, rows = self.widths[one.x], f"table rows {len(self.tables)}"
        self.tables[rows] = one.table
        names = {"x": self.number(one.x), "y": self.number(rows, width)}
        self.add(OpKind.ADD, **names, width=width, scale=one.scale)
        self.invalidate(one.x)

    def _norm(self, one: Norm, then: Instruction | None) -> None:
        op = self.add(
            OpKind.NORM,
            x=self.number(one.x),
            out=self.number(one.out),
            width=self.widths[one.x],
            weight=self.pointer(one.weight),
            bias=self.pointer(one.bias),
            centred=one.centred,
            epsilon=one.epsilon,
        )
        self.invalidate(one.out)
        if not isinstance(then, Linear) or any(then.rotations):
            return
        if one.x != one.out == then.x:
            first = _split_by_group(then)[0]
            op.quantize = _group(first)
            op.barrier = Barrier.BATCH if _reads_only_codes(first) else Barrier.ALWAYS
            self.quantized = (one.out, op.quantize)

    def _linear(self, one: Linear, then: Instruction | None, plain_x: str = "") -> int:
        """Emit products, fused with a gate or a residual add that follows them directly.

        LoRA terms are those of `plain_x`, where x is a rotation of it.
        """
        if any(one.rotations):
            return self._linear_rotated(one, then)
        parts = _split_by_group(one)
        if len(parts) > 1:
            for part in parts:
                self._linear(part, None, plain_x)
            return 1
        self._quantize(one)
        plain = not any(one.deltas) and not one.scales  # else the biases come after these
        alone = len(one.weights) == 1
        if plain and isinstance(then, Gate) and _can_fuse_gate(one, then):
            self._products(one, activation=activation_of(then, then.activation))
            self.ops[-1].limit = then.limit
            return 2
        if plain and alone and isinstance(then, Add) and (then.y, then.scale) == (one.outs[0], 1.0):
            self._products(one, add_to=self.number(then.x))
            self.invalidate(then.x)
            return 2
        self._products(one if plain else replace(one, biases=()))
        if plain:
            return 1
        for out, scale in zip(one.outs, one.scales, strict=False):
            width = self.widths[out]
            weight = self.pointer(torch.full((width,), scale))
            self.add(OpKind.SCALE_CHANNELS, x=self.number(out), width=width, weight=weight)
        for out, delta in zip(one.outs, one.deltas, strict=False):
            if delta is not None:
                self._add_lora(plain_x or one.x, out, delta)
        for out, bias in zip(one.outs, one.biases, strict=False):
            if bias is not None:
                vector = self.pointer(bias)
                self.add(OpKind.BIAS, x=self.number(out), width=self.widths[out], weight=vector)
        return 1

    def _linear_rotated(self, one: Linear, then: Instruction | None) -> int:
        """Rotate x and emit the products of it, for each of the rotations."""
        parts: dict[HadamardRotation | None, list[int]] = {}
        for at, rotation in enumerate(one.rotations):
            parts.setdefault(rotation, []).append(at)
        used = 1
        for rotation, part in parts.items():
            some, x = _part_of(one, part), one.x
            if rotation is not None:
                x = self._rotate(one.x, rotation)
            used = self._linear(replace(some, x=x), then if len(parts) == 1 else None, one.x)
        return used

    def _rotate(self, x: str, rotation: HadamardRotation) -> str:
        """Emit a rotation of x; returns the name of its buffer."""
        out = f"rotated {self.widths[x]}"
        self.number(out, self.widths[x])
        rotate(self, rotation, x, out)
        return out

    def _quantize(self, one: Linear) -> None:
        wanted = (one.x, _group(one))
        if self.quantized != wanted and wanted[1]:
            self.add(
                OpKind.QUANTIZE,
                x=self.number(one.x),
                width=self.widths[one.x],
                quantize=wanted[1],
                barrier=Barrier.BATCH,
            )
            self.quantized = wanted

    def _products(self, one: Linear, activation: int = -1, add_to: int = -1) -> None:
        last = self.ops[-1]
        used = (last.x, last.out) if last.kind == OpKind.NORM else (last.x,)
        written = {add_to, *map(self.number, one.outs)} - {-1}
        if not written.isdisjoint(used):  # another thread may still read or write the buffer
            last.barrier = Barrier.ALWAYS
        for start in range(0, len(one.weights), MAX_WEIGHTS):
            some = one.weights[start : start + MAX_WEIGHTS]
            outs = one.outs[start : start + MAX_WEIGHTS]
            op = self.add(
                OpKind.LINEAR,
                x=self.number(one.x),
                width=self.widths[one.x],
                count=len(some),
                activation=activation,
                add_to=add_to,
            )
            for at, (weight, out) in enumerate(zip(some, outs, strict=True)):
                self._set_weight(op, at, weight)
                op.outs[at] = self.number(out)
                self.invalidate(out)
            for at, bias in enumerate(one.biases[start : start + MAX_WEIGHTS]):
                op.biases[at] = self.pointer(bias)

    def _add_lora(self, x: str, out: str, delta: LoraDelta) -> None:
        """Add the LoRA term (x down^T * scales) up^T to a product that was computed before."""
        rank = delta.down.shape[0]
        middle, added = f"rank {rank}", f"{out} delta"
        self.number(middle, rank)
        self.number(added, self.widths[out])
        self._products(Linear(x, (delta.down,), (middle,)))
        scales = self.pointer(delta.scales)
        self.add(OpKind.SCALE_CHANNELS, x=self.number(middle), width=rank, weight=scales)
        self._products(Linear(middle, (delta.up,), (added,)), add_to=self.number(out))

    def _attend(self, one: Attend) -> None:
        limited = one.cap or one.sinks is not None or not (one.k and one.v)
        full = {"in both directions with more than keys and values": bool(limited)}
        refuse(one, {"in chunks": bool(one.chunk), **({} if one.causal else full)})
        if one.causal:
            keys = self.layers[one.layer].shape
            assert isinstance(keys, LayerShape), f"layer {one.layer} has another state"
            kv_heads = keys.kv_heads
        else:
            kv_heads = self.widths[one.k] // one.head_width
        shape = {
            "layer": one.layer,
            "head_width": one.head_width,
            "heads": self.widths[one.q] // one.head_width,
            "kv_heads": kv_heads,
            "full": not one.causal,
        }
        angles = self.angles[_rope_key(one)]
        self.add(
            OpKind.ROPE,
            x=self.number(one.q),
            y=self.number(one.k) if one.k else -1,
            z=self.number(one.v) if one.v else -1,
            out=self.number(angles),
            pairs=one.frequencies.shape[0],
            interleaved=one.interleaved,
            query_norm=self.pointer(one.query_norm),
            key_norm=self.pointer(one.key_norm),
            epsilon=one.epsilon,
            norms_rotated=one.norms_rotated,
            **shape,
        )
        self.add(
            OpKind.ATTEND,
            x=self.number(one.q),
            out=self.number(one.out),
            scale=one.scale,
            cap=one.cap,
            window=one.window,
            sinks=self.pointer(one.sinks),
            spans=one.spans,
            **shape,
        )
        for name in (one.q, one.k, one.v, one.out):
            self.invalidate(name)

    def _head_norm(self, one: HeadNorm) -> None:
        self.add(
            OpKind.HEAD_NORM,
            x=self.number(one.x),
            weight=self.pointer(one.weight),
            epsilon=one.epsilon,
            heads=one.weight.shape[0],
            head_width=one.weight.shape[1],
            centred=one.centred,
        )
        self.invalidate(one.x)

    def _experts(self, one: Experts) -> None:
        """Route, products with gates and ups, gate, products with downs, weighted sum."""
        self._refuse_experts(one)
        count, chosen = len(one.gates), one.routing.chosen
        inner, width = one.gates[0].shape
        routes = self.number("expert routes", 4 * chosen)
        groups = self.number("expert groups", 2 * count + 2)
        gate, up = (self.number(f"expert {name}", chosen * inner) for name in ("gate", "up"))
        rows = self.number("expert rows", chosen * width)  # inputs and outputs
        shape = {"experts": count, "chosen": chosen}
        routing = library.native_routing(self._kept_routing(one.routing), count)
        route = {"y": routes, "z": groups, "routing": routing, **shape}
        self.add(OpKind.ROUTE, x=self.number(one.scores), **route)
        self.add(OpKind.ORDER_PAIRS, barrier=Barrier.BATCH, **route)
        used = {weight_group(some[0]) for some in (one.gates, one.ups) if some}
        source = one.x
        if one.gate_rotation is not None:
            source = self._rotate(one.x, one.gate_rotation)
        x = self.number(source)
        if 0 in used or one.weighs_input:
            gather = {"out": rows, "width": width, "start": one.weighs_input}
            self.add(OpKind.GATHER, x=x, y=routes, **gather, **shape)
        first = len(self.ops)
        if group := max(used):
            given = {"x": rows} if one.weighs_input else {"x": x, "y": routes}
            self.add(OpKind.QUANTIZE, z=groups, quantize=group, width=width, **given, **shape)
        inputs, outputs = self.weight_array((*one.gates, *one.ups)), self.weight_array(one.downs)
        products = {"gate": gate, "up": up} if one.ups else {"gate": gate}
        op = self.add(
            OpKind.EXPERT_LINEAR,
            x=rows,
            z=groups,
            width=width,
            count=len(products),
            activation=activation_of(one, one.activation),
            limit=one.limit,
            expert_weights=inputs,
            **shape,
        )
        op.outs[: len(products)] = list(products.values())
        op.expert_biases[:] = self.pointer(one.gate_bias), self.pointer(one.up_bias)
        op.expert_scales[:] = self.pointer(one.gate_scale), self.pointer(one.up_scale)
        if one.down_rotation is not None:
            rotate(self, one.down_rotation, "expert gate", "expert gate", chosen=chosen)
        if group := weight_group(one.downs[0]):
            self.add(OpKind.QUANTIZE, x=gate, z=groups, quantize=group, width=inner, **shape)
        op = self.add(
            OpKind.EXPERT_LINEAR,
            x=gate,
            z=groups,
            width=inner,
            count=1,
            expert_weights=outputs,
            **shape,
        )
        op.outs[0] = rows
        op.expert_biases[0] = self.pointer(one.down_bias)
        op.expert_scales[0] = self.pointer(one.down_scale)
        if one.streamer is not None:
            read = partial(one.streamer.read, one.offloaded_layer)
            matrices = (*zip(inputs, (*one.gates, *one.ups), strict=True),)
            matrices += (*zip(outputs, one.downs, strict=True),)
            self.offloaded[first] = StreamedExperts(
                read, len(self.ops), "expert groups", count, matrices
            )
        combine = {"out": self.number(one.out), "width": width, "start": one.weighs_input}
        self.add(OpKind.COMBINE, x=rows, y=routes, **combine, **shape)
        self.quantized = ("", 0)  # overwritten by the rows of the pairs

    @staticmethod
    def _refuse_experts(one: Experts) -> None:
        """Raise NotLowerable unless they read one rotation and one quantized copy of x."""
        refuse_unpacked(one, (*one.gates, *one.ups, *one.downs))
        groups = {weight_group(some[0]) for some in (one.gates, one.ups) if some} - {0}
        lacking = {
            "with LoRA": one.has_changes,
            "with gates and ups of several rotations": bool(one.ups)
            and one.gate_rotation != one.up_rotation,
            "with a rotation of weighed inputs": one.weighs_input and one.gate_rotation is not None,
            "with gates and ups of several formats": len(groups) > 1,
            f"of {len(one.gates)}": len(one.gates) > MAX_EXPERTS,
        }
        refuse(one, lacking)
        _refuse_heads(one, one.down_rotation)

    def _kept_routing(self, one: Routing) -> Routing:
        """A routing whose bias is contiguous and kept."""
        if one.bias is None:
            return one
        bias = one.bias.contiguous()
        self.kept.append(bias)
        return replace(one, bias=bias)

    def _gate(self, one: Gate) -> None:
        self.add(
            OpKind.GATE,
            x=self.number(one.gate),
            y=self.number(one.up) if one.up else -1,
            out=self.number(one.out),
            width=self.widths[one.gate],
            activation=activation_of(one, one.activation),
            limit=one.limit,
        )
        self.invalidate(one.out)

    def add_angles(self, one: Attend) -> None:
        """Emit the RoPE angles of an attention, once for all layers that share them."""
        key = _rope_key(one)
        if key in self.angles:
            return
        name, pairs = f"angles {len(self.angles)}", one.frequencies.shape[0]
        self.angles[key] = name
        # Without RoPE there are no angles, but a buffer needs a width above 0.
        out, weight = self.number(name, max(2 * pairs, 1)), self.pointer(one.frequencies)
        self.add(
            OpKind.ANGLES,
            barrier=Barrier.NEVER,
            out=out,
            axes=self.pointer(one.axes),
            pairs=pairs,
            weight=weight,
            scale=one.rope_scale,
        )

    def _set_weight(self, op: NativeOp, at: int, weight: Weight) -> None:
        self.kept.append(weight)
        op.weights[at] = weights.native(weight)


def _refuse_heads(one: Embed | Experts, rotation: HadamardRotation | None) -> None:
    """Raise NotLowerable for a rotation that cannot be computed in place: it reorders heads."""
    reorders = rotation is not None and rotation.heads != (1, 1)
    refuse(one, {"with a rotation that reorders heads": reorders})


def _group(one: Linear) -> int:
    """Columns of x per quantization scale for these products; 0: they read floats."""
    return max(map(weight_group, one.weights))


def _split_by_group(one: Linear) -> list[Linear]:
    """Split products so that each part reads one quantized copy of x."""
    parts: dict[int, list[int]] = {}
    for at, weight in enumerate(one.weights):
        parts.setdefault(_group(Linear(one.x, (weight,), ("",))), []).append(at)
    if 0 in parts and len(parts) > 1:  # float products can join any part
        exact = parts.pop(0)
        next(iter(parts.values())).extend(exact)
    return [_part_of(one, sorted(part)) for part in parts.values()]


def _part_of(one: Linear, part: Sequence[int]) -> Linear:
    """Some of the products, without their rotations."""
    return Linear(
        one.x,
        tuple(one.weights[at] for at in part),
        tuple(one.outs[at] for at in part),
        tuple(one.deltas[at] for at in part) if one.deltas else (),
        tuple(one.biases[at] for at in part) if one.biases else (),
        tuple(one.scales[at] for at in part) if one.scales else (),
    )


def _reads_only_codes(one: Linear) -> bool:
    """Whether these products read only the quantized copy of x, not its floats."""
    return all(map(weight_group, one.weights))


def _can_fuse_gate(one: Linear, gate: Gate) -> bool:
    rows = {weight.shape[0] for weight in one.weights}
    outs = (gate.gate, gate.up) if gate.up else (gate.gate,)
    return one.outs == outs and gate.out == gate.gate and len(rows) == 1


def _rope_key(one: Attend) -> tuple[float, ...]:
    axes = () if one.axes is None else one.axes.tolist()
    return (one.rope_scale, *one.frequencies.tolist(), *axes)
