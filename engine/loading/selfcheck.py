"""Kernel self-check at load: runs a few tokens through the first, middle and last layer.

Their program runs twice: interpreted op by op, comparing each op with the reference on the weights
as stored in the file, experts included; then as the backend lowers it, which must give the same
bits. Ops that fail are not used for this model; every model is checked when it is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.messages import SlowPart, SlowReason
from engine.models.config import Config
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.models.weights import Weights
from engine.state.kv_cache import Cache
from kernels.interpreter import Interpreter
from kernels.program import Recorded
from kernels.selfcheck import KernelChecker

# Kernels take different code paths from 2, 5 and 8 tokens on; the decode step covers 1 token.
_TOKENS = 9
_WEIGHT_OPS = ("linear", "embed")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Faults:
    """Kernels that failed the check for a model on this machine: (op, format) to error."""

    errors: Mapping[tuple[str, str], float]  # normalized squared error; infinite: bits differ

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats whose weights must be stored in a form that the reference reads."""
        return tuple(dict.fromkeys(format for op, format in self.errors if op in _WEIGHT_OPS))

    @property
    def ops(self) -> frozenset[str]:
        """Failed ops that read no weight, and "record" if the recorded program failed."""
        return frozenset(op for op, _ in self.errors if op not in _WEIGHT_OPS)

    @property
    def slow(self) -> tuple[SlowPart, ...]:
        """The failed kernels as slow parts of the model."""
        return tuple(
            SlowPart(SlowReason.WRONG_PROGRAM, "program")
            if op == "record"
            else SlowPart(SlowReason.WRONG_KERNEL, f"{op} {format}" if op in _WEIGHT_OPS else op)
            for op, format in self.errors
        )

    def concern(self, kernel: str) -> bool:
        """Whether an op, or an op and format such as "linear Q4_0", runs on the reference."""
        op, _, format = kernel.partition(" ")
        return op in self.ops or format in self.formats


def find_faults(
    config: Config,
    decoder: Decoder,
    weights: Weights,
    checkpoint: Callable[[], None] = lambda: None,
) -> Faults:
    """Check the kernels of a model whose weights were just loaded.

    `checkpoint` is called before each token or prefill, and may raise to cancel the load.
    """
    count = len(decoder.blocks)
    layers = sorted({0, count // 2, count - 1})
    sample = replace(decoder, blocks=tuple(decoder.blocks[layer] for layer in layers))
    tokens = (torch.arange(_TOKENS + 1) * 37 % config.vocabulary).tolist()
    cache = Cache(len(layers), config.kv_heads, config.head_width, len(tokens))
    checker = KernelChecker(weights.stored_rows)
    program = forward_program(sample)
    with torch.inference_mode():
        watched = Interpreter(program, decoder.backend.ops.watched(checker))
        expected = _run(watched, cache, tokens, checkpoint)
        errors = dict(checker.faults)
        if not errors:  # otherwise this model is interpreted
            lowered = decoder.backend.record(program)
            if not isinstance(lowered, Interpreter):
                found = _run(lowered, cache.fresh(), tokens, checkpoint)
                if not _same(found, expected):
                    errors["record", "F32"] = float("inf")
    for (op, format), error in errors.items():
        log.warning(
            "The kernel of %s on %s is wrong by %.2g on this machine; it is not used.",
            op,
            format,
            error,
        )
    return Faults(errors)


def _run(
    recorded: Recorded, cache: Cache, tokens: list[int], checkpoint: Callable[[], None]
) -> list[Tensor]:
    """Hidden states of all tokens but the last, and the logits of the last, by a decode step."""
    kv = cache.buffers_for(len(tokens))
    checkpoint()
    hidden = recorded.hidden(tokens[:_TOKENS], kv, 0)
    checkpoint()
    return [hidden, recorded.step(tokens[_TOKENS], kv, _TOKENS)]


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether all values are equal, counting NaN as equal to NaN."""
    pairs = zip(some, others, strict=True)
    return all(
        torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs
    )
