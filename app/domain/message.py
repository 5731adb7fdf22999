"""A message of a chat: a node of the chat's tree, with its state and how it was made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from app.domain.answer_details import AnswerDetails
from app.domain.parts import ErrorPart, Parts, prompt_text
from engine import Role


class StopReason(StrEnum):
    """Why an answer in the state STOPPED ended; stored as the message's `stop`."""

    USER = "user"  # the user pressed Stop
    LENGTH = "length"  # the most tokens of the settings were generated
    CONTEXT = "context"  # the context is full
    REPETITION = "repetition"  # the text repeated itself
    TOOL_CALLS = "tool calls"  # it has called tools as often as it may in one answer


class AnswerAgain(StrEnum):
    """How an answer is asked for again."""

    SAME = "same"
    SHORTER = "shorter"
    LONGER = "longer"
    OTHER_MODEL = "other model"


class MessageState(Enum):
    """State of a message."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"  # by the user
    INTERRUPTED = "interrupted"  # by a crash or a power cut
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AdapterMark:
    """An adapter that an answer was generated with."""

    name: str
    strength: float
    sha256: str  # its first characters, to distinguish two files of one name


@dataclass(frozen=True, slots=True)
class Message:
    """One node of a conversation's tree."""

    id: int
    conversation: int
    parent: int | None
    role: Role
    parts: Parts
    state: MessageState
    created: float  # seconds since 1970
    model: str
    stop: str  # a `StopReason`, or a sentence of an earlier version; "": none
    prompt_tokens: int
    generated_tokens: int
    seconds: float
    sibling: int  # counted from 1: "2/3" is sibling 2 of siblings 3
    siblings: int
    adapters: tuple[AdapterMark, ...] = ()  # used for it, in the order they were applied
    details: AnswerDetails | None = None  # of an answer that has ended, or is compared
    compared: int = 0  # id of the answer that it was compared with; 0: none
    undecided: bool = False  # the comparison is open: neither answer is kept yet

    @property
    def text(self) -> str:
        """The text as its author wrote it, with attached texts; see `parts.written`."""
        return prompt_text(self.parts)

    @property
    def chat_tokens(self) -> int:
        """Tokens of the chat with this answer, which the next question begins with."""
        took = self.prompt_tokens + self.generated_tokens
        return (self.details.chat_tokens if self.details else 0) or took

    @property
    def is_greeting(self) -> bool:
        """Whether it is the first message of a chat, by a preset and not by a model."""
        return self.parent is None and self.role is Role.ASSISTANT and not self.model

    @property
    def error(self) -> ErrorPart | None:
        """Why it failed."""
        return next((part for part in self.parts if isinstance(part, ErrorPart)), None)
