"""ThoughtMarkers: what a model writes before and after its thoughts, and where a template wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.messages.values import THOUGHT_ENDS, THOUGHT_OPENS

Message = dict[str, Any]  # of a chat template
BLOCKS = "blocks"  # instead of a field: the content is a list, and thoughts are blocks of it


@dataclass(frozen=True, slots=True)
class ThoughtMarkers:
    """How a model writes thoughts: `opens`, thoughts, `closing`, answer."""

    opens: str = THOUGHT_OPENS  # without white space around it
    ends: str = THOUGHT_ENDS  # without white space, and with the header of the answer's message
    closing: str = f"\n{THOUGHT_ENDS}\n\n"  # `ends` as the template writes it
    header: str = ""  # of the answer's message, which also begins an answer without thoughts
    again: str = ""  # ends a message of thoughts where another one follows
    field: str = ""  # of a message, where the template expects its thoughts; "": nowhere
    can_think: bool = False  # the template knows thoughts

    @property
    def are_usual(self) -> bool:
        """Whether the model writes the tags that are used in events."""
        return (self.opens, self.ends, self.header) == (THOUGHT_OPENS, THOUGHT_ENDS, "")

    @property
    def opening_text(self) -> str:
        """What begins thoughts in a prompt; "" where the template does not know thoughts."""
        space = "\n" if self.closing.startswith("\n") else ""
        return self.opens + space if self.can_think else ""

    def written(self, text: str) -> str:
        """An answer, whose thoughts are between the usual tags, as the model writes it."""
        if self.are_usual:
            return text
        begin = text.lstrip()
        if not begin.startswith(THOUGHT_OPENS):
            return self.header + text
        thoughts, ends, answer = begin.removeprefix(THOUGHT_OPENS).partition(THOUGHT_ENDS)
        space = text[: len(text) - len(begin)]
        return space + self.opens + thoughts + (self.ends if ends else "") + answer

    def opening(self, prompt: str) -> str:
        """The end of a rendered prompt that begins the answer's thoughts; usually ""."""
        stripped = prompt.rstrip()
        return prompt[len(stripped) - len(self.opens) :] if stripped.endswith(self.opens) else ""

    def with_thoughts(self, message: Message, thoughts: str) -> Message:
        """A message of an answer with its thoughts where the template expects them."""
        if self.field == BLOCKS:
            return {**message, "content": thought_blocks(thoughts, message["content"])}
        message = {**message, "reasoning_content": thoughts}
        return message | {self.field: thoughts} if self.field else message


def thought_blocks(thoughts: str, answer: str) -> list[dict[str, str]]:
    """The content of a message as a list of blocks."""
    return [{"type": "thinking", "thinking": thoughts}, {"type": "text", "text": answer}]


def resolved_thinking(thinking: bool | None, budget: int | None) -> tuple[bool | None, int | None]:
    """The switch and the budget of thoughts that a request means: a budget of 0 is none."""
    if thinking is False or budget == 0:
        return False, 0
    return (True if budget else thinking), budget
