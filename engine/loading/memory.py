"""What a model takes of memory, predicted from its sizes, and the context that leaves room for.

One arithmetic for every figure a person sees: of a file before it is loaded, of a catalog's row
before it is downloaded, of a model in use. `tests/benchmarks/memory.py` holds it against measured
peaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import OutOfMemory

_SHARE = 0.9  # of the available memory that a model may fill; the rest is for everything else
_LEAST_CONTEXT = 512  # tokens; below this a conversation is not one
_GB = 1e9

# Measured: what libraries keep once they have multiplied, sampled and rendered for the first time.
_RUNTIME_BYTES = 20_000_000

# Measured: bytes the allocator's heap takes for each byte of a pass, for want of fitting holes.
_HEAP_SHARE = 1.3

# Measured: one token or merge as Python objects and in the tokenizers library.
_BYTE_LEVEL_TOKEN_BYTES, _MERGE_BYTES = 320, 180
_SENTENCEPIECE_TOKEN_BYTES = 220


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a model, as its file states them or a catalog knows them."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int  # tokens
    context: int  # tokens it was trained for
    format: str  # of most weights, such as "Q4_K"
    parameters: int

    @property
    def layer_weights(self) -> int:
        """Weights of one layer's products."""
        attention = 2 * self.width * self.head_width * (self.heads + self.kv_heads)
        return attention + 3 * self.width * self.feed_forward


@dataclass(frozen=True, slots=True)
class Needs:
    """What a model takes, in bytes."""

    weights_bytes: int  # with the vocabulary
    cache_bytes_per_token: int
    scratch_bytes: Callable[[int], int]  # of a context of so many tokens; never falls with them

    def total(self, context: int) -> int:
        """Everything, with a context of so many tokens that is full."""
        return (
            self.weights_bytes + self.cache_bytes_per_token * context + self.scratch_bytes(context)
        )


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a model will hold at its peak, in bytes, with a context that is full."""

    weights_bytes: int  # with the vocabulary
    cache_bytes: int
    scratch_bytes: int
    total_bytes: int
    available_bytes: int
    context: int  # tokens
    most_context: int  # tokens that would fit, up to the model's own; 0: not even the weights fit

    @property
    def fits(self) -> bool:
        """Whether the total is at most nine tenths of what is available."""
        return self.total_bytes <= int(self.available_bytes * _SHARE)


def plan_memory(
    needs: Needs, *, context_wanted: int, context_model: int, available: int
) -> MemoryPlan:
    """Choose the context and add up what the model needs with it, whether or not that fits.

    `context_wanted` 0 takes the model's own, halved until everything fits into nine tenths of
    `available`, but never below 512 tokens. A context that is asked for is kept, also beyond the
    model's own.
    """
    assert context_wanted >= 0, context_wanted
    assert context_model > 0, context_model
    budget = int(available * _SHARE)
    context = context_wanted or context_model
    least = context if context_wanted else min(_LEAST_CONTEXT, context_model)
    while needs.total(context) > budget and context > least:
        context = max(context // 2, least)
    return MemoryPlan(
        weights_bytes=needs.weights_bytes,
        cache_bytes=needs.cache_bytes_per_token * context,
        scratch_bytes=needs.scratch_bytes(context),
        total_bytes=needs.total(context),
        available_bytes=available,
        context=context,
        most_context=_most_context(needs, budget, max(context_wanted, context_model)),
    )


def refusal(plan: MemoryPlan, context_wanted: int) -> OutOfMemory | None:
    """What to tell a person when the plan does not fit; None when it does."""
    if plan.fits:
        return None
    available = f"{plan.available_bytes / _GB:.1f} GB of memory are free."
    total = f"{plan.total_bytes / _GB:.1f} GB"
    if context_wanted and plan.most_context >= _LEAST_CONTEXT:
        return OutOfMemory(
            f"A context of {plan.context:,} tokens needs {total} with this model; {available}",
            f"Ask for at most {plan.most_context:,} tokens, or close other programs.",
        )
    return OutOfMemory(
        f"The model needs {total} with a context of {plan.context:,} tokens; {available}",
        "Close other programs, or choose a smaller model.",
    )


def vocabulary_bytes(tokens: int, merges: int, sentencepiece: bool) -> int:
    """What a tokenizer takes: its texts and tables are far larger than in the file."""
    if sentencepiece:
        return tokens * _SENTENCEPIECE_TOKEN_BYTES
    return tokens * _BYTE_LEVEL_TOKEN_BYTES + merges * _MERGE_BYTES


def scratch_bytes(
    shape: ModelShape, tokens: int, attention_bytes: int, cache_layer_bytes: int
) -> int:
    """What a pass over `tokens` takes at most beside weights and cache.

    That is the activations of one layer, what attention makes for itself, the logits of one token
    and what sampling makes of them, and one layer of the full cache: its outgrown buffers while it
    grows, which a session that is being saved may hold a little longer.
    """
    queries = shape.heads * shape.head_width
    keys = shape.kv_heads * shape.head_width
    # What is alive at once: around the rotation of queries and keys, and around the activation.
    attending = 4 * tokens * (2 * shape.width + 5 * queries + 5 * keys) + attention_bytes
    feeding = 4 * tokens * (2 * shape.width + 4 * shape.feed_forward)
    logits = 4 * 8 * shape.vocabulary
    return _RUNTIME_BYTES + cache_layer_bytes + logits + int(_HEAP_SHARE * max(attending, feeding))


def _most_context(needs: Needs, budget: int, limit: int) -> int:
    """The largest context up to `limit` that fits, by bisection."""
    fitting, too_many = 0, limit + 1
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if needs.total(middle) <= budget:
            fitting = middle
        else:
            too_many = middle
    return fitting
