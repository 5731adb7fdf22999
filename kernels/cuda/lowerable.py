"""Which programs the fused kernels run as recorded steps: with readable weights and known options."""

from __future__ import annotations

from kernels.cuda import weights
from kernels.gpu.heads import has_equal_norms
from kernels.program import (
    Add,
    AddRows,
    Attend,
    Columns,
    Embed,
    Experts,
    Gate,
    HeadGate,
    HeadNorm,
    Instruction,
    Join,
    Linear,
    Multiply,
    Norm,
    PositionScale,
    Program,
    Recurrence,
    Scale,
    ShortConv,
    Softcap,
    Xielu,
)
from kernels.streams import AddToStreams, GaussianTopK, MatchMagnitude, MixStreams, ScaleChannels
from kernels.weight import Weight

MOST_CHANNELS = 256  # of a head whose attention has a kernel


def can_lower(program: Program) -> bool:
    """Whether fused kernels can run a program; the others are run op by op."""
    return all(map(_is_known, (*program.body, *program.head)))


def _is_known(one: Instruction) -> bool:
    match one:
        case Embed():
            known = one.positions is None or _is_readable(one.positions)
            known = known and one.rotation is None
            return known and one.types is None and _is_readable(one.table)
        case Linear():
            return not any(one.rotations) and all(map(_is_readable, one.weights))
        case Experts():
            return _are_known(one)
        case Attend():
            return can_attend(one)
        case Norm() | HeadNorm() | Gate() | HeadGate() | Multiply() | Add() | AddRows() | Scale():
            return True
        case Columns() | Join() | PositionScale() | Xielu() | Softcap():
            return True
        case ShortConv():
            return one.causal
        case Recurrence():
            return True
        case MixStreams() | AddToStreams() | MatchMagnitude() | ScaleChannels() | GaussianTopK():
            return True
        case _:
            return False


def can_attend(one: Attend) -> bool:
    """Whether the attention kernels can run an instruction: a head's channels fit in registers."""
    fits = one.head_width <= MOST_CHANNELS and not one.values_are_keys
    return one.causal and fits and has_equal_norms(one)


def _are_known(one: Experts) -> bool:
    """Whether experts read x as it is, with weights of one format for each matrix."""
    every = (*one.gates, *one.ups, *one.downs)
    alike = len({weight.format.name for weight in (*one.gates, *one.ups)}) == 1
    alike = alike and len({weight.format.name for weight in one.downs}) == 1
    rotated = any((one.gate_rotation, one.up_rotation, one.down_rotation))
    return alike and not rotated and not one.has_changes and all(map(weights.STORE.has, every))


def _is_readable(weight: Weight) -> bool:
    return weights.STORE.has(weight) or weight.format.name == "F32"
