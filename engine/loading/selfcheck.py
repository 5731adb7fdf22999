"""Check of a model's kernels at load: a few tokens through its first, middle and last layer.

Twice: op by op, each op held against its definition on the weights as the file stores them, experts
included; then as the recorded program that makes every token in use, which must give the same bits.
What fails is not used for this model; other models are checked when they are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.inference.session import Session
from engine.messages import SlowPart, SlowReason
from engine.models.config import Config
from engine.models.layers import Decoder
from engine.models.weights import Weights
from engine.state.kv_cache import Cache
from kernels import ops
from kernels.selfcheck import KernelChecker

# Kernels go other ways from 2, 5 and 8 tokens on; the step after them is of one.
_TOKENS = 9
_WEIGHT_OPS = ("linear", "embed")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Faults:
    """Kernels that are wrong for a model on this machine: op and format to the error."""

    errors: Mapping[tuple[str, str], float]  # normalized and squared; infinite: not the same bits

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats whose weights need another storage, which the reference reads."""
        return tuple(dict.fromkeys(format for op, format in self.errors if op in _WEIGHT_OPS))

    @property
    def ops(self) -> frozenset[str]:
        """Ops that read no weight, and "record" where the recorded program is wrong."""
        return frozenset(op for op, _ in self.errors if op not in _WEIGHT_OPS)

    @property
    def slow(self) -> tuple[SlowPart, ...]:
        """What the model is slower by."""
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


def find_faults(config: Config, decoder: Decoder, weights: Weights) -> Faults:
    """Try the kernels of a model whose weights were just read."""
    count = len(decoder.blocks)
    layers = sorted({0, count // 2, count - 1})
    sample = replace(decoder, blocks=tuple(decoder.blocks[layer] for layer in layers))
    tokens = (torch.arange(_TOKENS + 1) * 37 % config.vocabulary).tolist()
    cache = Cache(len(layers), config.kv_heads, config.head_width, len(tokens))
    checker = KernelChecker(weights.stored_rows)
    with torch.inference_mode(), ops.watched(checker):
        one_by_one = _run_ops(sample, cache, tokens)
    errors = dict(checker.faults)
    if not errors:  # else no program is recorded for this model
        session = Session(sample, cache.fresh())
        if session.is_recorded and not _same(_run_program(session, tokens), one_by_one):
            errors["record", "F32"] = float("inf")
    for (op, format), error in errors.items():
        log.warning(
            "The kernel of %s on %s is wrong by %.2g on this machine; it is not used.",
            op,
            format,
            error,
        )
    return Faults(errors)


def _run_ops(sample: Decoder, cache: Cache, tokens: list[int]) -> list[Tensor]:
    """Hidden states of all tokens but the last, and the logits after that."""
    hidden = sample.hidden(torch.tensor(tokens[:_TOKENS]), cache)
    last = sample.hidden(torch.tensor(tokens[_TOKENS:]), cache)
    return [hidden, sample.logits(last)[0]]


def _run_program(session: Session, tokens: list[int]) -> list[Tensor]:
    """The same as a session reads a prompt and then steps."""
    (hidden,) = session.prefill(tokens[:_TOKENS])
    return [hidden, session.step(tokens[_TOKENS])]


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether all numbers are equal, those that are none included."""
    pairs = zip(some, others, strict=True)
    return all(
        torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs
    )
