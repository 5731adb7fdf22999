"""Speed of a loaded model: prefill and decode, run alone, and the memory traffic of a decode step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator

import torch

from engine.adapters.stack import Stack
from engine.core.session import Session
from engine.errors import RequestError
from engine.loading.loader import LoadedModel
from engine.messages import MeasureSpeed, SpeedMeasured
from engine.state.pages import storage_dtype
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PageLayer, StateLayer

# Not a power of two: the threads' parts would then start at power-of-two strides, share DRAM banks,
# and read a third slower.
_BANDWIDTH_BYTES = 518 << 20
_LEAST_BANDWIDTH_BYTES = 65 << 20

Checkpoint = Callable[[], None]


def measured(
    model: LoadedModel, wanted: MeasureSpeed, number: int, stack: Stack, checkpoint: Checkpoint
) -> Generator[SpeedMeasured | None, None, None]:
    """Measure, and yield the event at last; yields None between the parts of each repetition.

    The machine's memory bandwidth is measured right before and right after each decode. Raises what
    `checkpoint` raises, and RequestError for options out of range.
    """
    _check(wanted, model.plan.context)
    prompt, generated, depth = wanted.prompt, wanted.generated, wanted.depth
    needed = depth + max(prompt, generated)
    session, backend = model.new_session(), model.decoder.placement.layers[0]
    session.set_stack(stack)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocabulary, (needed,), generator=random).tolist()
    # Warm-up: allocates memory, starts threads and grows the cache before the timed runs.
    _prefill_seconds(session, ids, 0, checkpoint)
    _decode_seconds(session, ids[-1:], needed - 1, checkpoint)
    prefill, decode, bandwidths = list[float](), list[float](), list[float]()
    probe = min(_BANDWIDTH_BYTES, max(model.plan.left_bytes // 2, _LEAST_BANDWIDTH_BYTES))
    streamer = model.decoder.streamer
    offloaded = 0  # bytes read from the disk while decoding
    for _ in range(wanted.repetitions):
        yield None
        prefill.append(prompt / _prefill_seconds(session, ids[: depth + prompt], depth, checkpoint))
        yield None
        # In a virtual machine the bandwidth varies by half within seconds, as cores are migrated.
        before = backend.read_bandwidth(probe)
        offloaded -= streamer.read_bytes if streamer else 0
        steps = ids[depth : depth + generated]
        decode.append(generated / _decode_seconds(session, steps, depth, checkpoint))
        offloaded += streamer.read_bytes if streamer else 0
        bandwidths.append((before + backend.read_bandwidth(probe)) / 2)
    yield SpeedMeasured(
        number,
        statistics.median(prefill),
        statistics.median(decode),
        bytes_per_token(model, depth + generated // 2),
        statistics.median(bandwidths),
        offloaded // (generated * wanted.repetitions) if streamer else None,
        torch.get_num_threads(),
    )


def bytes_per_token(model: LoadedModel, length: int) -> int:
    """Memory traffic of one decode step at position `length`: weights as stored, and KV cache.

    The weights are those of every block and the head. A layer reads the keys and values inside its
    attention window, or its state of fixed size.
    """
    decoder, dtype = model.decoder, storage_dtype(model.cache)
    layers = KVLayout(decoder.layer_states, dtype).layers

    def read(layer: PageLayer | StateLayer) -> float:
        size = KVLayout([layer.shape], dtype).bytes_per_page
        if isinstance(layer, StateLayer):
            return size
        return size / PAGE_TOKENS * min(length, layer.shape.window or length)

    weights = sum(block.size_bytes for block in decoder.blocks) + decoder.head.weight.size_bytes
    return weights + int(sum(map(read, layers)))


def _check(wanted: MeasureSpeed, context: int) -> None:
    if min(wanted.prompt, wanted.generated, wanted.repetitions) < 1 or wanted.depth < 0:
        raise RequestError(
            "A benchmark needs at least one prompt token, one generated token and one repetition.",
            "Give each a value of 1 or more, and a depth of 0 or more.",
        )
    needed = wanted.depth + max(wanted.prompt, wanted.generated)
    if needed > context:
        raise RequestError(
            f"The benchmark needs a context of {needed:,} tokens; this model was loaded with "
            f"{context:,}.",
            "Give smaller numbers, or load it with a larger context.",
        )


def _prefill_seconds(
    session: Session, ids: list[int], cached: int, checkpoint: Checkpoint
) -> float:
    """Time to prefill `ids` after the first `cached`, which are in the session, and get logits."""
    reached = session.rewind(cached)
    started = time.perf_counter()
    session.read(ids[reached:], checkpoint)
    return time.perf_counter() - started


def _decode_seconds(session: Session, ids: list[int], cached: int, checkpoint: Checkpoint) -> float:
    """Time of one decode step for each of `ids` after the first `cached` tokens of the session."""
    before = session.tokens[:cached]
    if again := before[session.rewind(cached) :]:
        session.read(again, checkpoint)
    started = time.perf_counter()
    for token in ids:
        session.step(token, checkpoint)
    return time.perf_counter() - started
