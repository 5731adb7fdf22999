"""What an engine elsewhere is asked for: the messages of a chat, and how to answer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from app.domain.parts import Parts, ToolResultPart
from engine import Constraint, Role

_NOTHING = MappingProxyType[str, float]({})


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message; results of tools may stand between the parts of an answer."""

    role: Role
    parts: Parts


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call."""

    name: str
    description: str
    schema: str  # of its arguments: a JSON schema's text


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """An answer wanted of a model; if the last message is the model's, it is continued."""

    model: str  # as the server lists it
    messages: tuple[PromptMessage, ...]
    # The values the user has chosen, by their names in `engine.Sampling`; the others are the
    # server's, which knows what its model was made for.
    sampling: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    max_tokens: int = 0  # 0: until it ends
    stop: tuple[str, ...] = ()
    thinking: bool | None = None  # None: as the server does
    constraint: Constraint | None = None
    tools: tuple[OfferedTool, ...] = ()
    tool_choice: str = "auto"  # "auto", "none", "required", or the name of a tool
    context: int = 0  # tokens of the model, as it was listed; 0: not known
    images: bool = True  # the model takes pictures, as far as is known

    @property
    def continues(self) -> bool:
        """Whether the last message is continued; behind results of tools an answer begins."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role is not Role.ASSISTANT:
            return False
        return not isinstance(last.parts[-1] if last.parts else None, ToolResultPart)
