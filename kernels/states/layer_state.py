"""Layer states: what each kind of layer remembers of the tokens that were processed.

Attention remembers keys and values of every position, or of those in its window. A recurrent layer
and a short convolution have a state of fixed size, the one after the last token: it cannot be
cut back to an earlier position, only replaced by a copy that was kept. And some attention layers
have no keys and values of their own, but read those of an earlier layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PAGE_TOKENS = 256
AT_END = -1  # "window" of a group of pages with states of fixed size, after the page's last token


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Keys and values of one attention layer."""

    kv_heads: int
    head_width: int
    window: int = 0  # tokens: keys older than this are never read again; 0: unlimited
    place: str = ""  # name of the backend whose memory has them
    values_are_keys: bool = False  # as in latent attention: rows are stored once, not as pairs


@dataclass(frozen=True, slots=True)
class ConvState:
    """The last inputs of a causal convolution: f32 [taps - 1, channels], the oldest first."""

    channels: int
    taps: int  # inputs of one output, its own position included
    place: str = ""  # name of the backend whose memory has it

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the state."""
        return self.taps - 1, self.channels


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The matrix of each head of a linear recurrence: f32 [heads, key width, value width]."""

    heads: int
    key_width: int
    value_width: int
    place: str = ""  # name of the backend whose memory has them

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the state."""
        return self.heads, self.key_width, self.value_width


@dataclass(frozen=True, slots=True)
class SharedState:
    """The keys and values of another layer, which processes the tokens of a pass before."""

    layer: int  # index of its state


FixedState = ConvState | RecurrentState
LayerState = LayerShape | FixedState | SharedState


def size_bytes(state: FixedState) -> int:
    """Bytes of a state of fixed size."""
    return 4 * math.prod(state.shape)


def needed_pages(window: int, length: int) -> range:
    """The pages of a group that a token at position `length` needs.

    `window` of the group in tokens; 0: unlimited; AT_END: the state after the token before.
    """
    end = -(-length // PAGE_TOKENS)
    if window == AT_END:
        return range(max(end - 1, 0), end)
    return range(max(length - window + 1, 0) // PAGE_TOKENS if window else 0, end)
