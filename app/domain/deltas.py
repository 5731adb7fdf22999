"""Typed deltas of an answer that is being written, by a local or a remote engine.

An engine is an async generator of these. `AnswerUsage` may come more than once, the last one
counts; `AnswerEnd` is the last delta. A generator that fails raises `AnswerFailed`: what came before
it stays, and can be continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from app.domain.parts import ErrorPart, SectionPart, TablePart


class EndReason(StrEnum):
    """Why an answer ended."""

    END = "end"  # the model ended it, or a stop string did
    LENGTH = "length"  # the most tokens were generated
    CONTEXT = "context"  # the context is full
    REPETITION = "repetition"  # the text repeated itself
    TOOL_CALLS = "tool calls"  # the model waits for the results of its calls
    FILTERED = "filtered"  # a server refused to send more
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class PromptProgressDelta:
    """How much of the prompt has been read."""

    tokens: int
    total: int  # tokens of the prompt
    dropped_turns: int = 0  # left out of the prompt: the first ones after the instructions


@dataclass(frozen=True, slots=True)
class WaitingDelta:
    """The answer waits for its engine, such as a server that loads the model."""

    error: ErrorPart  # what it waits for
    seconds: float  # until it is tried again; 0: not known


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """Text added to the model's reasoning, without its markers."""

    text: str
    generated_tokens: int = 0  # of the answer so far; 0: not known
    context_used: int = 0  # tokens; 0: not known


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text added to the answer."""

    text: str
    generated_tokens: int = 0  # of the answer so far; 0: not known
    context_used: int = 0  # tokens; 0: not known


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call; the first one of an index has its id and its name."""

    index: int  # of the calls of this answer, from 0
    id: str = ""
    name: str = ""
    arguments: str = ""  # a piece of JSON text
    generated_tokens: int = 0  # of the answer so far; 0: not known
    context_used: int = 0  # tokens; 0: not known


def joined_calls(pieces: Iterable[ToolCallDelta]) -> Iterator[ToolCallDelta]:
    """Pieces that came together, with those of one call that follow each other as one."""
    for _, group in groupby(pieces, lambda each: each.index):
        first, *others = group
        arguments = "".join(each.arguments for each in (first, *others))
        yield replace((first, *others)[-1], id=first.id, name=first.name, arguments=arguments)


@dataclass(frozen=True, slots=True)
class StepDelta:
    """An answer to a long document begins with its next part."""

    number: int  # of this part, from 1; 0: the final answer
    count: int  # of all parts of this level
    level: int = 0  # as in `SectionPart`
    seconds: float = 0.0  # about, until all parts of this level are done; 0: not known
    query: bool = False  # instead: the query over a table is asked for, or evaluated


@dataclass(frozen=True, slots=True)
class SectionDelta:
    """A part of a long document is done, or a query over a table is evaluated."""

    section: SectionPart | TablePart


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """What an answer took; 0 where it is not known."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, those that were not read again
    generated_tokens: int = 0  # with thoughts
    thought_tokens: int = 0  # of the generated ones
    prompt_seconds: float = 0.0  # reading the prompt
    first_token_seconds: float = 0.0  # from the request to the first token
    decode_seconds: float = 0.0  # from the first token to the last
    thought_seconds: float = 0.0
    thought_budget_reached: bool = False  # the budget ended the thoughts
    token_seconds_p50: float = 0.0  # time of a token after the first ones
    token_seconds_p95: float = 0.0
    drafted_tokens: int = 0  # verified
    accepted_tokens: int = 0  # of these
    draft_gain: float = 0.0  # estimated speed relative to an answer without drafts
    # Of the chat with this answer, if it took several requests; 0: prompt and answer together.
    chat_tokens: int = 0


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The answer is over."""

    reason: EndReason = EndReason.END
    model: str = ""  # that wrote it, as a server names it; "": as asked
    seed: int = -1  # that gives this answer again; -1: none was drawn
    incomplete: bool = False  # it ended before it was what its format asks for


Delta = (
    PromptProgressDelta
    | WaitingDelta
    | ThoughtDelta
    | TextDelta
    | ToolCallDelta
    | StepDelta
    | SectionDelta
    | AnswerUsage
    | AnswerEnd
)


class AnswerFailed(Exception):
    """An answer cannot be written, or not to its end: `error` is the part that says why."""

    def __init__(self, error: ErrorPart, *, full: bool = False) -> None:
        """`full`: the conversation does not fit, and its policy is to stop."""
        super().__init__(error.message)
        self.error, self.full = error, full
