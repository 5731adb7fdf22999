"""Runner: forward passes of one loaded model over batches of sequences.

It has the recorded program of each adapter stack in use. Sequences with different stacks are passed
in one call and run in one pass for each stack.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.messages import CacheType
from engine.models.forward import Result, forward_program
from engine.models.layers import Decoder
from engine.state.pages import PagePool, storage_dtype
from engine.state.sequence import Sequence
from engine.vision.sight import Sight
from kernels.backend import pipeline
from kernels.backend.backend import HOST, Backend
from kernels.backend.placement import Placement
from kernels.devices import is_device_error
from kernels.ops import Segment
from kernels.programs.program import Program, Recorded
from kernels.states.kv_pages import KVLayout

_SMALLEST_CHUNK, _LARGEST_CHUNK = 16, 512
MOST_TEXTS = 16  # texts in one pass for embeddings; each has its own KV pages
_MOST_PROGRAMS = 4  # recorded and kept; others are recorded again when they are needed

# Largest model whose decode step runs without a checkpoint: about 100 ms at 30 GB/s.
_UNINTERRUPTED_BYTES = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Tokens to append to one sequence, computed with an adapter stack.

    With `wanted` over 1 the last `wanted` - 1 tokens are a draft: the caller commits what it accepts
    (`Sequence.commit_accepted`), and the runner nothing.
    """

    sequence: Sequence
    tokens: Tokens[int]
    stack: Stack = NO_ADAPTERS
    wanted: int = 1  # logits of so many last tokens


class Runner:
    """Runs the model; used by one thread at a time."""

    def __init__(
        self,
        model: Decoder,
        cache: CacheType = CacheType.F32,
        recorder: Callable[[Program], Recorded] | None = None,
        result: Result = Result.LOGITS,
        *,
        draws: bool = False,
        sight: Sight | None = None,
    ) -> None:
        """`recorder` replaces `record` of the model's backends; `logits` computes the `result`.

        With `draws` the logits stay on the device if the head's backend can draw tokens there. With
        `sight` texts may have rows of images, which are read by programs of their own.
        """
        self.sight = sight
        vocabulary = model.head.weight.shape[0]
        self.device_sampler = model.placement.head.new_sampler(vocabulary) if draws else None
        self.model = model
        self._devices = [one for one in model.placement.backends if one.device != HOST]
        self._result = result
        self.layout = KVLayout(model.layer_states, storage_dtype(cache))
        self._recorder = recorder
        # By key of the stack and whether it reads images, least recently used first.
        self._recorded: dict[tuple[str, bool], Recorded] = {}
        is_offloaded = any(number >= 0 for number in model.offloaded)
        most = max(block.weights for block in model.blocks)
        self.chunk = chunk_size(most, model.placement, offloaded=is_offloaded)
        macs = sum(block.weights for block in model.blocks)
        self.token_seconds = macs / (
            10 * model.placement.macs_per_100_ms()
        )  # of a prompt, predicted
        size = sum(block.size_bytes for block in model.blocks)
        self._steps_at_once = size <= _UNINTERRUPTED_BYTES and not is_offloaded

    @property
    def is_elsewhere(self) -> bool:
        """Whether any part of the model is on a device beside the processor."""
        return bool(self._devices)

    def is_of_device(self, fault: BaseException) -> bool:
        """Whether a fault is one of a device beside the processor, and not of the program."""
        return self.is_elsewhere and is_device_error(fault)

    @property
    def is_recorded(self) -> bool:
        """Whether a backend lowered the program; otherwise it is interpreted, op by op."""
        return pipeline.is_lowered(self.recorded(NO_ADAPTERS))

    def prepare(self) -> None:
        """Compile and capture the decode step without adapters, where its device does that."""
        recorded = self.recorded(NO_ADAPTERS)
        if isinstance(recorded, pipeline.Preparable):
            with torch.inference_mode():
                recorded.prepare()

    def has_equal_bits(self, stack: Stack = NO_ADAPTERS) -> bool:
        """Whether a token gets the same bits in any batch."""
        return pipeline.has_equal_bits(self.recorded(stack))

    def new_pool(self, budget_bytes: int = 1 << 62) -> PagePool:
        """A pool of KV pages for this model: each group in the memory of its layers' backend."""
        return PagePool(self.layout, self.model.placement.memories, budget_bytes)

    def recorded(self, stack: Stack, *, sees: bool = False) -> Recorded:
        """The forward pass with these adapters; after a failed kernel check, interpreted."""
        key = stack.key, sees
        found = self._recorded.pop(key, None)
        if found is None:
            seeing = self.sight.seeing if sees and self.sight is not None else None
            program = forward_program(self.model, self.layout, stack, self._result, seeing)
            if self._recorder is not None and not self.model.refused:
                found = self._recorder(program)
            else:
                found = pipeline.record(
                    program,
                    self.model.placement,
                    self.model.refused,
                    keeps_logits=self.device_sampler is not None,
                )
        self._recorded[key] = found
        while len(self._recorded) > _MOST_PROGRAMS:
            del self._recorded[next(iter(self._recorded))]
        return found

    def hidden(
        self, batch: Tokens[Rows], checkpoint: Callable[[], None] = lambda: None
    ) -> list[Tensor]:
        """Append tokens to sequences: the hidden states [T, D] of each.

        All or none are committed: `checkpoint` may raise to cancel. Raises OutOfPages.
        """
        outs = self._hidden(batch, checkpoint)
        for rows in batch:
            rows.sequence.commit(rows.tokens)
        return outs

    def read_texts(
        self,
        texts: Tokens[Tokens[int]],
        stack: Stack,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> list[Tensor]:
        """Hidden states [T, D] of each of some whole texts, by an encoder; nothing is cached."""
        with torch.inference_mode():
            segments = [Segment(text, 0, ()) for text in texts]
            found = self.recorded(stack).hidden(segments, checkpoint)
            return list(found.split([len(text) for text in texts]))

    def logits(self, hidden: Tensor, stack: Stack = NO_ADAPTERS) -> Tensor:
        """Hidden states [T, D] → logits [T, V]."""
        with torch.inference_mode():
            return self.recorded(stack).logits(hidden)

    def step(
        self, batch: Tokens[Rows], checkpoint: Callable[[], None] = lambda: None
    ) -> list[Tensor]:
        """Append tokens to sequences: the logits [wanted, V] after the last tokens of each.

        Raises OutOfPages, and what `checkpoint` raises, which is not called in a pass that is brief;
        nothing is then committed.
        """
        at_once = self._steps_at_once
        for rows in batch:  # plain loops: this runs before every token
            at_once = at_once and len(rows.tokens) <= rows.wanted
        if at_once:
            outs = self._step(batch)
        else:
            outs = self._logits(batch, self._hidden(batch, checkpoint))
        for backend in self._devices:
            backend.finish()  # a pass is timed, and its faults are raised here
        for rows in batch:
            if rows.wanted < 2:
                rows.sequence.commit(rows.tokens)
        return outs

    def _hidden(self, batch: Tokens[Rows], checkpoint: Callable[[], None]) -> list[Tensor]:
        outs: dict[int, Tensor] = {}
        # Outside inference mode, where new pages could not be reused.
        groups = self._by_stack(batch)
        with torch.inference_mode():
            for stack, numbers, segments in groups:
                found = self._of(stack, segments).hidden(segments, checkpoint)
                sizes = [len(batch[number].tokens) for number in numbers]
                outs |= zip(numbers, found.split(sizes), strict=True)
        return [outs[number] for number in range(len(batch))]

    def _logits(self, batch: Tokens[Rows], hidden: Tokens[Tensor]) -> list[Tensor]:
        """Hidden states [T, D] of each → the logits [wanted, V]."""
        outs: dict[int, Tensor] = {}
        for stack in {rows.stack.key: rows.stack for rows in batch if rows.wanted}.values():
            numbers = [at for at, rows in enumerate(batch) if rows.stack.key == stack.key]
            sizes = [batch[number].wanted for number in numbers]
            last = [hidden[at][len(hidden[at]) - batch[at].wanted :] for at in numbers]
            outs |= zip(numbers, self.logits(torch.cat(last), stack).split(sizes), strict=True)
        return [outs.get(number, hidden[number][:0]) for number in range(len(batch))]

    def _step(self, batch: Tokens[Rows]) -> list[Tensor]:
        """Body and head in one call: logits are wanted of all tokens."""
        # Outside inference mode, where new pages could not be reused.
        groups = self._by_stack(batch)
        if len(batch) == 1:  # each token of most answers
            stack, _, segments = groups[0]
            with torch.inference_mode():
                return [self._of(stack, segments).step(segments)]
        outs: dict[int, Tensor] = {}
        with torch.inference_mode():
            for stack, numbers, segments in groups:
                logits = self._of(stack, segments).step(segments)
                sizes = [batch[number].wanted for number in numbers]
                outs |= zip(numbers, logits.split(sizes), strict=True)
        return [outs[number] for number in range(len(batch))]

    def _of(self, stack: Stack, segments: Tokens[Segment]) -> Recorded:
        """The forward pass of these adapters that reads these segments."""
        sees = self.sight is not None and any(one.images is not None for one in segments)
        return self.recorded(stack, sees=sees)

    def _segment(self, rows: Rows) -> Segment:
        if self.sight is None:
            return rows.sequence.segment(rows.tokens)
        return self.sight.segment(rows.sequence, rows.tokens)

    def _by_stack(self, batch: Tokens[Rows]) -> list[tuple[Stack, list[int], list[Segment]]]:
        """The rows in groups with one adapter stack: stack, indices in the batch, segments."""
        groups: dict[str, tuple[Stack, list[int], list[Segment]]] = {}
        for rows in batch:  # before any pass: OutOfPages leaves all sequences unchanged
            if len(rows.sequence.tokens) + len(rows.tokens) > rows.sequence.reserved:
                rows.sequence.reserve(len(rows.tokens))
        if len(batch) == 1:
            (rows,) = batch
            return [(rows.stack, [0], [self._segment(rows)])]
        for number, rows in enumerate(batch):
            group = groups.setdefault(rows.stack.key, (rows.stack, [], []))
            group[1].append(number)
            group[2].append(self._segment(rows))
        return list(groups.values())


def chunk_size(layer_weights: int, backend: Backend | Placement, *, offloaded: bool = False) -> int:
    """Prefill chunk length: the power of two for which one layer takes about 100 ms.

    Of a model with `offloaded` layers twice that: they are read from disk for every chunk, and a
    pass can be cancelled within a layer.
    """
    fitting = max(backend.macs_per_100_ms() // max(layer_weights, 1), 1) * (1 + offloaded)
    return min(max(1 << (fitting.bit_length() - 1), _SMALLEST_CHUNK), _LARGEST_CHUNK)
