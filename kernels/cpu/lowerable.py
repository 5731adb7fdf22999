"""Which programs native operations can run: those with packed weights and known options."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.cpu import library, weights
from kernels.cpu.schema import MAX_EXPERTS, MAX_STREAMS, MAX_TAPS, NativeActivation
from kernels.kv_pages import KVLayout, StateLayer
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
from kernels.rotation import Rotation
from kernels.streams import AddToStreams, GaussianTopK, MatchMagnitude, MixStreams, ScaleChannels
from kernels.weight import Weight


def can_lower(program: Program) -> bool:
    """Whether native operations can run a program: all its weights must be packed."""
    if any(isinstance(one, AddRows) for one in program.head):  # which has no tokens
        return False
    parts = (*program.body, *program.head)
    return all(_is_native(one, program.kv, program.widths) for one in parts)


def weight_group(weight: Weight) -> int:
    """Columns of x per quantization scale for a product; 0: it reads floats."""
    return library.native().nk_activation_group(weight.format.id)


def _is_native(one: Instruction, kv: KVLayout, widths: Mapping[str, int]) -> bool:
    match one:
        case Embed():
            return _is_native_embed(one)
        case Linear():
            return all(map(weights.is_packed, _weights_of(one)))
        case HeadLinear():
            return not one.changes and _have_one_group(one.weights)
        case Attend():
            plain = not one.cap and one.sinks is None and bool(one.k and one.v)
            return not one.chunk and (one.causal or plain)
        case Gate() | HeadGate():
            return _is_known(one.activation)
        case Experts():
            return _is_native_mixture(one)
        case ShortConv():
            known = one.activation is None or _is_known(one.activation)
            known = known and one.causal and one.weight.shape[1] <= MAX_TAPS
            return known and _has_state(kv, one.layer)
        case Recurrence():
            by_head = one.decay_bias.numel() == one.rate.numel()
            return (bool(one.strength) or by_head) and _has_state(kv, one.layer)
        case MixStreams():
            return widths[one.coefficients] <= MAX_STREAMS**2
        case AddToStreams() | MatchMagnitude() | ScaleChannels() | GaussianTopK():
            return True
        case Norm() | HeadNorm() | Multiply() | Scale() | PositionScale() | Xielu():
            return True
        case Columns() | Join() | Add() | AddRows() | Softcap() | Fetch():
            return True
        case _:
            return False


def _is_known(activation: Activation) -> bool:
    return activation.name in NativeActivation.__members__


def _has_state(kv: KVLayout, layer: int) -> bool:
    return isinstance(kv.layers[layer], StateLayer)


def _is_native_embed(one: Embed) -> bool:
    if not _is_plain_rotation(one.rotation):
        return False
    if one.rotation is not None and (one.positions is not None or one.types is not None):
        return False
    change = () if one.change is None else (one.change.down, one.change.up)
    return all(map(weights.is_packed, filter(None, (one.table, one.positions, one.types, *change))))


def _is_plain_rotation(one: Rotation | None) -> bool:
    """Whether it can be computed in place, because it does not reorder heads."""
    return one is None or one.heads == (1, 1)


def _weights_of(one: Linear) -> list[Weight]:
    """The matrices of products and of their LoRA terms."""
    changes = [change for change in one.changes if change is not None]
    return [*one.weights, *(half for change in changes for half in (change.down, change.up))]


def _have_one_group(matrices: tuple[Weight, ...]) -> bool:
    """Whether matrices are packed and read the same copy of x."""
    return all(map(weights.is_packed, matrices)) and len(set(map(weight_group, matrices))) == 1


def _is_native_mixture(one: Experts) -> bool:
    """Packed weights that read at most one quantized copy of x, in one rotation of it."""
    rotations = {one.gate_rotation, one.up_rotation if one.ups else one.gate_rotation}
    if one.has_changes or len(rotations) > 1 or not _is_plain_rotation(one.down_rotation):
        return False
    if one.weighs_input and one.gate_rotation is not None:
        return False
    matrices = (*one.gates, *one.ups, *one.downs)
    if len(one.gates) > MAX_EXPERTS or not all(map(weights.is_packed, matrices)):
        return False
    groups = {weight_group(some[0]) for some in (one.gates, one.ups) if some}
    return _is_known(one.activation) and len(groups - {0}) <= 1
