"""Ops: what models compute, one file for each instruction of a program.

A file has the instruction, how it runs op by op (`run`), and the single op that it needs: its rules
of shapes and dtypes (`checked_`), and its definition in torch, against which kernels are tested.
Shape letters: T tokens, D model width, N outputs, V vocabulary, H heads, K key/value heads,
C width of one head, S tokens in the cache. A checked op raises ValueError, beginning with its name,
for an operand of the wrong shape or dtype.
"""

from __future__ import annotations

from kernels.ops.add import Add
from kernels.ops.add_rows import AddRows, RowTable
from kernels.ops.add_to_streams import AddToStreams, checked_add_to_streams
from kernels.ops.attend import (
    Attend,
    Attending,
    Spans,
    checked_attention,
    checked_attention_bytes,
    checked_full_attention,
    checked_rope,
)
from kernels.ops.clip import Clip
from kernels.ops.columns import Columns
from kernels.ops.embed import Embed, checked_embed
from kernels.ops.experts import Experts, checked_route
from kernels.ops.gate import COMMON_ACTIVATIONS, Activation, Gate, checked_gated
from kernels.ops.gaussian_top_k import GaussianTopK
from kernels.ops.given_rows import GivenRows
from kernels.ops.hadamard import checked_hadamard
from kernels.ops.head_gate import HeadGate
from kernels.ops.head_linear import HeadLinear
from kernels.ops.head_norm import HeadNorm
from kernels.ops.in_place import InPlace, checked_in_place
from kernels.ops.join import Join
from kernels.ops.linear import Linear, LoraDelta, checked_linear
from kernels.ops.match_magnitude import MatchMagnitude
from kernels.ops.mix_streams import MixStreams, checked_mix_streams
from kernels.ops.multiply import Multiply
from kernels.ops.norm import Norm, checked_layer_norm, checked_rms_norm
from kernels.ops.position_scale import PositionScale
from kernels.ops.recurrence import Recurrence, checked_recurrence
from kernels.ops.running import ImageRows, Pass, Segment
from kernels.ops.scale import Scale
from kernels.ops.scale_channels import ScaleChannels
from kernels.ops.short_conv import ShortConv, checked_short_conv
from kernels.ops.softcap import Softcap
from kernels.ops.stream_weights import StreamWeights
from kernels.ops.table import Kernel, Table
from kernels.ops.transfer import Transfer
from kernels.ops.xielu import Xielu

__all__ = [
    "COMMON_ACTIVATIONS",
    "Activation",
    "Add",
    "AddRows",
    "AddToStreams",
    "Attend",
    "Attending",
    "Clip",
    "Columns",
    "Embed",
    "Experts",
    "Gate",
    "GaussianTopK",
    "GivenRows",
    "HeadGate",
    "HeadLinear",
    "HeadNorm",
    "ImageRows",
    "InPlace",
    "Instruction",
    "Join",
    "Kernel",
    "Linear",
    "LoraDelta",
    "MatchMagnitude",
    "MixStreams",
    "Multiply",
    "Norm",
    "Ops",
    "Pass",
    "PositionScale",
    "Recurrence",
    "RowTable",
    "Scale",
    "ScaleChannels",
    "Segment",
    "ShortConv",
    "Softcap",
    "Spans",
    "StreamWeights",
    "Transfer",
    "Xielu",
]

Instruction = (
    Embed
    | AddRows
    | GivenRows
    | Norm
    | HeadNorm
    | Linear
    | HeadLinear
    | Join
    | Columns
    | PositionScale
    | Attend
    | ShortConv
    | Recurrence
    | Gate
    | HeadGate
    | Experts
    | InPlace
    | Add
    | MixStreams
    | AddToStreams
    | Transfer
    | StreamWeights
)


class Ops(Table):
    """The ops of a backend, each of which checks its operands."""

    linear = checked_linear
    embed = checked_embed
    rms_norm = checked_rms_norm
    layer_norm = checked_layer_norm
    rope = checked_rope
    attention = checked_attention
    full_attention = checked_full_attention
    attention_bytes = checked_attention_bytes
    gated = checked_gated
    route = checked_route
    short_conv = checked_short_conv
    recurrence = checked_recurrence
    in_place = checked_in_place
    hadamard = checked_hadamard
    mix_streams = checked_mix_streams
    add_to_streams = checked_add_to_streams
