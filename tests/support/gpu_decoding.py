"""Decode steps of a model, as a GPU backend recorded them and op by op."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.runner import Runner
from engine.loading.loader import LoadedModel
from engine.messages import CacheType
from engine.models.forward import forward_program
from engine.state.sequence import Sequence
from gpu_results import check_close
from kernels.backend.backend import Backend
from kernels.ops import Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program, Recorded
from kernels.states.kv_pages import PAGE_TOKENS, PageTable


class Decoding:
    """A tiny model on a backend, and sequences that it continues by single tokens."""

    def __init__(
        self,
        model: LoadedModel,
        backend: Backend,
        record: Callable[[Program], Recorded],
        most_error: float,
        stack: Stack = NO_ADAPTERS,
    ) -> None:
        """`most_error` is the normalized mean square error that a step may have."""
        self.pool = Runner(model.decoder, CacheType.F16).new_pool()
        program = forward_program(model.decoder, self.pool.layout, stack)
        self.recorded = record(program)
        self.interpreter = Interpreter(program, backend.ops)
        self._most_error = most_error

    def sequence(self, *tokens: int) -> Sequence:
        """A sequence of these tokens, committed."""
        made = Sequence(self.pool, 600)
        if tokens:
            made.reserve(len(tokens))
            self.interpreter.hidden([made.segment(list(tokens))])
            made.commit(list(tokens))
        return made

    def sequence_of_two_pages(self) -> Sequence:
        """A sequence whose next token is the first of its second page; its rows are zeros."""
        made = Sequence(self.pool, 600)
        made.reserve(PAGE_TOKENS + 1)
        for page in made.segment([9]).tables[0].pages:
            assert page is not None
            page.zero_()
        made.commit([3] * PAGE_TOKENS)
        return made

    def step(self, run: Recorded, sequences: list[Sequence], token: int) -> Tensor:
        """One token more for each of the sequences, whose rows are not committed."""
        for one in sequences:
            one.reserve(1)
        return run.step([one.segment([token]) for one in sequences])

    def check(self, sequences: list[Sequence], token: int) -> None:
        """A recorded step has the logits of the interpreter's."""
        found = self.step(self.recorded, sequences, token)
        wanted = self.step(self.interpreter, sequences, token)
        check_close(found, wanted, self._most_error)


def check_body_and_head(decoding: Decoding) -> None:
    """Body and head, run apart, have the bits of the step, and a checkpoint can stop the body."""
    one = decoding.sequence(5, 6)
    one.reserve(1)
    segments = [one.segment([7])]
    step = decoding.recorded.step(segments)
    apart = decoding.recorded.logits(decoding.recorded.hidden(segments))
    assert torch.equal(step, apart)
    stopped = RuntimeError("stop")

    def stop() -> None:
        raise stopped

    with pytest.raises(RuntimeError, match="stop"):
        decoding.recorded.hidden(segments, stop)


def check_first_step(
    program: Program, recorded: Recorded, backend: Backend, most_error: float
) -> None:
    """A recorded step of a token without a past has the logits of the interpreter's."""
    table = PageTable()
    table.append(torch.zeros(program.kv.page_bytes[0], dtype=torch.uint8))
    segments = [Segment([7], 0, [table])]
    found = recorded.step(segments)
    check_close(found, Interpreter(program, backend.ops).step(segments), most_error)


def logits(model: LoadedModel, *tokens: int) -> Tensor:
    """Logits [7 + tokens, V] of a prompt of seven tokens, and of `tokens` one by one."""
    session = model.new_session()
    found = [session.logits(hidden) for hidden in session.prefill([5, 6, 7, 8, 9, 3, 4])]
    for token in tokens:
        found += [session.logits(hidden) for hidden in session.prefill([token])]
    return torch.cat(found)
