"""Unsent text of a chat: what is in the field, and the messages that wait."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.parts import Parts, prompt_text


@dataclass(frozen=True, slots=True)
class Unsent:
    """What the user has written in a chat and not sent."""

    field: Parts = ()  # in the field
    waiting: tuple[Parts, ...] = ()  # messages that wait for an answer to end, the first one first

    @property
    def text(self) -> str:
        """All of it as one text, for a file of changes that the store rejected."""
        return "\n\n".join(filter(None, map(prompt_text, (*self.waiting, self.field))))
