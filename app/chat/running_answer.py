"""Answers that wait, and those in progress: the text received, what is not stored, and the speed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from app.chat.planner import Branch, Uses
from app.domain.answer_details import AnswerDetails
from app.domain.growing import append_text
from app.domain.model_ref import ModelRef
from app.domain.parts import Parts
from engine import Chat, Constraint, Finished, ModelLoaded, Sampling, Text

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
    adapters: Uses | None  # None: the conversation's
    model: ModelRef | None = None  # None: the conversation's
    overtaken: int = 0  # by how many later answers of the loaded model
    is_alternative: bool = False  # the other answer of a comparison
    before: AnswerDetails | None = None  # known before, and of the part that is continued
    checked_again: bool = False  # the engine refused its adapters after it had accepted them


@dataclass(slots=True)
class RunningAnswer:
    """An answer that was requested from the engine and has not ended."""

    request: int
    conversation: int
    message: int
    loaded: ModelLoaded | None  # the model that writes it
    sampling: Sampling
    parts: Parts  # of the message so far; at first those that it continues
    thinking: bool | None = None  # None: the default of the chat template
    constraint: Constraint | None = None  # what the answer has to be
    budget: int = 0  # tokens of thoughts; 0: no limit
    earlier: AnswerDetails | None = None  # known before, and of the part that is continued
    unsaved: list[str] = field(default_factory=list)
    tokens_per_second: float = 0.0
    interrupted: bool = False  # stopped because the app quits, and not by the user
    overdue: bool = False  # it has waited long enough for its turn to say so
    _began: float = field(default_factory=time.monotonic)
    _waited: float = 0.0  # seconds until the first token
    _first_token: tuple[float, int] | None = None  # time, tokens by then
    _speed_at: float = 0.0

    def has_its_turn(self) -> None:
        """The answers before it have ended: the time to its first token counts from now."""
        self._began = time.monotonic()

    def add(self, events: Sequence[Text]) -> str:
        """Add new tokens, some of which decode to no text; returns their text."""
        last, now = events[-1], time.monotonic()
        if text := "".join(event.text for event in events):
            self.unsaved.append(text)
            self.parts = append_text(self.parts, text)
        if self._first_token is None:
            self._waited = now - self._began
            self._first_token = now, last.generated_tokens
        elif now - self._speed_at > _SPEED_SECONDS:
            began, tokens = self._first_token
            self.tokens_per_second = (last.generated_tokens - tokens) / (now - began)
            self._speed_at = now
        return text

    def take_unsaved(self) -> str:
        """The text that is not stored yet; from now on it counts as stored."""
        text = "".join(self.unsaved)
        self.unsaved.clear()
        return text

    def details(self, event: Finished) -> AnswerDetails:
        """What is stored about the answer once it has ended."""
        loaded, used = self.loaded, self.sampling
        earlier = self.earlier or AnswerDetails()
        return AnswerDetails(
            model=loaded.name if loaded else "",
            format=loaded.format if loaded else "",
            ended=time.time(),
            reused_tokens=event.reused_tokens,
            first_token_seconds=round(event.first_token_seconds or self._waited, 4),
            decode_seconds=round(event.decode_seconds, 4),
            token_seconds_p50=round(event.token_seconds_p50, 5),
            token_seconds_p95=round(event.token_seconds_p95, 5),
            **sampling_details(used, self.thinking),
            seed=event.seed,
            drafted_tokens=event.drafted_tokens,
            accepted_tokens=event.accepted_tokens,
            draft_gain=round(event.draft_gain, 3),
            constraint=self.constraint.kind.value if self.constraint else "",
            incomplete=event.incomplete,
            thought_tokens=event.thought_tokens,
            thought_seconds=round(earlier.thought_seconds + event.thought_seconds, 2),
            thought_budget=self.budget if event.thought_budget_reached else earlier.thought_budget,
            edited=earlier.edited,
            extra=earlier.extra,
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
