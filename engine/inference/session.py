"""Session: the cached tokens of one conversation with their KV cache, kept consistent.

It also has the adapter stack they were computed with, the logits after the last token, and the
sampler state. Prefix reuse, editing, branching and snapshots all work by trimming to position n
and continuing from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.lora.stack import NO_ADAPTERS, Stack
from engine.messages import Sampling
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.state.kv_cache import Cache
from kernels.backend import Backend
from kernels.interpreter import Interpreter
from kernels.program import Program, Recorded

_SMALLEST_CHUNK, _LARGEST_CHUNK = 16, 512

# Largest model whose decode step runs without a checkpoint: about 100 ms at 30 GB/s.
_UNINTERRUPTED_BYTES = 3_000_000_000


@dataclass(frozen=True, slots=True)
class SamplerState:
    """State needed to resume an interrupted answer: sampling parameters and random numbers."""

    sampling: Sampling
    random: Tensor  # state of the generator, u8


class Session:
    """The tokens processed so far and their KV cache; changed by trimming and appending."""

    def __init__(
        self,
        model: Decoder,
        cache: Cache,
        recorder: Callable[[Program], Recorded] | None = None,
    ) -> None:
        """An empty session; `recorder` replaces `record` of the model's backend."""
        self.model = model
        self.cache = cache
        self._recorder = recorder or model.backend.record
        self.stack = NO_ADAPTERS  # the KV cache was computed with these adapters
        self.tokens: list[int] = []
        # Generated but not in the KV cache: at most one, the last token of an interrupted answer.
        self.pending: list[int] = []
        self.last_logits: Tensor | None = None  # [V] after the last token; None: not computed
        self.sampler_state: SamplerState | None = None  # of the answer `all_tokens` ends with
        self._chunk = chunk_size(max(block.weights for block in model.blocks), model.backend)
        self._recorded = self._record()
        size = sum(block.size_bytes for block in model.blocks)
        self._steps_at_once = size <= _UNINTERRUPTED_BYTES

    @property
    def all_tokens(self) -> list[int]:
        """The cached tokens, followed by the pending one if there is any."""
        return self.tokens + self.pending

    @property
    def is_recorded(self) -> bool:
        """Whether a backend lowered the program; otherwise it is interpreted, op by op."""
        return not isinstance(self._recorded, Interpreter)

    @property
    def context(self) -> int:
        """Capacity in tokens."""
        return self.cache.context

    @property
    def chunk(self) -> int:
        """Number of tokens that `prefill` processes at once."""
        return self._chunk

    @property
    def cache_bytes(self) -> int:
        """Bytes allocated for the KV cache now."""
        return self.cache.size_bytes

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Length of the longest common prefix of `tokens` and the cached tokens."""
        pairs = zip(self.tokens, tokens, strict=False)
        return next(
            (at for at, (a, b) in enumerate(pairs) if a != b), min(len(self.tokens), len(tokens))
        )

    def trim(self, length: int) -> None:
        """Drop every token from position `length` on, and the sampler state."""
        if length < len(self.tokens):
            self.last_logits = None
        self.cache.trim(length)
        del self.tokens[length:]
        self.pending, self.sampler_state = [], None

    def set_stack(self, stack: Stack) -> int:
        """Replace the adapter stack; returns how many cached tokens were discarded.

        That is 0 when the new stack has the same key, so the same effect bit for bit.
        """
        changed, self.stack = stack.key != self.stack.key, stack
        discarded = len(self.tokens) if changed else 0
        if changed:
            self.trim(0)
            self._recorded = self._record()
        return discarded

    def _record(self) -> Recorded:
        """The forward pass with the current adapters; after a failed kernel check, interpreted."""
        program = forward_program(self.model, self.stack)
        if self.model.refused:
            return Interpreter(program, self.model.backend.ops.without(self.model.refused))
        return self._recorder(program)

    def clear(self) -> None:
        """Drop all tokens and free the KV cache."""
        self.trim(0)
        self.cache = self.cache.fresh()

    def load(
        self,
        cache: Cache,
        all_tokens: Sequence[int],
        length: int,
        last_logits: Tensor | None,
        sampler_state: SamplerState | None,
    ) -> None:
        """Replace the state by a restored one; `cache` holds the first `length` of `all_tokens`."""
        self.cache = cache
        self.cache.advance(length)
        self.tokens, self.pending = list(all_tokens[:length]), list(all_tokens[length:])
        self.last_logits, self.sampler_state = last_logits, sampler_state

    def prefill(
        self, tokens: Sequence[int], checkpoint: Callable[[], None] = lambda: None
    ) -> Iterator[Tensor]:
        """Append `tokens` chunk by chunk, yielding each chunk's hidden states [T, D].

        `checkpoint` may raise `Cancelled` between layers: the session then keeps the chunks before.

        With native kernels, the bits computed for a token depend on the tokens before it and on
        which of these were prefilled and which were appended by `step`; not on the chunk
        boundaries, and not on tokens trimmed before. Prefill and `step` round differently, as each
        has kernels of a different shape: a session with a generated answer may differ in the last
        bits from one that prefilled the same tokens. The torch reference guarantees only that equal
        calls give equal bits.
        """
        for start in range(0, len(tokens), self._chunk):
            chunk = list(tokens[start : start + self._chunk])
            # Attention over a single row rounds differently, so a one-token chunk is computed with
            # a second copy of the token. A prompt never fills the context: the copy has a position.
            copies = 2 if len(chunk) == 1 and self.cache.length + 2 <= self.context else 1
            hidden = self._hidden(chunk * copies, checkpoint)[: len(chunk)]
            self.tokens += chunk
            self.cache.trim(len(self.tokens))
            self.last_logits = None
            yield hidden

    def _hidden(self, chunk: list[int], checkpoint: Callable[[], None]) -> Tensor:
        """Forward pass: hidden states [T, D]; the keys and values are in the cache afterwards."""
        with torch.inference_mode():
            self.cache.make_writable(len(chunk), checkpoint)
            # Keep no reference to the buffers: when they grow, a layer's old memory must be freed
            # before the next layer allocates.
            hidden = self._recorded.hidden(
                chunk, self.cache.buffers_for(len(chunk)), self.cache.length, checkpoint
            )
        self.cache.advance(len(chunk))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [T, D] → logits [T, V]."""
        with torch.inference_mode():
            return self._recorded.logits(hidden)

    def logits_after(self, hidden: Tensor) -> Tensor:
        """The logits [V] after the last token, from the last hidden states of `prefill`."""
        self.last_logits = self.logits(hidden[-1:])[0]
        return self.last_logits

    def step(self, token: int, checkpoint: Callable[[], None] = lambda: None) -> Tensor:
        """Decode step: append one token; returns the logits [V] for the next.

        Faster than `prefill` of one token, and may round differently.
        """
        checkpoint()
        if not self._steps_at_once:
            logits = self.logits(self._hidden([token], checkpoint))[0]
        else:
            with torch.inference_mode():
                self.cache.make_writable(1, checkpoint)
                logits = self._recorded.step(token, self.cache.buffers_for(1), self.cache.length)
            self.cache.advance(1)
        self.tokens.append(token)
        self.last_logits = logits
        return logits


def chunk_size(layer_weights: int, backend: Backend) -> int:
    """Prefill chunk length: the power of two for which one layer takes about 100 ms."""
    fitting = max(backend.macs_per_100_ms() // max(layer_weights, 1), 1)
    return min(max(1 << (fitting.bit_length() - 1), _SMALLEST_CHUNK), _LARGEST_CHUNK)
