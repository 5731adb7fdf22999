"""Memory plan: a model's peak memory, predicted from its sizes, and the context that fits.

A model's memory is what loading it, filling its context and answering add to the process: weights
with the vocabulary, the KV cache of a full context, and the scratch of a forward pass; with a
picture encoder beside it also what a first picture brings, which must fit when it comes. All
figures the user sees are this one: of a catalog entry before download, of a file before loading, of the
loaded model. The weights are predicted until the model was loaded once, and as measured from then
on. `tests/benchmarks/memory.py` compares them with measured peaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.errors import Fault, FaultKind, OutOfMemory

if TYPE_CHECKING:  # the window imports this module, and no kernels
    from kernels.states.layer_state import LayerState

HOST = "cpu"  # name of the device whose memory is the computer's
_USABLE_SHARE = 0.9  # of the available memory; the rest is left to other programs
_MIN_CONTEXT = 512  # tokens: the least that is useful for a conversation
# Contexts chosen unless another is asked for, by the memory of the computer, the longest first.
_USUAL_CONTEXTS = ((20_000_000_000, 32_768), (12_000_000_000, 16_384), (0, 8_192))
_SHORTEST_USUAL = 8_192  # tokens; a longer one takes at most half of what the weights leave
_GB = 1e9
# A measurement outside these shares of the prediction is not of the weights alone.
_LEAST_MEASURED, _MOST_MEASURED = 0.6, 1.6

# Measured: memory libraries keep after the first product, sampling and template rendering.
_RUNTIME_BYTES = 20_000_000
_RECORDED_RUNTIME_BYTES = 4_000_000

# Measured: heap bytes per byte of activations, because of fragmentation. The buffers of a recorded
# program are allocated once.
_HEAP_FACTOR = 1.3

_WORKING_STATES = 4  # copies of a recurrent state that one step of a recurrence makes

# Measured: one token or merge as Python objects and in the tokenizers library.
_BYTE_LEVEL_TOKEN_BYTES, _MERGE_BYTES = 320, 180
_SENTENCEPIECE_TOKEN_BYTES = 220


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that remember alike, of a hybrid model that is not downloaded."""

    layers: int
    kv_heads: int = 0  # of keys and values for each token; 0: none
    head_width: int = 0
    recurrence: tuple[int, int, int] | None = None  # heads, key width, value width of the state
    convolution: tuple[int, int] | None = None  # channels, taps


@dataclass(frozen=True, slots=True)
class HybridPass:
    """What a pass takes of a model some of whose layers have no attention, or another kind."""

    attentions: tuple[tuple[int, int, int], ...]  # heads, key/value heads, head width of each kind
    token_floats: int  # of all buffers of a pass, for each token
    state_floats: int  # of the largest state of fixed size


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a model, from its file or from the catalog."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int  # tokens
    context: int  # tokens: the training context
    format: str  # the main weight format, such as "Q4_K"
    parameters: int
    experts: int = 0
    experts_per_token: int = 0
    # What each layer of a hybrid model remembers; empty: keys and values in every layer.
    states: tuple[tuple[LayerState, ...], ...] = ()
    encoder_bytes: int = 0  # of its picture encoder, with all that pictures take; 0: there is none
    is_encoder: bool = False  # it reads a whole text in one pass and caches nothing
    # Of a model that is not downloaded: `states` as groups, and the size of its file; 0: unknown.
    groups: tuple[LayerGroup, ...] = ()
    file_bytes: int = 0
    # Of a file: weights that a token passes in the largest block; 0: as of llama's.
    block_weights: int = 0
    hybrid: HybridPass | None = None  # of the file of a model whose layers differ from llama's

    @property
    def attentions(self) -> tuple[tuple[int, int, int], ...]:
        """Heads, key/value heads and head width of each kind of attention in its layers."""
        if self.hybrid is not None:
            return self.hybrid.attentions
        return ((self.heads, self.kv_heads, self.head_width),)

    @property
    def layer_weights(self) -> int:
        """Weights in the linear layers of one block that a token passes."""
        if self.block_weights:
            return self.block_weights
        attention = 2 * self.width * self.head_width * (self.heads + self.kv_heads)
        return attention + 3 * self.width * self.feed_forward * max(self.experts_per_token, 1)


@dataclass(frozen=True, slots=True)
class Needs:
    """Memory requirements of a model, in bytes."""

    weights_bytes: int  # including the vocabulary
    cache_bytes_per_token: int
    scratch_bytes: Callable[[int], int]  # by context in tokens; monotonic
    state_bytes: int = 0  # of states of fixed size, whatever the context
    encoder_bytes: int = 0  # of a picture encoder beside it, with all that pictures take

    def total(self, context: int) -> int:
        """The total with a full context of `context` tokens."""
        held = self.weights_bytes + self.encoder_bytes
        return held + self.cache_bytes(context) + self.scratch_bytes(context)

    def cache_bytes(self, context: int) -> int:
        """What a sequence of `context` tokens remembers."""
        return self.cache_bytes_per_token * context + self.state_bytes


@dataclass(frozen=True, slots=True)
class DeviceNeeds:
    """Memory requirements of the part of a model on one device with separate memory."""

    device: str  # torch's name: "cuda:0"
    needs: Needs
    available_bytes: int
    limit_bytes: int = 0  # the most that may be taken; 0: no other limit


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Predicted peak memory of a model on one device, in bytes, with a full context."""

    device: str
    weights_bytes: int
    cache_bytes: int
    scratch_bytes: int
    available_bytes: int
    limit_bytes: int = 0  # the most that may be taken; 0: no other limit
    encoder_bytes: int = 0  # of a picture encoder, whose weights are read when a picture comes

    @property
    def total_bytes(self) -> int:
        """All that the model takes there."""
        return self.fixed_bytes + self.cache_bytes + self.scratch_bytes

    @property
    def fixed_bytes(self) -> int:
        """What it takes whatever the context."""
        return self.weights_bytes + self.encoder_bytes

    @property
    def fits(self) -> bool:
        """Whether the total is at most nine tenths of the available memory, and within the limit."""
        return self.total_bytes <= usable(self.available_bytes, self.limit_bytes)

    @property
    def left_bytes(self) -> int:
        """What the model leaves of the available memory, and of the limit."""
        return _left(self.total_bytes, self.available_bytes, self.limit_bytes)


@dataclass(frozen=True, slots=True)
class Offloading:
    """Layers whose matrices stay in the model file, or whose experts do: these are read for a pass.

    Of experts, those that were used last stay in memory, and a token reads the share of its experts
    that is not there, if all are chosen equally often.
    """

    layers: tuple[int, ...]  # their numbers, ascending
    slot_bytes: int  # memory for the matrices of one of them, or of one expert
    held_bytes: int  # of all slots and read buffers
    saved_bytes: int  # what their matrices would take in memory
    token_bytes: int  # read from the file for each token of an answer
    chunk_bytes: int  # read for a chunk of a prompt, whose tokens use all experts
    expert_slots: int = 0  # of memory for single experts; 0: layers are read whole
    disk_speed: float = 0.0  # bytes/s as measured; 0: not known

    @property
    def token_seconds(self) -> float:
        """That reading takes for a token of an answer; 0: not known."""
        return self.token_bytes / self.disk_speed if self.disk_speed else 0.0

    @property
    def chunk_seconds(self) -> float:
        """That reading takes for a chunk of a prompt; 0: not known."""
        return self.chunk_bytes / self.disk_speed if self.disk_speed else 0.0


NO_OFFLOADING = Offloading((), 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Predicted peak memory of a model, in bytes, with a full context; the sums of its devices."""

    weights_bytes: int  # including the vocabulary
    cache_bytes: int
    scratch_bytes: int
    total_bytes: int
    available_bytes: int
    context: int  # tokens
    most_context: int  # tokens that fit, up to the training context; 0: weights do not fit
    devices: tuple[DeviceMemory, ...] = ()  # the host first; empty: all is in its memory
    limit_bytes: int = 0  # the most that may be taken of the host's memory; 0: no other limit
    offloading: Offloading | None = None  # None: all weights are in memory
    least_bytes: int = 0  # total with all layers offloaded, if it does not fit otherwise
    encoder_bytes: int = 0  # of a picture encoder; 0: there is none, or no room for it

    @property
    def fits(self) -> bool:
        """Whether the total is at most nine tenths of the available memory and within the limit,
        on each device.
        """
        if self.devices:
            return all(one.fits for one in self.devices)
        return self.total_bytes <= usable(self.available_bytes, self.limit_bytes)

    @property
    def left_bytes(self) -> int:
        """What the model leaves of the available memory and the limit, of the fullest device."""
        if self.devices:
            return min(one.left_bytes for one in self.devices)
        return _left(self.total_bytes, self.available_bytes, self.limit_bytes)

    def with_weights(self, measured_bytes: int) -> MemoryPlan:
        """The plan with the host's weights as measured, unless other work distorted that.

        With offloaded layers the weights take what was planned for them.
        """
        if self.offloading is not None:
            return self
        predicted = self.devices[0].weights_bytes if self.devices else self.weights_bytes
        if not _LEAST_MEASURED * predicted <= measured_bytes <= _MOST_MEASURED * predicted:
            return self
        added = measured_bytes - predicted
        host = [replace(one, weights_bytes=measured_bytes) for one in self.devices[:1]]
        return replace(
            self,
            weights_bytes=self.weights_bytes + added,
            total_bytes=self.total_bytes + added,
            devices=(*host, *self.devices[1:]),
        )


def plan_memory(
    needs: Needs,
    *,
    context_wanted: int,
    context_model: int,
    available: int,
    others: Sequence[DeviceNeeds] = (),
    limit: int = 0,
    context_usual: int = 0,
) -> MemoryPlan:
    """Choose the context and compute the memory needed with it, whether or not that fits.

    `context_wanted` 0 means the training context or, if less, `context_usual`: halved while it takes
    more than half of what the weights leave of `available`, but not below 8,192 tokens, then until
    the total fits into nine tenths, but not below 512. Any other value is used as given, even beyond
    the training context. `needs`, `available` and `limit`, the most that may be taken, are those of
    the host, `others` of other devices.
    """
    assert context_wanted >= 0, context_wanted
    assert context_model > 0, context_model
    devices = (DeviceNeeds(HOST, needs, available, limit), *others)
    context = context_wanted or min(context_usual or context_model, context_model)
    if not context_wanted:
        context = _halved(context, _SHORTEST_USUAL, lambda tokens: _is_modest(devices, tokens))
        least = min(_MIN_CONTEXT, context_model)
        context = _halved(context, least, lambda tokens: _fit(devices, tokens))
    planned = tuple(_planned(one, context) for one in devices)
    return MemoryPlan(
        weights_bytes=sum(one.weights_bytes for one in planned),
        cache_bytes=sum(one.cache_bytes for one in planned),
        scratch_bytes=sum(one.scratch_bytes for one in planned),
        total_bytes=sum(one.total_bytes for one in planned),
        encoder_bytes=sum(one.encoder_bytes for one in planned),
        available_bytes=sum(one.available_bytes for one in planned),
        context=context,
        most_context=_most_context(devices, max(context_wanted, context_model)),
        devices=planned if others else (),
        limit_bytes=limit,
    )


def usual_context(total_bytes: int) -> int:
    """Tokens of context on a computer with so much memory, unless another length is asked for.

    A full training context of 128k tokens and more takes many times the memory of the weights.
    """
    return next(tokens for least, tokens in _USUAL_CONTEXTS if total_bytes >= least)


def usable(available: int, limit: int = 0) -> int:
    """The most bytes that a model may take of the available memory; `limit` 0: no other limit."""
    most = int(available * _USABLE_SHARE)
    return min(most, limit) if limit else most


def _left(total: int, available: int, limit: int) -> int:
    return max(min(available, limit or available) - total, 0)


def _planned(device: DeviceNeeds, context: int) -> DeviceMemory:
    needs = device.needs
    return DeviceMemory(
        device.device,
        needs.weights_bytes,
        needs.cache_bytes(context),
        needs.scratch_bytes(context),
        device.available_bytes,
        device.limit_bytes,
        needs.encoder_bytes,
    )


def _halved(context: int, least: int, fits: Callable[[int], bool]) -> int:
    while context > least and not fits(context):
        context = max(context // 2, least)
    return context


def _fit(devices: Sequence[DeviceNeeds], context: int) -> bool:
    return all(_planned(one, context).fits for one in devices)


def _is_modest(devices: Sequence[DeviceNeeds], context: int) -> bool:
    """Whether a context takes at most half of the memory that the weights leave, on each device."""
    planned = [_planned(one, context) for one in devices]
    return all(
        2 * (one.total_bytes - one.fixed_bytes) <= one.available_bytes - one.fixed_bytes
        for one in planned
    )


def refusal(plan: MemoryPlan, context_wanted: int) -> OutOfMemory | None:
    """The error for a plan that does not fit in memory; None if it fits."""
    if plan.fits:
        return None
    available = f"{plan.available_bytes / _GB:.1f} GB of memory are free."
    close = "close other programs"
    if plan.limit_bytes and plan.limit_bytes <= usable(plan.available_bytes):
        available, close = f"the limit is {plan.limit_bytes / _GB:.1f} GB.", "raise the limit"
    total = f"{plan.total_bytes / _GB:.1f} GB"
    if full := [one for one in plan.devices[1:] if not one.fits]:
        return OutOfMemory(
            f"The part of the model on the device {full[0].device} needs "
            f"{full[0].total_bytes / _GB:.1f} GB with a context of {plan.context:,} tokens; "
            f"{full[0].available_bytes / _GB:.1f} GB of its memory are free.",
            "Place fewer layers on it, or ask for a shorter context.",
            _fault(FaultKind.MEMORY, plan),
        )
    if context_wanted and plan.most_context >= _MIN_CONTEXT:
        return OutOfMemory(
            f"A context of {plan.context:,} tokens needs {total} with this model; {available}",
            f"Ask for at most {plan.most_context:,} tokens, or {close}.",
            _fault(FaultKind.CONTEXT, plan),
        )
    least = f", or {plan.least_bytes / _GB:.1f} GB read from the disk" if plan.least_bytes else ""
    return OutOfMemory(
        f"The model needs {total} with a context of {plan.context:,} tokens{least}; {available}",
        f"{close[:1].upper()}{close[1:]}, or choose a smaller model.",
        _fault(FaultKind.MEMORY, plan),
    )


def _fault(kind: FaultKind, plan: MemoryPlan) -> Fault:
    return Fault(
        kind,
        needed_bytes=plan.total_bytes,
        available_bytes=plan.available_bytes,
        context=plan.context,
        most_context=plan.most_context,
    )


def vocabulary_bytes(tokens: int, merges: int, sentencepiece: bool) -> int:
    """Memory of a tokenizer: in Python it is several times the size in the file."""
    if sentencepiece:
        return tokens * _SENTENCEPIECE_TOKEN_BYTES
    return tokens * _BYTE_LEVEL_TOKEN_BYTES + merges * _MERGE_BYTES


def scratch_bytes(
    shape: ModelShape,
    tokens: int,
    attention_bytes: int,
    page_bytes: int,
    *,
    recorded: bool = False,
) -> int:
    """Peak memory of a forward pass over `tokens` in addition to weights and KV cache.

    The sum of the activations of one layer, the scratch of attention, the logits of one token and
    their copies in sampling, and two KV pages: the last one is not full, and is copied before it
    is written while it is saved or shared. `recorded` is whether the model runs as one recorded
    program, whose buffers all stay allocated, instead of op by op. Those of hybrid models stay
    allocated too, since their layers write buffers of several widths.
    """
    kept = 2 * page_bytes + 4 * 8 * shape.vocabulary
    if shape.hybrid is not None:
        floats = tokens * (shape.hybrid.token_floats + (_mlp_floats(shape) if shape.experts else 0))
        floats += _WORKING_STATES * shape.hybrid.state_floats
        return _RUNTIME_BYTES + kept + int(_HEAP_FACTOR * (4 * floats + attention_bytes))
    queries = shape.heads * shape.head_width
    keys = shape.kv_heads * shape.head_width
    if recorded:
        buffers = 2 * shape.width + queries + 2 * keys + _mlp_floats(shape)
        return _RECORDED_RUNTIME_BYTES + kept + 4 * tokens * buffers + attention_bytes
    # Peaks of live activations: at RoPE of queries and keys, and at the MLP activation.
    attention_peak = 4 * tokens * (2 * shape.width + 5 * queries + 5 * keys) + attention_bytes
    mlp_peak = 4 * tokens * (2 * shape.width + 4 * shape.feed_forward)
    return _RUNTIME_BYTES + kept + int(_HEAP_FACTOR * max(attention_peak, mlp_peak))


def _mlp_floats(shape: ModelShape) -> int:
    """Floats that a recorded program keeps for the MLP of one token."""
    inner = 2 * shape.feed_forward
    if not shape.experts:
        return inner
    # Inputs and outputs of each pair of token and expert, its 8-bit copy, and the routes.
    copy = 3 * max(shape.width, shape.feed_forward) // 8
    return shape.experts_per_token * (shape.width + inner + copy + 4) + 3 * shape.experts + 2


def _most_context(devices: Sequence[DeviceNeeds], limit: int) -> int:
    """The largest context up to `limit` that fits, by binary search."""
    fitting, too_many = 0, limit + 1
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if _fit(devices, middle):
            fitting = middle
        else:
            too_many = middle
    return fitting
