"""Kernel self-check at load: runs a few tokens through the first, middle and last layer.

Their program runs twice: interpreted op by op, comparing each op with the reference on the weights
as stored in the file, experts included; then as the backend lowers it, which must give the same
bits. Ops that fail are not used for this model; every model is checked when it is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.messages import SlowPart, SlowReason
from engine.models.config import Config
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.models.weights import Weights
from engine.state.pages import PagePool
from engine.state.sequence import Sequence
from kernels.backend import pipeline
from kernels.backend.backend import Backend
from kernels.backend.selfcheck import MOST_ERROR, KernelChecker
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program, Recorded
from kernels.states.kv_pages import KVLayout

# Kernels take different code paths from 2, 5 and 8 tokens on; the decode step covers 1 token.
_TOKENS = 9
_WEIGHT_OPS = ("linear", "embed")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Faults:
    """Kernels that failed the check for a model on this machine: (backend, op, format) to error."""

    errors: Mapping[tuple[str, str, str], float]  # normalized squared; infinite: bits differ
    not_lowered: tuple[str, ...] = ()  # of the checked layers, see `pipeline.not_lowered`

    @property
    def weights(self) -> tuple[tuple[str, str], ...]:
        """Backends and formats whose weights must be stored in a form that the reference reads."""
        wrong = [(backend, format) for backend, op, format in self.errors if op in _WEIGHT_OPS]
        return tuple(dict.fromkeys(wrong))

    @property
    def refused(self) -> dict[str, frozenset[str]]:
        """By backend, the ops without weights, and "record" if the recorded program failed."""
        refused: dict[str, set[str]] = {}
        for backend, op, _ in self.errors:
            if op not in _WEIGHT_OPS:
                refused.setdefault(backend, set()).add(op)
        return {backend: frozenset(ops) for backend, ops in refused.items()}

    @property
    def slow(self) -> tuple[SlowPart, ...]:
        """The failed kernels as slow parts of the model."""
        return tuple(
            SlowPart(SlowReason.WRONG_PROGRAM, "program")
            if op == "record"
            else SlowPart(SlowReason.WRONG_KERNEL, f"{op} {format}" if op in _WEIGHT_OPS else op)
            for _, op, format in self.errors
        )

    @property
    def op_by_op(self) -> tuple[SlowPart, ...]:
        """What is not lowered as slow parts of the model."""
        return tuple(SlowPart(SlowReason.NOT_LOWERED, reason) for reason in self.not_lowered)

    def concern(self, backend: str, kernel: str) -> bool:
        """Whether an op, or an op and format such as "linear Q4_0", runs on the reference."""
        op, _, format = kernel.partition(" ")
        return op in self.refused.get(backend, ()) or (backend, format) in self.weights


def find_faults(
    config: Config,
    decoder: Decoder,
    weights: Weights,
    checkpoint: Callable[[], None] = lambda: None,
) -> Faults:
    """Check the kernels of a model whose weights were just loaded.

    `checkpoint` is called before each token or prefill, and may raise to cancel the load.
    """
    sample = decoder.of_layers(_checked_layers(decoder))
    placement = sample.placement
    tokens = (torch.arange(_TOKENS + 1) * 37 % config.vocabulary).tolist()
    pool = PagePool(KVLayout(sample.layer_states, torch.float32), placement.memories)
    checkers = {one.name: KernelChecker(weights.stored_rows) for one in placement.backends}
    program = forward_program(sample, pool.layout)
    if sample.is_encoder:
        tokens = tokens[: min(_TOKENS, config.context)]

    def watched(backend: Backend, stage: Program) -> Recorded:
        return Interpreter(stage, backend.ops.watched(checkers[backend.name]))

    with torch.inference_mode():
        interpreted = pipeline.recorded_stages(program, placement, watched)
        expected = _run(interpreted, pool, tokens, checkpoint)
        errors = {
            (backend, *kernel): error
            for backend, checker in checkers.items()
            for kernel, error in checker.faults.items()
        }
        not_lowered: tuple[str, ...] = ()
        if not errors:  # otherwise this model is interpreted
            lowered = pipeline.record(program, placement)
            not_lowered = pipeline.not_lowered(lowered)
            if pipeline.is_lowered(lowered):
                found = _run(lowered, pool, tokens, checkpoint)
                if not _same(found, expected, exactly=lowered.exact):
                    lowering = [one.name for one in placement.backends if one.records_programs()]
                    errors |= {(name, "record", "F32"): float("inf") for name in lowering}
    for (backend, op, format), error in errors.items():
        log.warning(
            "%s: the kernel of %s on %s is wrong by %.2g on this machine; it is not used.",
            backend,
            op,
            format,
            error,
        )
    return Faults(errors, not_lowered)


def _checked_layers(decoder: Decoder) -> list[int]:
    """The first, middle and last layer, and on each backend the outer ones and one of each kind."""
    placement, count = decoder.placement, len(decoder.blocks)
    layers = {0, count // 2, count - 1}
    for backend in placement.backends:
        own = [layer for layer in range(count) if placement.layers[layer] is backend]
        kinds = [type(decoder.blocks[layer].attention) for layer in own]
        layers.update(own[kinds.index(kind)] for kind in kinds)
        layers.update(own[-1:])
    return sorted(layers)


def _run(
    recorded: Recorded, pool: PagePool, tokens: list[int], checkpoint: Callable[[], None]
) -> list[Tensor]:
    """Hidden states of all tokens but the last, and the logits of the last, by a decode step.

    Without pages, of an encoder, the hidden states of all.
    """
    sequence = Sequence(pool, len(tokens))
    checkpoint()
    if not pool.layout.groups:
        return [recorded.hidden([sequence.segment(tokens)])]
    sequence.reserve(_TOKENS)
    hidden = recorded.hidden([sequence.segment(tokens[:_TOKENS])])
    sequence.commit(tokens[:_TOKENS])
    checkpoint()
    sequence.reserve(1)
    logits = recorded.step([sequence.segment(tokens[_TOKENS:])])
    sequence.release()
    return [hidden, logits]


def _same(some: list[Tensor], others: list[Tensor], *, exactly: bool) -> bool:
    """Whether all values are equal, counting NaN as equal to NaN; or close, as kernels must be."""
    pairs = list(zip(some, others, strict=True))
    if not exactly and all(bool(b.isfinite().all()) for b in others):
        errors = [(a.double() - b).square().sum() / b.double().square().sum() for a, b in pairs]
        return all(bool(error <= MOST_ERROR) for error in errors)
    return all(
        torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs
    )
