"""Draws of tokens on the device: one launch list for all sequences of a step, captured.

Candidates are collected up to a number that a sort in one program can hold; where the filters of a
draw might keep more of them, or a logit is no number, the host draws from the logits instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import triton
from torch import Tensor

from kernels.backend.device_sampling import UNDECIDED, DeviceSampling
from kernels.cuda import graphs
from kernels.cuda.graphs import Capturer
from kernels.cuda.jit import sampling as jit
from kernels.cuda.launch import run

MOST_CANDIDATES = 1024  # of a draw, sorted by one program
MOST_CHANGES = 2048  # single logits of a draw
_BLOCK = 256  # tokens whose largest logit is known

Key = tuple[int, bool, bool]  # sequences, masks, changes


class CudaSampler:
    """Draws for the steps of one vocabulary; used by one thread at a time."""

    def __init__(
        self, vocabulary: int, device: torch.device, capture: Capturer | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._capture = capture or graphs.capturer(device)
        self._steps: dict[Key, Step] = {}

    def draw(self, logits: Tensor, draws: Sequence[DeviceSampling]) -> list[int]:
        """A token for each row of logits [B, V] f32 on the device; UNDECIDED: the host must draw.

        The rows are not changed. One number for each of them is copied to the host.
        """
        if any(map(_is_too_large, draws)):
            return [UNDECIDED] * len(draws)
        size = triton.next_power_of_2(len(draws))
        masks = any(one.allowed is not None for one in draws)
        key = size, masks, any(one.changes_logits for one in draws)
        if key not in self._steps:
            self._steps[key] = Step(key, self._vocabulary, self._device, self._capture)
        return self._steps[key].draw(logits, draws)


class Step:
    """The launches of one number of sequences, and their buffers."""

    def __init__(
        self, key: Key, vocabulary: int, device: torch.device, capture: Capturer | None
    ) -> None:
        self._size, self._has_masks, self._has_changes = key
        B, V = self._size, vocabulary
        self._blocks = -(-V // _BLOCK)
        self._vocabulary, self._words = V, -(-V // 32)

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._logits, self._row = empty(B, V), empty(B, V)
        self._parameters, self._random = empty(B, 8), empty(B, dtype=torch.int64)
        self._masks = empty(B if self._has_masks else 1, self._words, dtype=torch.int32)
        changes = MOST_CHANGES if self._has_changes else 1
        self._ids = empty(B, changes, dtype=torch.int32)
        self._biases, self._counts = empty(B, changes), empty(B, changes)
        self._numbers = empty(B, dtype=torch.int32)
        self._maxima, self._sums = empty(B, self._blocks), empty(B, self._blocks)
        self._least, self._total = empty(B), empty(B, dtype=torch.float64)
        self._counters = empty(B, dtype=torch.int32)
        self._keys = empty(B, MOST_CANDIDATES, dtype=torch.int64)
        self._out = empty(B, dtype=torch.int32)
        self._step: Callable[[], None] = graphs.Step(self.launch, capture)

    def draw(self, logits: Tensor, draws: Sequence[DeviceSampling]) -> list[int]:
        count = len(draws)
        every = [*draws, *[draws[-1]] * (self._size - count)]
        self._logits[:count] = logits
        self._logits[count:] = logits[-1:]
        rows = [
            [one.temperature, one.top_k, one.top_p, one.min_p, one.repeat, one.frequency,
             one.presence, 0.0]
            for one in every
        ]  # fmt: skip
        self._parameters.copy_(torch.tensor(rows, dtype=torch.float32))
        self._random.copy_(torch.tensor([_signed(one.random) for one in every]))
        if self._has_masks:
            self._masks.copy_(torch.from_numpy(np.stack([self._mask_of(one) for one in every])))
        if self._has_changes:
            self._set_changes(every)
        self._step()
        return self._out[:count].tolist()

    def _mask_of(self, one: DeviceSampling) -> np.ndarray:
        """The words of a mask [WORDS] i32, with no bit for tokens that it does not have."""
        if one.allowed is None:
            return np.full(self._words, -1, np.int32)
        found = np.zeros(self._words, np.uint32)
        some = one.allowed[: self._words]
        found[: len(some)] = some
        return found.view(np.int32)

    def _set_changes(self, every: Sequence[DeviceSampling]) -> None:
        shape = len(every), MOST_CHANGES
        ids, biases, counts = (
            np.zeros(shape, np.int32),
            np.zeros(shape, "f4"),
            np.zeros(shape, "f4"),
        )
        numbers = np.zeros(len(every), np.int32)
        for at, one in enumerate(every):
            known = dict.fromkeys(one.counts, 0.0) | dict(one.biases)
            tokens = [token for token in known if token < self._vocabulary]
            numbers[at] = len(tokens)
            ids[at, : len(tokens)] = tokens
            biases[at, : len(tokens)] = [known[token] for token in tokens]
            counts[at, : len(tokens)] = [one.counts.get(token, 0) for token in tokens]
        pairs = ((self._ids, ids), (self._biases, biases), (self._counts, counts))
        for target, values in (*pairs, (self._numbers, numbers)):
            target.copy_(torch.from_numpy(values))

    def launch(self) -> None:
        """Launch all kernels of a draw."""
        B, V, blocks, row = self._size, self._vocabulary, self._blocks, self._logits
        if self._has_masks or self._has_changes:
            row, size = self._row, 1024
            run(
                jit.masked, (B, -(-V // size)), self._logits, self._masks, row, V, self._words,
                HAS_MASK=self._has_masks, BLOCK=size, num_warps=4,
            )  # fmt: skip
        if self._has_changes:
            run(
                jit.changed, (B, MOST_CHANGES // 256), row, self._ids, self._biases, self._counts,
                self._numbers, self._parameters, V, MOST_CHANGES, BLOCK=256, num_warps=4,
            )  # fmt: skip
        run(
            jit.block_maxima, (B, blocks), row, self._maxima, self._sums, V, blocks,
            BLOCK=_BLOCK, num_warps=1,
        )  # fmt: skip
        run(
            jit.bounds, (B,), self._maxima, self._sums, self._parameters, self._least, self._total,
            self._counters, blocks, NB=triton.next_power_of_2(blocks), num_warps=4,
        )  # fmt: skip
        run(
            jit.collected, (B, blocks), row, self._maxima, self._least, self._keys, self._counters,
            V, blocks, MOST_CANDIDATES, BLOCK=_BLOCK, num_warps=1,
        )  # fmt: skip
        run(
            jit.drawn, (B,), self._keys, self._counters, self._least, self._total,
            self._parameters, self._random, self._out, MOST=MOST_CANDIDATES, num_warps=4,
        )  # fmt: skip


def _is_too_large(one: DeviceSampling) -> bool:
    return len(one.counts) + len(one.biases) > MOST_CHANGES


def _signed(value: int) -> int:
    """64 bits as a signed number."""
    return value - (1 << 64) if value >> 63 else value
