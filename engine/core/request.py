"""AnswerRequest and SequenceGroup: what to generate, and the sequences that one request becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.cancellation import Awaited, Cancellation
from engine.errors import Fault, FaultKind, PromptTooLong, RequestError
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.reasoning_budget import ThoughtPlan
from engine.messages import Constraint, Finished, Priority, PromptProgress, Sampling, Text, Thought
from engine.sampling import Sampler
from engine.speculative.drafter import Drafter

MOST_ANSWERS = 16  # to one prompt

AnswerEvent = PromptProgress | Text | Thought | Finished


@dataclass(frozen=True, slots=True)
class SamplerState:
    """State needed to resume an interrupted answer."""

    sampling: Sampling
    seed: int  # that was drawn with, also where `sampling` leaves it open
    mu: float  # of mirostat
    constraint: Constraint | None = None
    begin: int | None = None  # token of the text where the constrained answer begins, if known


def _ignore(event: AnswerEvent) -> None:
    """Where events go that nobody wants."""


def _no_prompt(done: int, total: int) -> None:
    """Who does not ask how far the prompt is."""


def _no_end(stack: Stack, text: list[int]) -> None:
    """Nobody asks for the texts of answers."""


@dataclass(slots=True)
class AnswerRequest:
    """What to generate: a prompt of token ids and how to continue it."""

    prompt: Tokens[int]
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen
    number: int = 0  # id of the request in its events
    max_tokens: int = 0  # 0: no limit
    stop: Tokens[str] = ()
    opening: str = ""  # text at the end of the prompt that belongs to the answer
    count: int = 1  # answers to the one prompt
    stack: Stack = NO_ADAPTERS
    priority: Priority = Priority.NORMAL
    stop_loops: bool = True  # end an answer that repeats itself, where nothing constrains it
    resume: SamplerState | None = None  # of the interrupted answer that the prompt ends with
    # Makes the drafter of an answer, which may draw with its sampler; None: no drafts.
    drafter: Callable[[Sampler], Drafter] | None = None
    constraint: Constraint | None = None  # None: that of `resume`, if any
    begun: str = ""  # text of the answer that the prompt ends with
    thoughts: ThoughtPlan | None = None  # None: a text without thoughts
    logprobs: int = 0  # of so many most likely tokens, with each token of the answer; 0: none
    sampled_logprobs: bool = False  # these are after sampling parameters and constraint
    dropped_turns: int = 0  # left out of the prompt
    arrived: float = field(default_factory=time.perf_counter)  # when it was asked for
    on_prompt: Callable[[int, int], None] = _no_prompt  # is told of its tokens done, and of all
    # Is given the text of an answer that ends, whose pages are in the tree, before its last event.
    on_end: Callable[[Stack, list[int]], None] = _no_end
    deliver: Callable[[AnswerEvent], None] = _ignore  # is given its events where they arise
    cancellation: Cancellation = field(default_factory=Cancellation)


@dataclass(slots=True, eq=False)
class SequenceGroup(Awaited):
    """The sequences of one prompt: a request with its answers, and how it ended."""

    request: AnswerRequest
    matcher: Matcher | None = None  # of the constraint, where the prompt ends
    error: BaseException | None = None
    open_answers: int = 1  # answers without a final event
    done: bool = False  # the last event was delivered, or there is an error
    tokens: list[int] = field(default_factory=list)  # prompt and answer that ended last
    answers: dict[int, list[int]] = field(default_factory=dict)  # generated ids, once ended
    was_alone: bool = True  # no other answer ran while the prompt was processed
    forked: bool = False  # the prompt is processed and all answers have begun

    @property
    def group(self) -> SequenceGroup:
        """Itself: it waits in line beside sequences that were preempted."""
        return self

    def emit(self, event: AnswerEvent) -> None:
        """Deliver an event; where that fails the request ends, and nothing more is delivered."""
        if self.error is not None:
            return
        try:
            self.request.deliver(event)
        except BaseException as fault:  # noqa: BLE001  of whoever asked; the others go on
            self.request.cancellation.cancel()
            self.fail(fault)

    def fail(self, error: BaseException) -> None:
        """The request ends with an error."""
        self.error, self.done = self.error or error, True


def check(request: AnswerRequest, context: int) -> None:
    """Raise PromptTooLong, or RequestError for an option out of range."""
    if not request.prompt:
        raise RequestError("The prompt is empty.", "Type something first.")
    if request.max_tokens < 0:
        raise RequestError(
            f"The number of tokens to generate is {request.max_tokens}.",
            "Give 0 for no limit, or more.",
        )
    if request.logprobs < 0:
        raise RequestError(
            f"Log probabilities of {request.logprobs} tokens were requested.",
            "Give 0 for none, or more.",
        )
    if request.thoughts is not None and (request.thoughts.budget or 0) < 0:
        raise RequestError(
            f"The budget of thoughts is {request.thoughts.budget} tokens.",
            "Give 0 for none, or more.",
        )
    if not 1 <= request.count <= MOST_ANSWERS:
        raise RequestError(
            f"{request.count} answers to one prompt were requested.",
            f"Ask for 1 to {MOST_ANSWERS}.",
        )
    check_length(request.prompt, context)


def check_length(prompt: Tokens[int], context: int) -> None:
    """Raise PromptTooLong if a prompt leaves no room for a token."""
    if len(prompt) >= context:
        raise PromptTooLong(
            f"This chat is full: it has {len(prompt):,} tokens, and the model can take in "
            f"{context:,}.",
            "Start a new chat, or choose a longer context in the model's settings.",
            Fault(FaultKind.CHAT_FULL, context=len(prompt), most_context=context),
        )
