"""Calibration of the prefill time: measures few layers and the output head of a loaded model.

Takes about 50 ms with small models and up to half a second with those that take minutes to read a
long prompt. It runs when an estimate is first asked for, not while the model loads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from engine.inference.prefill_time import PrefillCosts, PrefillShape
from engine.inference.session import Session
from engine.state.kv_cache import Cache

_FEW, _MANY = 16, 128  # tokens
_DEPTH = 1_024  # tokens cached before those measured
_MIN_REPEATS, _MAX_REPEATS = 3, 10
_SECONDS = 0.01  # for one measurement, unless its repeats take longer
_LAYERS = 2  # of a small model: more than one, so that the overhead of a call counts less
_SMALL_MODEL_CHUNK = 512  # tokens: models whose layers are fast have chunks of at least this size


def shape(session: Session) -> PrefillShape:
    """The sizes that determine how long a prompt takes in this session."""
    blocks = session.model.blocks
    return PrefillShape(session.chunk, tuple(block.attention.window for block in blocks))


@torch.inference_mode()
def calibrate(
    session: Session,
    new_cache: Callable[[int, int], Cache],
    checkpoint: Callable[[], None] = lambda: None,
) -> PrefillCosts:
    """Measure the costs of this session's model with its adapters; the session is not changed.

    `new_cache` makes an empty cache of some layers and tokens. Raises what `checkpoint` raises.
    """
    count = _LAYERS if session.chunk >= _SMALL_MODEL_CHUNK else 1
    # Layers without a window, if there are any: they show the cost of attention at any depth.
    blocks = sorted(session.model.blocks, key=lambda block: block.attention.window > 0)[:count]
    many = min(max(session.chunk // 4, _FEW), _MANY, session.context // 2)
    few = min(_FEW, many)
    depth = min(_DEPTH, session.context - many)
    layers = Session(
        replace(session.model, blocks=tuple(blocks)), new_cache(len(blocks), depth + many)
    )
    layers.set_stack(session.stack)
    hidden = torch.zeros(1, session.model.embedding.columns)
    least = _seconds(layers, few, 0, checkpoint)
    most = _seconds(layers, many, 0, checkpoint) if many > few else least
    deep = _seconds(layers, many, depth, checkpoint)
    prompt = _least(lambda: layers.logits(hidden), checkpoint)
    token = (most - least) / (many - few) if many > few else most / many
    token = max(token, most / many / 4)  # noise must not make it vanish
    measured = shape(layers)
    further = measured.work(depth, depth + many).attended - measured.work(0, many).attended
    attended = max(deep - most, 0.0) / further if further > 0 else 0.0
    chunk = max(least - few * token, 0.0)
    factor = len(session.model.blocks) / len(blocks)
    return PrefillCosts(prompt, chunk * factor, token * factor, attended * factor)


def _seconds(session: Session, tokens: int, depth: int, checkpoint: Callable[[], None]) -> float:
    """Duration of a prefill of `tokens` after `depth` others."""
    ids = [0] * (depth + tokens)
    if missing := depth - len(session.tokens):
        # Not computed but zero: the values make no difference to the time.
        buffers = session.cache.buffers_for(missing + tokens)
        for rows in (*buffers.keys, *buffers.values):
            for part in (rows.data, rows.scales):
                if part is not None:
                    part.zero_()
        session.cache.advance(missing)
        session.tokens += ids[:missing]

    def prefill() -> None:
        session.trim(depth)
        for _ in session.prefill(ids[depth:], checkpoint):
            pass

    seconds = _least(prefill, checkpoint)
    session.trim(0)
    return seconds


def _least(measured: Callable[[], object], checkpoint: Callable[[], None]) -> float:
    """Shortest duration after a first call: whatever else the machine does only adds to it."""
    measured()
    durations: list[float] = []
    while len(durations) < _MIN_REPEATS or (
        len(durations) < _MAX_REPEATS and sum(durations) < _SECONDS
    ):
        checkpoint()
        started = time.perf_counter()
        measured()
        durations.append(time.perf_counter() - started)
    return min(durations)
