"""Lowering of programs for decode steps: instructions to launches of fused kernels.

Of one token for each of some sequences. For up to four a layer is five launches: queries, keys and
values; attention with norms, RoPE and page write; output; gate and up; down. The products that end
in the residual stream prepare the norm after them, and activations go from kernel to kernel
quantized. Adapters take two launches more for the products of one x, a mixture of experts four in
place of two, a layer with a recurrence has three more: convolutions, recurrence, its norm and
gate. For more sequences products run on tensor cores, one launch for each instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.cuda import adapters, attention, experts, launch, weights
from kernels.cuda.attention import CudaHeads, Scratch
from kernels.cuda.dataflow import Uses, is_gate_of, uses
from kernels.cuda.launch import Quantized
from kernels.cuda.lowering_layers import Launch, lower_layer
from kernels.cuda.states import Steps
from kernels.cuda.weights import Operand
from kernels.gpu.layout import UNIT
from kernels.gpu.turns import Turns
from kernels.ops import (
    Add,
    Attend,
    Embed,
    Experts,
    Gate,
    GivenRows,
    Instruction,
    Linear,
    LoraDelta,
    Norm,
    RowTable,
)
from kernels.programs.not_lowerable import refuse
from kernels.programs.program import Program
from kernels.weights.weight import Weight


class Lowering:
    """Launches of a step of so many sequences, and the buffers that they read and write."""

    def __init__(self, program: Program, sequences: int, pages: int, device: torch.device) -> None:
        """`pages` is the width of the page tables. Raises NotLowerable."""
        self.program = program
        self.tokens = sequences
        self.is_wide = sequences > launch.FEW
        self.device = device
        rows = launch.padded(sequences)
        self.buffers = {
            name: torch.zeros(rows, width, device=device) for name, width in program.widths.items()
        }
        self.ids = torch.zeros(sequences, dtype=torch.int64, device=device)
        self.positions = torch.zeros(sequences, dtype=torch.int64, device=device)
        self.turns = Turns(sequences, device)
        groups = max(program.kv.groups, 1)
        self.tables = torch.zeros(groups, sequences, pages, dtype=torch.int64, device=device)
        self._operands: dict[int, Operand] = {}
        self._scratch: dict[tuple[int, ...], Scratch] = {}
        self.quantized: dict[str, Quantized] = {}
        # Rows that the host looks up before a step runs, and where it leaves them.
        self.looked_up: list[tuple[RowTable, Tensor]] = []
        self._deferred: tuple[str, int, Quantized] | None = None  # buffer, id of the norm's weight
        # Rows are given for tokens of images only, which no step has.
        self.body = self._lower([one for one in program.body if not isinstance(one, GivenRows)])
        self.quantized.clear()
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
        one = rest[0]
        match one:
            case Embed():
                self._embed(one, launches)
            case Norm():
                self._norm(one, rest[1:], launches)
            case Linear():
                return self._linear(one, rest[1:], launches)
            case Attend():
                self._attend(one, rest[1:], launches)
            case Experts():
                return self._experts(one, rest[1:], launches)
            case _:
                return lower_layer(self, rest, launches)
        return 1

    def _embed(self, one: Embed, launches: list[Launch]) -> None:
        lacking = {
            "with a rotation": one.rotation is not None,
            "with types of tokens": one.types is not None,
        }
        refuse(one, lacking)
        _refuse_stored(one, one.table, *(() if one.positions is None else (one.positions,)))
        table, out, scale = self._operand(one.table), self.buffers[one.out], one.scale
        tokens, delta, positions = self.tokens, one.delta, one.positions
        if delta is None:
            launches.append(lambda: launch.embed(self.ids, table, out, scale))
        else:
            launches.append(lambda: launch.embed(self.ids, table, out))
            down, up = adapters.dense(delta.down), adapters.dense(delta.up)
            scales = delta.scales
            launches.append(lambda: _embed_change(self.ids, down, up, scales, out, tokens, scale))
        if positions is not None:
            learned, rows = self._operand(positions), torch.zeros_like(out)
            launches.append(lambda: launch.embed(self.positions, learned, rows))
            launches.append(lambda: _add(out, rows, 1.0))
        self.written(one.out)

    def _norm(self, one: Norm, then: Sequence[Instruction], launches: list[Launch]) -> None:
        buffers, tokens = self.buffers, self.tokens
        deferred = self._deferred
        if deferred and deferred[:2] == (one.x, id(one.weight)):
            self.written(one.out)
            self.quantized[one.out] = deferred[2]
            return
        found = self._uses(one.out, then)
        codes = one.x != one.out and found.codes
        made = self.new_quantized(self.program.widths[one.out]) if codes else None
        x, out = buffers[one.x], None if codes and not found.floats else buffers[one.out]
        operands = one.weight, one.bias, one.epsilon, one.centred
        launches.append(lambda: launch.normed(x, *operands, tokens, out, made))
        self.written(one.out)
        if made is not None:
            self.quantized[one.out] = made

    def _uses(self, name: str, then: Sequence[Instruction]) -> Uses:
        found = uses(name, then)
        return Uses(True, False, False) if self.is_wide else found

    def is_dead(self, name: str, then: Sequence[Instruction]) -> bool:
        """Whether no instruction reads the values that a buffer has before `then`."""
        kept = name in (self.program.hidden, self.program.logits)
        return not kept and not any(uses(name, then))

    def steps(self, group: int) -> Steps:
        """Positions and page tables of a group."""
        return Steps(self.positions, self.tables[group])

    def reads_codes(self, name: str, then: Sequence[Instruction]) -> bool:
        """Whether all that read a buffer read its quantized copy."""
        found = self._uses(name, then)
        return found.codes and not found.floats

    def _linear(self, one: Linear, then: Sequence[Instruction], launches: list[Launch]) -> int:
        refuse(one, {"with rotations": any(one.rotations)})
        _refuse_stored(one, *one.weights)
        operands = [self._operand(weight) for weight in one.weights]
        biases = one.biases or (None,) * len(operands)
        scales = one.scales or (1.0,) * len(operands)
        is_plain = not any(one.deltas) and set(scales) == {1.0}
        if self.is_wide:
            self._wide(one, operands, biases, launches)
            return 1
        x, tokens = self.buffers[one.x], self.tokens
        codes = self._codes_of(one.x, all(each.reads_floats for each in operands), launches)
        after = then[0] if then else None
        if isinstance(after, Gate) and is_gate_of(one, after) and is_plain:
            self._gated(one, after, then[1:], operands, biases, codes, launches)
            return 2
        deferred = codes is not None and codes.squares is not None
        alone = len(operands) == 1 and not deferred and is_plain
        # A product that is added to its own input would read rows that it has written.
        if isinstance(after, Add) and alone and after.y == one.outs[0] and after.x != one.x:
            self._added(after, then[1:], operands[0], biases[0], x, codes, launches)
            return 2
        for start in range(0, len(operands), 3):
            part = slice(start, start + 3)
            some, added, factors = operands[part], biases[part], scales[part]
            outs = [self.buffers[name] for name in one.outs[part]]
            launches.append(
                lambda some=some, outs=outs, added=added, factors=factors: launch.linear(
                    x, codes, some, outs, tokens, added, factors
                )
            )
        self._changes(one, launches)
        for name in one.outs:
            self.written(name)
        return 1

    def _wide(
        self,
        one: Linear,
        operands: Sequence[Operand],
        biases: Sequence[Tensor | None],
        launches: list[Launch],
    ) -> None:
        """Products of more than a few tokens."""
        x, tokens = self.buffers[one.x], self.tokens
        scales = one.scales or (1.0,) * len(operands)
        for weight, operand, bias, scale, name in zip(
            one.weights, operands, biases, scales, one.outs, strict=True
        ):
            out = self.buffers[name]
            if weight.format.name == "F32":
                matrix = adapters.dense(weight)
                launches.append(lambda matrix=matrix, out=out: _product(x, matrix, out))
            else:
                launches.append(
                    lambda operand=operand, out=out: launch.linear_tiles(x, operand, out, tokens)
                )
            if scale != 1.0:
                launches.append(lambda out=out, scale=scale: _scale(out, scale))
            if bias is not None:
                launches.append(lambda out=out, bias=bias: _add(out, bias, 1.0))
        self._changes(one, launches)
        for name in one.outs:
            self.written(name)

    def _changes(self, one: Linear, launches: list[Launch]) -> None:
        """The LoRA terms of products, added to them."""
        changed: list[tuple[LoraDelta, Tensor]] = [
            (delta, self.buffers[name])
            for delta, name in zip(one.deltas, one.outs, strict=False)
            if delta is not None
        ]
        x = self.buffers[one.x]
        for start in range(0, len(changed), 3):
            some = changed[start : start + 3]
            terms = adapters.Terms([delta for delta, _ in some], self.tokens, self.device)
            outs = [out for _, out in some]
            launches.append(lambda terms=terms, outs=outs: terms.add(x, outs))

    def _experts(self, one: Experts, then: Sequence[Instruction], launches: list[Launch]) -> int:
        _refuse_experts(one)
        x, scores, tokens = self.buffers[one.x], self.buffers[one.scores], self.tokens
        gates, downs = (experts.table(some, self.device) for some in (one.gates, one.downs))
        ups = experts.table(one.ups, self.device) if one.ups else None
        options, routing = experts.Options.of(one), one.routing
        inner, rows = gates.like.rows, tokens * one.routing.chosen
        routes = experts.new_routes(tokens, one.routing.chosen, self.device)
        codes = self._codes_of(one.x, gates.like.reads_floats, launches)
        floats = downs.like.reads_floats or inner % UNIT != 0
        hidden = torch.zeros(launch.padded(rows), inner if floats else 1, device=self.device)
        made = None if downs.like.reads_floats else launch.new_quantized(rows, inner, self.device)
        out = hidden if floats else None
        between = None if floats else made
        launches.append(lambda: experts.route(scores, tokens, routes, routing))
        launches.append(
            lambda: experts.gated(
                x, codes, routes, gates, ups, one.activation, tokens, out, between, options
            )
        )
        if floats and made is not None:
            launches.append(lambda: _quantize(hidden, rows, made))
        self.written(one.out)
        add = then[0] if then else None
        if isinstance(add, Add) and add.y == one.out:
            residual, scale = self.buffers[add.x], add.scale
            self.written(add.x)
            weight, deferred = self._prepared_norm(add.x, downs.like.rows, then[1:])
        else:
            residual, scale, weight, deferred = self.buffers[one.out], 1.0, None, None
            add = None
            launches.append(lambda: _clear(residual))
        launches.append(
            lambda: experts.added(
                hidden, made, routes, downs, residual, tokens, scale, weight, deferred, options
            )
        )
        return 1 if add is None else 2

    def _prepared_norm(
        self, name: str, rows: int, then: Sequence[Instruction]
    ) -> tuple[Tensor | None, Quantized | None]:
        """Weight and result of a norm that the kernel before it prepares, if the next one is."""
        norm = then[0] if then else None
        if (
            self.is_wide
            or not isinstance(norm, Norm)
            or norm.centred
            or norm.bias is not None
            or not norm.x == name != norm.out
            or rows % UNIT
            or not uses(norm.out, then[1:]).deferred
        ):
            return None, None
        made = launch.new_deferred(self.tokens, rows, norm.epsilon, self.device)
        self._deferred = name, id(norm.weight), made
        return norm.weight, made

    def _codes_of(self, name: str, floats: bool, launches: list[Launch]) -> Quantized | None:
        """The quantized x of products, made here if no kernel before did; None if they read floats."""
        if floats:
            return None
        if name not in self.quantized:
            x, made = self.buffers[name], self.new_quantized(self.program.widths[name])
            tokens = self.tokens
            launches.append(lambda: _quantize(x, tokens, made))
            self.quantized[name] = made
        return self.quantized[name]

    def _gated(
        self,
        one: Linear,
        gate: Gate,
        then: Sequence[Instruction],
        operands: Sequence[Operand],
        biases: Sequence[Tensor | None],
        codes: Quantized | None,
        launches: list[Launch],
    ) -> None:
        first, second = operands
        quantize = first.rows % UNIT == 0 and self.reads_codes(gate.out, then)
        made = self.new_quantized(first.rows) if quantize else None
        out = None if quantize else self.buffers[gate.out]
        x, tokens = self.buffers[one.x], self.tokens
        launches.append(
            lambda: launch.linear_gated(
                x, codes, first, second, gate.activation, tokens, out, made, biases, gate.limit
            )
        )
        for name in (gate.gate, gate.up, gate.out):
            self.written(name)
        if made is not None:
            self.quantized[gate.out] = made

    def _added(
        self,
        add: Add,
        then: Sequence[Instruction],
        operand: Operand,
        bias: Tensor | None,
        x: Tensor,
        codes: Quantized | None,
        launches: list[Launch],
    ) -> None:
        residual, tokens = self.buffers[add.x], self.tokens
        self.written(add.x)
        self.written(add.y)
        weight, made = self._prepared_norm(add.x, operand.rows, then)
        launches.append(
            lambda: launch.linear_added(
                x, codes, operand, residual, tokens, add.scale, weight, made, bias
            )
        )

    def _attend(self, one: Attend, then: Sequence[Instruction], launches: list[Launch]) -> None:
        heads = CudaHeads.of(one, self.program)
        buffers, layer = self.buffers, heads.layer
        quantize = one.head_width % UNIT == 0 and self.reads_codes(one.out, then)
        made = self.new_quantized(self.program.widths[one.q]) if quantize else None
        scratch = self._scratch_of(heads)
        q, out, table = buffers[one.q], buffers[one.out], self.tables[layer.group]
        k, v = (buffers[name] if name else None for name in (one.k, one.v))
        turns = self.turns.of(one.axes)
        launches.append(
            lambda: attention.attend_step(
                heads, q, k, v, self.positions, table, scratch, out, made, turns
            )
        )
        self.written(one.out)
        if made is not None:
            self.quantized[one.out] = made

    def _scratch_of(self, heads: CudaHeads) -> Scratch:
        key = heads.kv_heads, heads.group, heads.width
        if key not in self._scratch:
            self._scratch[key] = attention.scratch_for(
                heads, self.tokens, attention.MOST_SPLITS, self.device
            )
        return self._scratch[key]

    def _operand(self, weight: Weight) -> Operand:
        if id(weight) not in self._operands:
            self._operands[id(weight)] = weights.operand(weight)
        return self._operands[id(weight)]

    def new_quantized(self, columns: int) -> Quantized:
        return launch.new_quantized(self.tokens, columns, self.device)

    def written(self, name: str) -> None:
        """A buffer has other values now."""
        self.quantized.pop(name, None)
        if self._deferred and self._deferred[0] == name:
            self._deferred = None


def _refuse_stored(one: Instruction, *some: Weight) -> None:
    """Raise NotLowerable unless weights are stored for the kernels, or are F32."""
    readable = all(weights.STORE.has(weight) or weight.format.name == "F32" for weight in some)
    refuse(one, {"with weights stored otherwise": not readable})


def _refuse_experts(one: Experts) -> None:
    """Raise NotLowerable unless they read x as it is, by weights of one format for each matrix."""
    every = (*one.gates, *one.ups, *one.downs)
    inputs = {weight.format.name for weight in (*one.gates, *one.ups)}
    outputs = {weight.format.name for weight in one.downs}
    lacking = {
        "with rotations": any((one.gate_rotation, one.up_rotation, one.down_rotation)),
        "with LoRA": one.has_changes,
        "with weights of several formats": len(inputs) > 1 or len(outputs) > 1,
        "with weights stored otherwise": not all(map(weights.STORE.has, every)),
    }
    refuse(one, lacking)


def _quantize(x: Tensor, tokens: int, made: Quantized) -> None:
    launch.quantized(x, tokens, made)


def _add(x: Tensor, y: Tensor, scale: float) -> None:
    x.add_(y, alpha=scale)


def _scale(x: Tensor, scale: float) -> None:
    x.mul_(scale)


def _clear(x: Tensor) -> None:
    x.zero_()


def _product(x: Tensor, matrix: Tensor, out: Tensor) -> None:
    torch.mm(x, matrix.T, out=out)


def _embed_change(
    ids: Tensor,
    down: Tensor,
    up: Tensor,
    scales: Tensor,
    out: Tensor,
    tokens: int,
    scale: float,
) -> None:
    """out = (rows + their LoRA terms) * scale."""
    out[:tokens].addmm_(down.index_select(0, ids) * scales, up.T)
    if scale != 1.0:
        out.mul_(scale)
