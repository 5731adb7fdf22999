"""What a client wants of a model, and the typed deltas of its answers: shared by all APIs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.messages import (
    AdapterUse,
    Constraint,
    FinishReason,
    Infill,
    Sampling,
    TokenLogprobs,
    Tool,
    ToolChoice,
    Turn,
)
from engine.server.activity import Client, Exchange


@dataclass(frozen=True, slots=True)
class Wanted:
    """An answer that a client wants: `Service.generate` makes it, whatever the API.

    Either `turns`, written with the model's chat template, or `prompt`, continued as it is.
    """

    model: str = ""  # a name as in `Service.models`; "": the main model
    turns: tuple[Turn, ...] = ()
    prompt: str | tuple[int, ...] | Infill | None = None  # a text, token ids, or a gap in a text
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | str = ToolChoice.AUTO  # or the name of a tool that must be called
    parallel_tool_calls: bool = True
    # Fields of `Sampling` that the client gave; the others are as the model file recommends.
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_tokens: int = 0  # 0: no limit
    stop: tuple[str, ...] = ()
    thinking: bool | None = None  # None: the template's default
    thinking_budget: int | None = None  # tokens; None: no limit
    constraint: Constraint | None = None
    logprobs: int = 0  # of so many most likely tokens; 0: none
    sampled_logprobs: bool = False  # these are after sampling parameters and constraint
    answers: int = 1
    template_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    text_biases: tuple[tuple[str, float], ...] = ()  # of logits, for all tokens of each text
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the server
    begins_answer: bool = True  # False: a template writes the turns alone
    slot: int = -1  # of llama.cpp's API; -1: the first free one
    drops_oldest: bool = False  # turns, where a conversation does not fit; else it is refused
    reports_progress: bool = False  # with deltas of `Progress`
    # That the model stays loaded afterwards; None: as the server is set; <0: ever.
    keep_seconds: float | None = None
    exchange: Exchange | None = None  # what the log says about the request

    @property
    def client(self) -> Client:
        """Who asks."""
        return Client() if self.exchange is None else self.exchange.client


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of an answer."""

    prompt: int = 0
    cached: int = 0  # of the prompt, not computed again
    generated: int = 0  # with thoughts
    reasoning: int = 0  # of these


@dataclass(frozen=True, slots=True)
class Timings:
    """Times of an answer in seconds."""

    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    first_token_seconds: float = 0.0  # from the request
    drafted: int = 0  # tokens verified
    accepted: int = 0  # of these


@dataclass(frozen=True, slots=True)
class Begun:
    """The model reads the prompt; the first delta of every request, after which no status changes."""

    model: str  # its name, as in `Service.models`
    prompt: int  # tokens
    cached: int  # of these
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen; with what the model file recommends
    slot: int = 0  # of llama.cpp's API


@dataclass(frozen=True, slots=True)
class Progress:
    """A part of the prompt was read; only where that was asked for."""

    done: int  # tokens, with the cached ones
    total: int
    cached: int
    seconds: float  # since the first


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reasoning of an answer grew; as for Content."""

    text: str
    answer: int = 0  # of several answers to one prompt
    logprobs: tuple[TokenLogprobs, ...] = ()  # of the tokens since the last delta, if asked for
    generated: int = 0  # tokens of the answer so far


@dataclass(frozen=True, slots=True)
class Content:
    """The text of an answer grew; "" for tokens without a text of their own, if asked for."""

    text: str
    answer: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    generated: int = 0


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A tool call grew: the first delta of an index has its id and name."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""  # a piece of JSON text
    answer: int = 0
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """An answer is complete; the last delta of each answer."""

    answer: int
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    seed: int = -1  # that gives this answer again
    stop: str = ""  # the stop string that ended it


Delta = Begun | Progress | Reasoning | Content | CallDelta | Done
