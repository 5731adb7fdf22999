"""Launches of layers with a state of fixed size: recurrences and causal convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from kernels.cuda.jit import states as jit
from kernels.cuda.jit.activations import NUMBERS
from kernels.cuda.launch import Quantized, run
from kernels.ops import Activation, Recurrence, ShortConv
from kernels.states.kv_pages import StateLayer

# Channels of a value that a program of one warp has; its state takes 64 registers of a thread, and
# half of that for a prompt, whose tokens a program computes one after the other.
_STEP_STATE, _ROWS_STATE = 2048, 1024
_CHANNELS = 256  # of a program that convolves one token
_ROWS, _ROW_CHANNELS = 16, 128  # of a program that convolves a prompt


@dataclass(frozen=True, slots=True)
class Steps:
    """Positions i64 [B] of the tokens of a step, and page tables i64 [B, pages] of a group."""

    positions: Tensor
    tables: Tensor


@dataclass(frozen=True, slots=True)
class RecurrenceOperands:
    """Rows [T, columns] f32 of a recurrence."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    strength: Tensor | None
    out: Tensor

    def all(self) -> tuple[Tensor, ...]:
        """Those that kernels are given."""
        strength = self.decay if self.strength is None else self.strength
        return self.q, self.k, self.v, self.decay, strength, self.out


def recurrence_step(
    one: Recurrence, layer: StateLayer, rows: RecurrenceOperands, steps: Steps
) -> None:
    """One token of each sequence; the state is read from a page and written to the next one."""
    heads, _, value_width = layer.shape.shape
    sizes = _sizes(one, layer.shape.shape, rows.q.shape[1], _STEP_STATE)
    run(
        jit.recurrence_step,
        (len(steps.positions), heads, -(-value_width // sizes["BV"])),
        *rows.all(),
        *_parameters(one),
        steps.positions,
        steps.tables,
        steps.tables.shape[1],
        layer.offset,
        one.scale,
        one.epsilon,
        one.floor,
        **sizes,
        ALIGNED=layer.offset % 16 == 0,
        num_warps=1,
    )


def recurrence_rows(
    one: Recurrence, rows: RecurrenceOperands, before: Tensor, after: Tensor
) -> None:
    """All tokens of a sequence; `before` and `after` [H, C, V] f32 are the states."""
    heads, _, value_width = before.shape
    sizes = _sizes(one, before.shape, rows.q.shape[1], _ROWS_STATE)
    run(
        jit.recurrence_rows,
        (heads, -(-value_width // sizes["BV"])),
        *rows.all(),
        before,
        after,
        *_parameters(one),
        len(rows.v),
        one.scale,
        one.epsilon,
        one.floor,
        **sizes,
        num_warps=1,
    )


def _parameters(one: Recurrence) -> tuple[Tensor, Tensor, Tensor]:
    skip = one.rate if one.skip is None else one.skip
    return one.rate.contiguous(), one.decay_bias.contiguous(), skip.contiguous()


def _sizes(
    one: Recurrence, shape: Sequence[int], keys: int, elements: int
) -> dict[str, int | bool]:
    """Constants of the kernels; `keys` are all channels of the key heads."""
    heads, key_width, value_width = shape
    padded = triton.next_power_of_2(key_width)
    block = min(max(elements // padded, 1), triton.next_power_of_2(value_width))
    return {
        "K": keys // key_width,
        "H": heads,
        "C": key_width,
        "V": value_width,
        "CP": padded,
        "BV": block,
        "TILED": one.tiled,
        "BY_CHANNEL": one.decay_bias.numel() != heads,
        "NORM": one.epsilon >= 0,
        "STRENGTH": bool(one.strength),
        "CORRECTED": one.corrected,
        "FLOOR": one.floor != 0,
        "SKIP": one.skip is not None,
    }


def convolution_step(
    every: Sequence[tuple[ShortConv, StateLayer, Tensor]],
    steps: Steps,
    first: Tensor | None = None,
    last: Tensor | None = None,
    then: Quantized | None = None,
) -> None:
    """Up to three convolutions of equal taps and activations, of one token of each sequence.

    With each its layer and x [B, D] f32, which the result replaces; of a single one x is multiplied
    by `first` before and by `last` after, and quantized to `then`.
    """
    one, _, x = every[0]
    padded = [*every, *[every[0]] * (3 - len(every))]
    biases = [each.bias for each, _, _ in every]
    channels = [each.shape[1] for _, _, each in padded]
    assert len(every) == 1 or (first is None and last is None and then is None)
    run(
        jit.convolution_step,
        (sum(-(-count // _CHANNELS) for count in channels[: len(every)]), len(steps.positions)),
        *(each for _, _, each in padded),
        *(each.weight for each, _, _ in padded),
        *(x if each.bias is None else each.bias for each, _, _ in padded),
        x if first is None else first,
        x if last is None else last,
        x.view(torch.int32) if then is None else then.words,
        steps.positions,
        steps.tables,
        steps.tables.shape[1],
        *(layer.offset for _, layer, _ in padded),
        *channels,
        TAPS=one.weight.shape[1],
        BLOCK=_CHANNELS,
        COUNT=len(every),
        BIASES=sum((bias is not None) << at for at, bias in enumerate(biases)),
        ACTIVATION=_number(one.activation),
        FIRST=first is not None,
        LAST=last is not None,
        UNITS=1 if then is None else then.words.shape[2],
        QUANTIZE=then is not None,
        num_warps=2,
    )


def convolution_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, before: Tensor, after: Tensor
) -> None:
    """Convolution of all tokens of a sequence, x and `out` [T, D] f32; states [taps - 1, D] f32."""
    tokens, width = x.shape
    run(
        jit.convolution_rows,
        (-(-tokens // _ROWS), -(-width // _ROW_CHANNELS)),
        x,
        weight,
        x if bias is None else bias,
        out,
        before,
        after,
        tokens,
        D=width,
        TAPS=weight.shape[1],
        BT=_ROWS,
        BD=_ROW_CHANNELS,
        BIAS=bias is not None,
        num_warps=4,
    )


def _number(activation: Activation | None) -> int:
    return -1 if activation is None else NUMBERS[activation]
