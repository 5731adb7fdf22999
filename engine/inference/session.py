"""Session: the tokens of one conversation and all that follows from them, never out of step.

That is their keys and values, the adapters these were computed with, the logits after the last
token, and where the drawing of the next one stands. Reuse, editing, branching and snapshots are
all "trim to position n, continue".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.lora.stack import NO_ADAPTERS, Stack
from engine.messages import Sampling
from engine.models.layers import Decoder
from engine.models.recording import record
from engine.state.kv_cache import Cache
from kernels import ops
from kernels.program import Program, Recorded

log = logging.getLogger(__name__)

_SMALLEST_CHUNK, _LARGEST_CHUNK = 16, 512

# Weights one step reads without a look at Cancel: about 100 ms at 30 GB/s.
_UNINTERRUPTED_BYTES = 3_000_000_000


@dataclass(frozen=True, slots=True)
class SamplerState:
    """Where an answer that can be gone on with stands: how it is drawn, and the random numbers."""

    sampling: Sampling
    random: Tensor  # state of the generator, u8


class Session:
    """Tokens read so far and their keys and values; every change is "trim, then continue"."""

    def __init__(
        self,
        model: Decoder,
        cache: Cache,
        recorder: Callable[[Program], Recorded | None] = ops.record,
    ) -> None:
        """An empty session; what `recorder` makes of the model runs it, else its ops one by one."""
        self.model = model
        self.cache = cache
        self._recorder = recorder
        self.stack = NO_ADAPTERS  # what all that is held was computed with
        self.tokens: list[int] = []
        # Chosen by the model and not read yet: at most one, the last of an answer that was cut.
        self.pending: list[int] = []
        self.last_logits: Tensor | None = None  # [V] after the last token; None: not known
        self.sampler_state: SamplerState | None = None  # of the answer that `held` ends with
        self._chunk = chunk_size(max(block.weights for block in model.blocks))
        self._recorded = self._record()
        size = sum(block.size_bytes for block in model.blocks)
        self._steps_at_once = size <= _UNINTERRUPTED_BYTES

    @property
    def all_tokens(self) -> list[int]:
        """The tokens read, and after them the one that was chosen and waits to be."""
        return self.tokens + self.pending

    @property
    def is_recorded(self) -> bool:
        """Whether the model runs as one program under the adapters in use; else op by op."""
        return self._recorded is not None

    @property
    def context(self) -> int:
        """The most tokens the session can hold."""
        return self.cache.context

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values held now."""
        return self.cache.size_bytes

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` the session already holds, from the start on."""
        pairs = zip(self.tokens, tokens, strict=False)
        return next(
            (at for at, (a, b) in enumerate(pairs) if a != b), min(len(self.tokens), len(tokens))
        )

    def trim(self, length: int) -> None:
        """Forget every token from position `length` on, and how the answer there was drawn."""
        if length < len(self.tokens):
            self.last_logits = None
        self.cache.trim(length)
        del self.tokens[length:]
        self.pending, self.sampler_state = [], None

    def set_stack(self, stack: Stack) -> int:
        """Compute with these adapters from now on; returns how many tokens that made it forget.

        None, when the stack has the same effect as the one before: bit for bit, as its key says.
        """
        changed, self.stack = stack.key != self.stack.key, stack
        forgotten = len(self.tokens) if changed else 0
        if changed:
            self.trim(0)
            self._recorded = self._record()
        return forgotten

    def _record(self) -> Recorded | None:
        """The model under the stack in use as one program; None where it runs op by op."""
        program = record(self.model, self.stack)
        recorded = None if program is None else self._recorder(program)
        if recorded is None:
            log.info("The model runs op by op: what it needs is in no recorded pass.")
        return recorded

    def clear(self) -> None:
        """Forget everything, and hold no memory for it."""
        self.trim(0)
        self.cache = self.cache.fresh()

    def load(
        self,
        cache: Cache,
        held: Sequence[int],
        length: int,
        last_logits: Tensor | None,
        sampler_state: SamplerState | None,
    ) -> None:
        """Hold what was written into an empty cache: the first `length` tokens of `held`."""
        self.cache = cache
        self.cache.advance(length)
        self.tokens, self.pending = list(held[:length]), list(held[length:])
        self.last_logits, self.sampler_state = last_logits, sampler_state

    def prefill(
        self, tokens: Sequence[int], checkpoint: Callable[[], None] = lambda: None
    ) -> Iterator[Tensor]:
        """Append `tokens` chunk by chunk, yielding each chunk's hidden states [T, D].

        `checkpoint` may raise `Cancelled` between layers: the session then holds the chunks before.

        With native kernels, the bits computed for a token that is read depend on the tokens before
        it, and on which of these were read and which were appended by `step`; not on where the
        reading was cut, and not on what was held and trimmed before. Reading and `step` themselves
        round differently, each being fast at what it is for: a session that holds an answer as the
        model wrote it may differ in the last bits from one that has read the same tokens. The torch
        reference promises only that equal calls give equal bits.
        """
        for start in range(0, len(tokens), self._chunk):
            chunk = list(tokens[start : start + self._chunk])
            # Attention rounds one token by itself differently: a copy after it makes it one of two.
            # A prompt never fills the context, so there is a position left for the copy.
            copies = 2 if len(chunk) == 1 and self.cache.length + 2 <= self.context else 1
            hidden = self._hidden(chunk * copies, checkpoint)[: len(chunk)]
            self.tokens += chunk
            self.cache.trim(len(self.tokens))
            self.last_logits = None
            yield hidden

    def _hidden(self, chunk: list[int], checkpoint: Callable[[], None]) -> Tensor:
        """Hidden states [T, D] of tokens whose keys and values the cache then holds."""
        with torch.inference_mode():
            self.cache.make_writable(len(chunk), checkpoint)
            if self._recorded is None:
                return self.model.hidden(torch.tensor(chunk), self.cache, checkpoint, self.stack)
            # Nobody may hold the room: what a layer outgrows is given back before the next grows.
            hidden = self._recorded.hidden(
                chunk, self.cache.buffers_for(len(chunk)), self.cache.length, checkpoint
            )
        self.cache.advance(len(chunk))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [T, D] → logits [T, V]."""
        with torch.inference_mode():
            if self._recorded is None:
                return self.model.logits(hidden, self.stack)
            return self._recorded.logits(hidden)

    def logits_after(self, hidden: Tensor) -> Tensor:
        """The logits [V] after the last token, from the last hidden states `read` has yielded."""
        self.last_logits = self.logits(hidden[-1:])[0]
        return self.last_logits

    def step(self, token: int, checkpoint: Callable[[], None] = lambda: None) -> Tensor:
        """Append one token; returns the logits [V] for the next.

        Faster than `read`, which may round it differently.
        """
        checkpoint()
        if self._recorded is None or not self._steps_at_once:
            logits = self.logits(self._hidden([token], checkpoint))[0]
        else:
            with torch.inference_mode():
                self.cache.make_writable(1, checkpoint)
                logits = self._recorded.step(token, self.cache.buffers_for(1), self.cache.length)
            self.cache.advance(1)
        self.tokens.append(token)
        self.last_logits = logits
        return logits


def chunk_size(layer_weights: int) -> int:
    """A power of two of tokens such that one layer of one chunk stays near 100 ms."""
    fitting = max(ops.macs_per_100_ms() // max(layer_weights, 1), 1)
    return min(max(1 << (fitting.bit_length() - 1), _SMALLEST_CHUNK), _LARGEST_CHUNK)
