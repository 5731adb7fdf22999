"""Calibration of the prefill time: measures few layers of each kind, and the output head.

Takes about 50 ms with small models and up to half a second with those that take minutes to read a
long prompt. It runs when an estimate is first asked for, not while the model loads.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from engine.adapters.stack import Stack
from engine.core.prefill_time import PrefillCosts, PrefillShape
from engine.core.runner import Runner
from engine.core.session import Session
from engine.messages import CacheType
from engine.models.layers import Decoder

_FEW, _MANY = 16, 128  # tokens
_DEPTH = 1_024  # tokens cached before those measured
_MIN_REPEATS, _MAX_REPEATS = 3, 10
_SECONDS = 0.01  # for one measurement, unless its repeats take longer
_LAYERS = 2  # of a small model: more than one, so that the overhead of a call counts less
_SMALL_MODEL_CHUNK = 512  # tokens: models whose layers are fast have chunks of at least this size


def shape(runner: Runner) -> PrefillShape:
    """The sizes that determine how long a prompt takes."""
    blocks = runner.model.blocks
    return PrefillShape(runner.chunk, tuple(block.window for block in blocks))


@torch.inference_mode()
def calibrate(
    model: Decoder,
    cache: CacheType,
    context: int,
    stack: Stack,
    checkpoint: Callable[[], None] = lambda: None,
) -> PrefillCosts:
    """Measure the costs of a model with adapters, for sequences of at most `context` tokens.

    Raises what `checkpoint` raises.
    """
    chunk = Runner(model, cache).chunk
    count = _LAYERS if chunk >= _SMALL_MODEL_CHUNK else 1
    many = min(max(chunk // 4, _FEW), _MANY, context // 2)
    few = min(_FEW, many)
    depth = min(_DEPTH, context - many)
    hidden = torch.zeros(1, model.embedding.columns)
    prompt = per_chunk = per_token = attended = 0.0
    attending = 0  # layers
    for numbers in layer_kinds(model):
        part = model.of_layers(numbers[:count])
        runner = Runner(part, cache)
        layers = Session(runner, runner.new_pool(), depth + many)
        layers.set_stack(stack)
        least = _seconds(layers, few, 0, checkpoint)
        most = _seconds(layers, many, 0, checkpoint) if many > few else least
        prompt = prompt or _least(lambda layers=layers: layers.logits(hidden), checkpoint)
        token = (most - least) / (many - few) if many > few else most / many
        token = max(token, most / many / 4)  # noise must not make it vanish
        factor = len(numbers) / len(part.blocks)
        per_token += token * factor
        per_chunk += max(least - few * token, 0.0) * factor
        measured = shape(runner)
        further = measured.work(depth, depth + many).attended - measured.work(0, many).attended
        if further > 0:
            deep = _seconds(layers, many, depth, checkpoint)
            attended += max(deep - most, 0.0) / further * factor
            attending += len(numbers)
    # The work of attention is averaged over all layers.
    attended *= len(model.blocks) / max(attending, 1)
    return PrefillCosts(prompt, per_chunk, per_token, attended)


def layer_kinds(model: Decoder) -> list[list[int]]:
    """The layers of each kind: those with equal parts take equally long.

    First those without a window, if there are any: they show the cost of attention at any depth.
    """
    kinds: dict[tuple[type, type], list[int]] = {}
    for at in sorted(range(len(model.blocks)), key=lambda at: model.blocks[at].window > 0):
        block = model.blocks[at]
        kinds.setdefault((type(block.attention), type(block.mlp)), []).append(at)
    return list(kinds.values())


def _seconds(session: Session, tokens: int, depth: int, checkpoint: Callable[[], None]) -> float:
    """Duration of a prefill of `tokens` after `depth` others."""
    ids = [0] * (depth + tokens)

    def prefill() -> None:
        session.rewind(min(depth, len(session.tokens)))
        _fill(session, depth, tokens)
        for _ in session.prefill(ids[depth:], checkpoint):
            pass

    seconds = _least(prefill, checkpoint)
    session.rewind(0)
    return seconds


def _fill(session: Session, depth: int, tokens: int) -> None:
    """Append tokens up to position `depth`, and reserve `tokens` more.

    What the model would remember of them is not computed but zero: that makes no difference to the
    time.
    """
    if missing := depth - len(session.tokens):
        session.sequence.reserve(missing + tokens)
        session.sequence.commit([0] * missing)
        for page in (page for pages in session.sequence.pages for page in pages):
            if page is not None:
                page.data.zero_()


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
