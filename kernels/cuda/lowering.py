"""Lowering of programs for decode steps: instructions to launches of fused kernels.

Of one token for each of a few sequences. A layer is five launches: queries, keys and values;
attention with norms, RoPE and page write; output; gate and up; down. The products that end in the
residual stream prepare the norm after them, and activations go from kernel to kernel quantized.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels.cuda import attention, launch, weights
from kernels.cuda.attention import Heads, Scratch
from kernels.cuda.launch import Quantized
from kernels.cuda.layout import UNIT
from kernels.cuda.weights import Operand
from kernels.kv_pages import PageLayer
from kernels.program import (
    Add,
    Attend,
    Embed,
    Gate,
    Instruction,
    Linear,
    Norm,
    Program,
    Softcap,
)
from kernels.weight import Weight

Launch = Callable[[], None]


def can_lower(program: Program) -> bool:
    """Whether fused kernels can run a program; the others are run op by op."""
    if not all(isinstance(layer, PageLayer) for layer in program.kv.layers):
        return False
    return all(map(_is_known, (*program.body, *program.head)))


def _is_known(one: Instruction) -> bool:
    match one:
        case Embed():
            plain = one.change is None and one.positions is None and one.types is None
            return plain and weights.is_stored(one.table)
        case Linear():
            plain = not any(one.changes) and all(bias is None for bias in one.biases)
            return plain and all(map(weights.is_stored, one.weights))
        case Attend():
            both = (one.query_norm is None) == (one.key_norm is None)
            return one.causal and (both or not one.k)
        case Norm() | Gate() | Add() | Softcap():
            return True
        case _:
            return False


class Lowering:
    """Launches of a step of so many sequences, and the buffers that they read and write."""

    def __init__(self, program: Program, sequences: int, pages: int, device: torch.device) -> None:
        """`pages` is the width of the page tables."""
        self._program = program
        self._tokens = sequences
        self._device = device
        rows = launch.padded(sequences)
        self.buffers = {
            name: torch.zeros(rows, width, device=device) for name, width in program.widths.items()
        }
        self.ids = torch.zeros(sequences, dtype=torch.int64, device=device)
        self.positions = torch.zeros(sequences, dtype=torch.int64, device=device)
        groups = max(program.kv.groups, 1)
        self.tables = torch.zeros(groups, sequences, pages, dtype=torch.int64, device=device)
        self._operands: dict[int, Operand] = {}
        self._scratch: dict[tuple[int, ...], Scratch] = {}
        self._quantized: dict[str, Quantized] = {}
        self._deferred: tuple[str, int, Quantized] | None = None  # buffer, id of the norm's weight
        self.body = self._lower(program.body)
        self._quantized.clear()
        self.head = self._lower(program.head)

    def _lower(self, instructions: Sequence[Instruction]) -> list[Launch]:
        launches: list[Launch] = []
        self._deferred = None
        at = 0
        while at < len(instructions):
            at += self._one(instructions[at:], launches)
        return launches

    def _one(self, rest: Sequence[Instruction], launches: list[Launch]) -> int:
        """Lower the first instruction, with those that are fused to it; returns their number."""
        one, buffers = rest[0], self.buffers
        match one:
            case Embed():
                table, out, scale = self._operand(one.table), buffers[one.out], one.scale
                launches.append(lambda: launch.embed(self.ids, table, out, scale))
                self._written(one.out)
            case Norm():
                self._norm(one, rest[1:], launches)
            case Linear():
                return self._linear(one, rest[1:], launches)
            case Attend():
                self._attend(one, rest[1:], launches)
            case Gate():
                up = buffers[one.up] if one.up else None
                gate, out, activation = buffers[one.gate], buffers[one.out], one.activation
                launches.append(lambda: launch.gated(gate, up, activation, out))
                self._written(one.out)
            case Add():
                x, y, factor = buffers[one.x], buffers[one.y], one.scale
                launches.append(lambda: _add(x, y, factor))
                self._written(one.x)
            case Softcap():
                x, cap = buffers[one.x], one.cap
                launches.append(lambda: _softcap(x, cap))
                self._written(one.x)
            case _:
                raise ValueError(f"{type(one).__name__}: `can_lower` refuses it")
        return 1

    def _norm(self, one: Norm, then: Sequence[Instruction], launches: list[Launch]) -> None:
        buffers, tokens = self.buffers, self._tokens
        deferred = self._deferred
        if deferred and deferred[:2] == (one.x, id(one.weight)):
            self._written(one.out)
            self._quantized[one.out] = deferred[2]
            return
        codes = one.x != one.out and _reads_codes(one.out, then)
        made = self._new_quantized(self._program.widths[one.out]) if codes else None
        x, out = buffers[one.x], None if codes else buffers[one.out]
        operands = one.weight, one.bias, one.epsilon, one.centred
        launches.append(lambda: launch.normed(x, *operands, tokens, out, made))
        self._written(one.out)
        if made is not None:
            self._quantized[one.out] = made

    def _linear(self, one: Linear, then: Sequence[Instruction], launches: list[Launch]) -> int:
        operands = [self._operand(weight) for weight in one.weights]
        x, tokens = self.buffers[one.x], self._tokens
        codes = self._codes_of(one, operands, launches)
        after = then[0] if then else None
        if isinstance(after, Gate) and _is_gate_of(one, after):
            self._gated(one, after, then[1:], operands, codes, launches)
            return 2
        deferred = codes is not None and codes.squares is not None
        alone = len(operands) == 1 and not deferred
        if isinstance(after, Add) and alone and after.y == one.outs[0]:
            self._added(after, then[1:], operands[0], x, codes, launches)
            return 2
        for start in range(0, len(operands), 3):
            some = operands[start : start + 3]
            outs = [self.buffers[name] for name in one.outs[start : start + 3]]
            launches.append(
                lambda some=some, outs=outs: launch.linear(x, codes, some, outs, tokens)
            )
        for name in one.outs:
            self._written(name)
        return 1

    def _codes_of(
        self, one: Linear, operands: Sequence[Operand], launches: list[Launch]
    ) -> Quantized | None:
        """The quantized x of products, which is made here if no kernel before did."""
        if all(each.reads_floats for each in operands):
            return None
        if one.x not in self._quantized:
            x, made = self.buffers[one.x], self._new_quantized(self._program.widths[one.x])
            tokens = self._tokens
            launches.append(lambda: _quantize(x, tokens, made))
            self._quantized[one.x] = made
        return self._quantized[one.x]

    def _gated(
        self,
        one: Linear,
        gate: Gate,
        then: Sequence[Instruction],
        operands: Sequence[Operand],
        codes: Quantized | None,
        launches: list[Launch],
    ) -> None:
        first, second = operands
        quantize = first.rows % UNIT == 0 and _reads_codes(gate.out, then)
        made = self._new_quantized(first.rows) if quantize else None
        out = None if quantize else self.buffers[gate.out]
        x, tokens = self.buffers[one.x], self._tokens
        launches.append(
            lambda: launch.linear_gated(x, codes, first, second, gate.activation, tokens, out, made)
        )
        for name in (gate.gate, gate.up, gate.out):
            self._written(name)
        if made is not None:
            self._quantized[gate.out] = made

    def _added(
        self,
        add: Add,
        then: Sequence[Instruction],
        operand: Operand,
        x: Tensor,
        codes: Quantized | None,
        launches: list[Launch],
    ) -> None:
        residual, tokens, norm = self.buffers[add.x], self._tokens, then[0] if then else None
        made, weight = None, None
        self._written(add.x)
        self._written(add.y)
        if (
            isinstance(norm, Norm)
            and not norm.centred
            and norm.x == add.x != norm.out
            and operand.rows % UNIT == 0
            and _reads_codes(norm.out, then[1:])
        ):
            made = launch.new_deferred(tokens, operand.rows, norm.epsilon, self._device)
            weight = norm.weight
            self._deferred = add.x, id(norm.weight), made
        launches.append(
            lambda: launch.linear_added(
                x, codes, operand, residual, tokens, add.scale, weight, made
            )
        )

    def _attend(self, one: Attend, then: Sequence[Instruction], launches: list[Launch]) -> None:
        layer = self._program.kv.kv(one.layer)
        buffers, width = self.buffers, self._program.widths[one.q]
        heads = Heads(
            layer,
            width // one.head_width,
            one.query_norm,
            one.key_norm if one.key_norm is not None else one.query_norm,
            one.epsilon,
            one.frequencies,
            one.interleaved,
            one.rope_scale,
            one.scale,
            one.window,
            one.cap,
        )
        quantize = one.head_width % UNIT == 0 and _reads_codes(one.out, then)
        made = self._new_quantized(width) if quantize else None
        scratch = self._scratch_of(heads)
        q, out, table = buffers[one.q], buffers[one.out], self.tables[layer.group]
        k, v = (buffers[name] if name else None for name in (one.k, one.v))
        launches.append(
            lambda: attention.attend_step(heads, q, k, v, self.positions, table, scratch, out, made)
        )
        self._written(one.out)
        if made is not None:
            self._quantized[one.out] = made

    def _scratch_of(self, heads: Heads) -> Scratch:
        key = heads.kv_heads, heads.group, heads.width
        if key not in self._scratch:
            self._scratch[key] = attention.scratch_for(
                heads, self._tokens, attention.MOST_SPLITS, self._device
            )
        return self._scratch[key]

    def _operand(self, weight: Weight) -> Operand:
        if id(weight) not in self._operands:
            self._operands[id(weight)] = weights.operand(weight)
        return self._operands[id(weight)]

    def _new_quantized(self, columns: int) -> Quantized:
        return launch.new_quantized(self._tokens, columns, self._device)

    def _written(self, name: str) -> None:
        """A buffer has other values now."""
        self._quantized.pop(name, None)
        if self._deferred and self._deferred[0] == name:
            self._deferred = None


def _is_gate_of(one: Linear, gate: Gate) -> bool:
    rows = {weight.shape[0] for weight in one.weights}
    return one.outs == (gate.gate, gate.up) and gate.out == gate.gate and len(rows) == 1


def _reads_codes(name: str, then: Sequence[Instruction]) -> bool:
    """Whether all that read a buffer before it is written again are products of packed weights."""
    found = False
    for one in then:
        if isinstance(one, Linear) and one.x == name:
            if any(weights.reads_floats(weight.format) for weight in one.weights):
                return False
            found = True
            if name in one.outs:
                return True
        elif name in _read(one):
            return False
        if name in _written(one):
            return found
    return found


def _read(one: Instruction) -> tuple[str, ...]:
    match one:
        case Norm():
            return (one.x,)
        case Attend():
            return one.q, one.k, one.v
        case Gate():
            return one.gate, one.up
        case Add():
            return one.x, one.y
        case Softcap():
            return (one.x,)
        case _:
            return ()


def _written(one: Instruction) -> tuple[str, ...]:
    match one:
        case Linear():
            return one.outs
        case Norm() | Embed() | Attend() | Gate():
            return (one.out,)
        case _:
            return ()


def _quantize(x: Tensor, tokens: int, made: Quantized) -> None:
    launch.quantized(x, tokens, made)


def _add(x: Tensor, y: Tensor, scale: float) -> None:
    x.add_(y, alpha=scale)


def _softcap(x: Tensor, cap: float) -> None:
    x.div_(cap).tanh_().mul_(cap)
