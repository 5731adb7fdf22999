"""Lowering of programs for decode steps: instructions to launches of fused kernels.

Of one token for each of a few sequences. A layer is seven launches: two norms; queries, keys and
values; attention with norms, RoPE and page write; output; gate and up; down. The keys of a long
context are shared by thread groups, whose results an eighth one joins. Nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.gpu.turns import Turns
from kernels.metal import attention, elementwise, products, weights
from kernels.metal.products import Launch
from kernels.metal.weights import Operand
from kernels.ops import (
    COMMON_ACTIVATIONS,
    Add,
    Attend,
    Embed,
    Gate,
    GivenRows,
    Instruction,
    Linear,
    Norm,
    Softcap,
)
from kernels.programs.not_lowerable import NotLowerable, refuse
from kernels.programs.program import Program
from kernels.states.kv_pages import PageLayer
from kernels.weights.weight import Weight

_WEIGHTS_AT_ONCE = 3  # of one launch


class Lowering:
    """Launches of a step of so many sequences, and the buffers that they read and write."""

    def __init__(self, program: Program, sequences: int, pages: int, device: torch.device) -> None:
        """`pages` is the width of the page tables. Raises NotLowerable."""
        states = not all(isinstance(layer, PageLayer) for layer in program.kv.layers)
        refuse(program, {"with states of fixed size": states})
        self._program = program
        self._tokens = sequences
        self._device = device
        self.buffers = {
            name: torch.zeros(sequences, width, device=device)
            for name, width in program.widths.items()
        }
        groups = program.kv.groups
        # Ids, positions, and page tables: one copy to the device a step.
        inputs = torch.zeros(2 + groups * pages, sequences, dtype=torch.int64, device=device)
        self._inputs = inputs.flatten()
        self._ids, self._positions = inputs[0], inputs[1]
        self._tables = inputs[2:].view(groups, sequences, pages)
        self._chunks: list[Sequence[Tensor]] = [()] * groups  # buffers of the pages
        self._longest = 0  # positions of a sequence
        self.turns = Turns(sequences, device)
        self._operands: dict[int, Operand] = {}
        self._partial: dict[tuple[int, int], Tensor] = {}
        # Rows are given for tokens of images only, which no step has.
        self.body = self._lower([one for one in program.body if not isinstance(one, GivenRows)])
        self.head = self._lower(program.head)

    def set_inputs(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        tables: Sequence[Sequence[Sequence[int]]],
        chunks: Sequence[Sequence[Tensor]],
    ) -> None:
        """The inputs of the next step: page tables [groups][sequences][pages], and their buffers."""
        entries = (entry for group in tables for row in group for entry in row)
        self._inputs.copy_(torch.tensor([*ids, *positions, *entries]))
        self._chunks = list(chunks)
        self._longest = max(positions) + 1

    def _lower(self, instructions: Sequence[Instruction]) -> list[Launch]:
        launches: list[Launch] = []
        at = 0
        while at < len(instructions):
            after = instructions[at + 1] if at + 1 < len(instructions) else None
            at += self._one(instructions[at], after, launches)
        return launches

    def _one(self, one: Instruction, after: Instruction | None, launches: list[Launch]) -> int:
        """Lower an instruction, with the one after it if both are fused; returns their number."""
        buffers = self.buffers
        match one:
            case Embed():
                parts = one.delta, one.positions, one.types, one.rotation
                refuse(one, {"with more than a table": any(part is not None for part in parts)})
                _refuse_stored(one, one.table)
                table, out = self._operand(one.table), buffers[one.out]
                launches.append(products.embed_launch(self._ids, table, out, one.scale))
            case Norm():
                refuse(one, {"with a bias": one.bias is not None and not one.centred})
                operands = one.weight, one.bias, one.epsilon, one.centred
                launches.append(
                    elementwise.norm_launch(buffers[one.x], *operands, buffers[one.out])
                )
            case Linear():
                return self._linear(one, after, launches)
            case Attend():
                launches.append(self._attend(one))
            case Gate():
                _refuse_gate(one)
                up = buffers[one.up] if one.up else None
                operands = buffers[one.gate], up, one.activation, buffers[one.out]
                launches.append(elementwise.gated_launch(*operands))
            case Add():
                launches.append(elementwise.add_launch(buffers[one.x], buffers[one.y], one.scale))
            case Softcap():
                launches.append(elementwise.softcap_launch(buffers[one.x], one.cap))
            case _:
                raise NotLowerable(one)
        return 1

    def _linear(self, one: Linear, after: Instruction | None, launches: list[Launch]) -> int:
        lacking = {
            "with scales": bool(one.scales),
            "with LoRA": any(one.deltas),
            "with rotations": any(one.rotations),
            "with biases": any(bias is not None for bias in one.biases),
        }
        refuse(one, lacking)
        _refuse_stored(one, *one.weights)
        operands = [self._operand(weight) for weight in one.weights]
        x, tokens = self.buffers[one.x], self._tokens
        if isinstance(after, Gate) and _is_gate_of(one, after):
            _refuse_gate(after)
            (gate, up), out = operands, self.buffers[after.out]
            activation = after.activation
            launches.append(products.gated_launch(x, gate, up, activation, tokens, out))
            return 2
        if isinstance(after, Add) and one.outs == (after.y,) and after.x not in (one.x, after.y):
            residual = self.buffers[after.x]
            launches.append(products.added_launch(x, operands[0], residual, tokens, after.scale))
            return 2
        for start in range(0, len(operands), _WEIGHTS_AT_ONCE):
            some = slice(start, start + _WEIGHTS_AT_ONCE)
            outs = [self.buffers[name] for name in one.outs[some]]
            launches.append(products.linear_launch(x, operands[some], outs, tokens))
        return 1

    def _attend(self, one: Attend) -> Launch:
        heads = attention.MetalHeads.of(one, self._program)
        buffers, group = self.buffers, heads.layer.group
        key = heads.heads, heads.width
        if key not in self._partial:
            self._partial[key] = attention.new_partial(heads, self._tokens, self._device)
        k, v = (buffers[name] if name else None for name in (one.k, one.v))
        inputs = self._positions, self._tables[group], self._partial[key], buffers[one.out]
        turns = self.turns.of(one.axes)
        step = attention.step_launch(heads, buffers[one.q], k, v, *inputs, turns)
        return lambda: step(self._chunks[group], self._longest)

    def _operand(self, weight: Weight) -> Operand:
        if id(weight) not in self._operands:
            self._operands[id(weight)] = weights.operand(weight)
        return self._operands[id(weight)]


def _refuse_stored(one: Embed | Linear, *some: Weight) -> None:
    """Raise NotLowerable unless weights are stored for the kernels."""
    refuse(one, {"with weights stored otherwise": not all(map(weights.STORE.has, some))})


def _refuse_gate(one: Gate) -> None:
    lacking = {
        f"with the activation {one.activation.value}": one.activation not in COMMON_ACTIVATIONS,
        "with a limit": bool(one.limit),
    }
    refuse(one, lacking)


def _is_gate_of(one: Linear, gate: Gate) -> bool:
    rows = {weight.shape[0] for weight in one.weights}
    return one.outs == (gate.gate, gate.up) and gate.out != one.x and len(rows) == 1
