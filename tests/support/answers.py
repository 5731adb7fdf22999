"""Runs one answer on a scheduler and collects its events; reads what it left in the prefix tree."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.cancellation import Cancellation
from engine.core.request import AnswerEvent, AnswerRequest, SequenceGroup
from engine.core.runner import Rows
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.messages import Finished, PromptProgress, Sampling, TaggedText, Text, Thought
from engine.state.sequence import Sequence
from kv_writing import sequence_rows
from poisoned_pool import check_references

GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3)


class Request(AnswerRequest):
    """A request that collects its events; `cancelled` is asked whether it is cancelled."""

    def __init__(
        self, *values: Any, cancelled: Callable[[], bool] | None = None, **options: Any
    ) -> None:
        super().__init__(*values, **options)
        self.events: list[AnswerEvent] = []
        self.deliver = self.events.append
        if cancelled is not None:
            self.cancellation = _Asked(cancelled)


class _Asked(Cancellation):
    """A cancellation that is asked for."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        super().__init__()
        self._asked = asked

    is_cancelled = property(lambda self: self._asked(), lambda self, value: None)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that ended."""

    text: str
    tokens: list[int]  # generated ids, without the end token
    finished: Finished
    events: list[PromptProgress | Text | Thought | Finished] = field(default_factory=list)


def answer(
    model: LoadedModel | Scheduler,
    prompt: Tokens[int],
    sampling: Sampling = GREEDY,
    **options: Any,
) -> Answered:
    """Run a request alone, on a new scheduler where a model is given; raises its error."""
    scheduler = model.new_scheduler() if isinstance(model, LoadedModel) else model
    return answered(scheduler.run(Request(list(prompt), sampling, **options)))


def answered(ticket: SequenceGroup, number: int = 0) -> Answered:
    """The answer of this number of a request that is done."""
    assert ticket.error is None, ticket.error
    assert ticket.done
    events = [one for one in ticket.request.events if getattr(one, "answer", number) == number]
    finished = [event for event in events if isinstance(event, Finished)]
    assert len(finished) == 1
    assert events[-1] is finished[0]
    tagged = TaggedText()
    text = "".join(tagged.push(event) for event in events if isinstance(event, Text | Thought))
    return Answered(text, ticket.answers[number], finished[0], events)


def run_all(scheduler: Scheduler, *requests: Request) -> list[SequenceGroup]:
    """Run requests together until all have ended."""
    tickets = [scheduler.submit(request) for request in requests]
    while scheduler.is_busy:
        scheduler.step()
    assert all(ticket.done for ticket in tickets)
    return tickets


def cached_rows(
    scheduler: Scheduler, tokens: Tokens[int], stack: Stack = NO_ADAPTERS
) -> list[Tensor]:
    """Every cached key and value of these tokens, which must all be in the tree.

    Of layers with a window those that the next token sees.
    """
    match = scheduler.tree.match(stack.key, tokens)
    assert match.length == len(tokens), f"{match.length} of {len(tokens)} tokens are cached"
    sequence = Sequence(scheduler.pool, max(len(tokens), 1)).adopt(tokens, match.pages)
    found = sequence_rows(scheduler.runner.layout, sequence)
    sequence.release()
    return found


def next_logits(scheduler: Scheduler, tokens: Tokens[int], stack: Stack = NO_ADAPTERS) -> Tensor:
    """Logits [V] after the last token, computed with the cached rows of those before it."""
    match = scheduler.tree.match(stack.key, tokens, len(tokens) - 1)
    sequence = Sequence(scheduler.pool, len(tokens)).adopt(tokens[: match.length], match.pages)
    rows = Rows(sequence, tokens[match.length :], stack)
    ((logits,),) = scheduler.runner.step([rows])
    sequence.release()
    return logits


def prompt(length: int, first: int = 0) -> list[int]:
    """Made-up token ids; two with another `first` part at once."""
    return [5 + (first * 7 + at * (first + 3)) % 190 for at in range(length)]


def step_until(scheduler: Scheduler, condition: Callable[[], object]) -> None:
    """Run passes until the condition holds."""
    for _ in range(5_000):
        if condition():
            return
        scheduler.step()
    raise AssertionError("the condition was never met")


def texts(ticket: SequenceGroup) -> int:
    """Number of tokens generated so far, of all answers."""
    return sum(isinstance(event, Text | Thought) for event in ticket.request.events)


def check_nothing_leaked(scheduler: Scheduler) -> None:
    """Check that only the tree without adapters refers to pages; clears it."""
    assert not scheduler.is_busy
    assert scheduler.running == 0
    check_references(scheduler.pool, [], scheduler.tree)
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


def alone(model: LoadedModel, request: Request) -> Answered:
    """The answer to an equal request in a scheduler of its own."""
    return answer(
        model, request.prompt, request.sampling, max_tokens=request.max_tokens, stack=request.stack
    )
