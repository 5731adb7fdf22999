"""Answers that wait, and those in progress: the text received, what is not stored, and the speed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from app.chat.requests.planner import Branch, Uses
from app.domain.answer_details import AnswerDetails
from app.domain.answer_request import AnswerRequest
from app.domain.deltas import (
    AnswerEnd,
    AnswerUsage,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
    WaitingDelta,
)
from app.domain.growing import append_text
from app.domain.model_ref import ModelRef
from app.domain.parts import Parts, ThoughtPart, ToolCallPart
from app.engines.run import AnswerRun, Waiting
from app.state.faults import explain
from engine import THOUGHT_ENDS, THOUGHT_OPENS, Chat, ModelLoaded, Sampling, Tool

_USUAL = Sampling()
_SPEED_SECONDS = 0.25  # update interval of the shown speed


@dataclass(slots=True, eq=False)
class QueuedAnswer:
    """An answer that waits for its model or its adapters, and is not requested yet."""

    branch: Branch  # ends with the answer
    conversation: int
    message: int
    parts: Parts  # of the answer so far; not empty when it is continued
    command: Callable[[], Chat]  # made once the model is loaded, whose settings are in it
    request: Callable[[], AnswerRequest] | None  # the same of an engine elsewhere
    adapters: Uses | None  # None: the conversation's
    model: ModelRef | None = None  # None: the conversation's
    overtaken: int = 0  # by how many later answers of the loaded model
    searching: bool = False  # its question has no passages yet: it is not requested
    calling: bool = False  # calls of tools have no result yet: it is not requested
    rounds: int = 0  # of calls that it has waited for
    used: AnswerUsage = field(default_factory=AnswerUsage)  # in the rounds before
    details: AnswerDetails | None = None  # of these
    is_alternative: bool = False  # the other answer of a comparison
    before: AnswerDetails | None = None  # known before, and of the part that is continued
    checked_again: bool = False  # the engine refused its adapters after it had accepted them
    turn: Waiting[Uses] = field(default_factory=Waiting[Uses])  # to begin, with these adapters
    running: RunningAnswer | None = None  # once it was requested


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where an engine elsewhere writes an answer, and what it was sent."""

    model: str  # as the server lists it
    connection: str  # its name
    server: str  # host and port
    sampling: Mapping[str, float]  # the values that the user chose

    def details(self, end: AnswerEnd) -> dict[str, Any]:
        """Fields of `AnswerDetails`."""
        return {
            "server": self.server,
            "connection": self.connection,
            "server_model": "" if end.model == self.model else end.model,
            "sent_sampling": json.dumps(dict(self.sampling)),
        }


@dataclass(slots=True, eq=False)
class RunningAnswer:
    """An answer that was requested from an engine."""

    run: AnswerRun
    job: QueuedAnswer
    command: Chat  # what was asked for; of an engine elsewhere, what is known of it
    uses: Uses  # adapters that it is written with
    name: str  # of the model that writes it
    loaded: ModelLoaded | None  # that model; None: it is elsewhere
    parts: Parts  # of the message so far; at first those that it continues
    elsewhere: Elsewhere | None = None
    unsaved: list[str] = field(default_factory=list)
    tokens_per_second: float = 0.0
    interrupted: bool = False  # stopped because the app quits, and not by the user
    ended: bool = False  # in the store and the state; the engine may go on for a moment
    step: str = ""  # what a long one does now, in words
    overdue: bool = False  # it has waited long enough for its turn to say so
    _calls: dict[int, int] = field(default_factory=dict[int, int])  # places in `parts`
    _in_thought: bool = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _waited: float = 0.0  # seconds until the first token
    _first_token: tuple[float, int] | None = None  # time, tokens by then
    _speed_at: float = 0.0

    def __post_init__(self) -> None:
        last = self.parts[-1] if self.parts else None
        self._in_thought = isinstance(last, ThoughtPart) and not last.ends

    @property
    def conversation(self) -> int:
        """That of its message."""
        return self.job.conversation

    @property
    def message(self) -> int:
        """The message that is written."""
        return self.job.message

    def has_its_turn(self) -> None:
        """The answers before it have ended: the time to its first token counts from now."""
        self._began = time.monotonic()

    def begin_step(self, words: str) -> None:
        """The next one of several requests begins: its speed is measured anew."""
        self.step, self._first_token = words, None

    def add(self, delta: TextDelta | ThoughtDelta) -> str:
        """Add new tokens, some of which decode to no text; returns their text with its markup."""
        last, now, text = delta, time.monotonic(), delta.text
        if text:
            is_thought = isinstance(delta, ThoughtDelta)
            if is_thought != self._in_thought:
                self._in_thought = is_thought
                text = (THOUGHT_OPENS if is_thought else THOUGHT_ENDS) + text
            self.unsaved.append(text)
            self.parts = append_text(self.parts, text)
        if self._first_token is None:
            self._waited = self._waited or now - self._began
            self._first_token = now, last.generated_tokens
            self._speed_at = now
        elif now - self._speed_at > _SPEED_SECONDS:
            began, tokens = self._first_token
            self.tokens_per_second = (last.generated_tokens - tokens) / (now - began)
            self._speed_at = now
        return text

    def add_call(self, delta: ToolCallDelta) -> None:
        """Add a piece of a call, which is stored once the model has written all calls."""
        place = self._calls.get(delta.index)
        if place is not None:
            old = self.parts[place]
            assert isinstance(old, ToolCallPart)
            call = replace(old, arguments=old.arguments + delta.arguments)
            self.parts = (*self.parts[:place], call, *self.parts[place + 1 :])
            return
        if self._in_thought:
            self._in_thought = False
            self.unsaved.append(THOUGHT_ENDS)
            self.parts = append_text(self.parts, THOUGHT_ENDS)
        self._calls[delta.index] = len(self.parts)
        self.parts = (*self.parts, ToolCallPart(delta.name, delta.arguments, self._id(delta)))

    def _id(self, delta: ToolCallDelta) -> str:
        """An id that no call of the message has: some servers begin anew with each answer."""
        known = {part.call for part in self.parts if isinstance(part, ToolCallPart)}
        wanted = delta.id or f"call_{delta.index}"
        more = (f"{wanted}_{number}" for number in itertools.count(2))
        return next(id for id in itertools.chain((wanted,), more) if id not in known)

    def take_unsaved(self) -> str:
        """The text that is not stored yet; from now on it counts as stored."""
        text = "".join(self.unsaved)
        self.unsaved.clear()
        return text

    def details(self, used: AnswerUsage, end: AnswerEnd) -> AnswerDetails:
        """What is stored about the answer once it has ended."""
        loaded, asked = self.loaded, self.command
        earlier = self.job.before or AnswerDetails()
        return AnswerDetails(
            model=self.name,
            format=loaded.format if loaded else "",
            ended=time.time(),
            reused_tokens=used.cached_tokens,
            first_token_seconds=round(used.first_token_seconds or self._waited, 4),
            prompt_seconds=round(used.prompt_seconds, 4),
            decode_seconds=round(used.decode_seconds, 4),
            token_seconds_p50=round(used.token_seconds_p50, 5),
            token_seconds_p95=round(used.token_seconds_p95, 5),
            **sampling_details(asked.sampling, asked.thinking),
            seed=end.seed,
            drafted_tokens=used.drafted_tokens,
            accepted_tokens=used.accepted_tokens,
            draft_gain=round(used.draft_gain, 3),
            constraint=asked.constraint.kind.value if asked.constraint else "",
            incomplete=end.incomplete,
            thought_tokens=used.thought_tokens,
            thought_seconds=round(earlier.thought_seconds + used.thought_seconds, 2),
            thought_budget=(asked.thinking_budget or 0)
            if used.thought_budget_reached
            else earlier.thought_budget,
            chat_tokens=used.chat_tokens,
            edited=earlier.edited,
            extra=earlier.extra,
            **(self.elsewhere.details(end) if self.elsewhere else {}),
        )


def joined_usage(before: AnswerUsage, used: AnswerUsage) -> AnswerUsage:
    """What several requests of one answer took together."""
    if not before.prompt_tokens:
        return used
    return replace(
        used,
        prompt_tokens=before.prompt_tokens + used.prompt_tokens,
        cached_tokens=before.cached_tokens + used.cached_tokens,
        generated_tokens=before.generated_tokens + used.generated_tokens,
        thought_tokens=before.thought_tokens + used.thought_tokens,
        prompt_seconds=before.prompt_seconds + used.prompt_seconds,
        first_token_seconds=before.first_token_seconds,
        decode_seconds=before.decode_seconds + used.decode_seconds,
        thought_seconds=before.thought_seconds + used.thought_seconds,
        drafted_tokens=before.drafted_tokens + used.drafted_tokens,
        accepted_tokens=before.accepted_tokens + used.accepted_tokens,
        chat_tokens=used.chat_tokens or used.prompt_tokens + used.generated_tokens,
    )


def waiting_words(delta: WaitingDelta) -> str:
    """What an answer of an engine elsewhere waits for."""
    shown = explain(delta.error.fault, delta.error.file, delta.error.message)
    return shown.sentence


def asked_elsewhere(request: AnswerRequest) -> Chat:
    """What is known of a request to an engine elsewhere: a value that was not sent counts as off."""
    off = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    return Chat(
        (),
        replace(off, **dict(request.sampling)),
        thinking=request.thinking,
        constraint=request.constraint,
        tools=tuple(Tool(each.name, each.description, each.schema) for each in request.tools),
    )


def sampling_details(used: Sampling, thinking: bool | None) -> dict[str, Any]:
    """Fields of `AnswerDetails` that are known before an answer begins."""
    return {
        "temperature": float(used.temperature),
        "top_k": used.top_k,
        "top_p": float(used.top_p),
        "min_p": float(used.min_p),
        "repeat_penalty": float(used.repeat_penalty),
        "thinking": {None: "", True: "on", False: "off"}[thinking],
        "more_sampling": _more(used),
    }


def _more(used: Sampling) -> str:
    """The parameters that have no field of `AnswerDetails`, as far as they are not as usual."""
    known, usual = {field.name for field in fields(AnswerDetails)}, asdict(_USUAL)
    changed = {
        name: value
        for name, value in asdict(used).items()
        if name not in known and value != usual[name] and isinstance(value, int | float)
    }
    return json.dumps(changed) if changed else ""
