"""TaggedText: the events of one answer as one text, with the usual tags around its thoughts."""

from __future__ import annotations

from engine.messages.events import Text, Thought
from engine.messages.values import THOUGHT_ENDS, THOUGHT_OPENS


class TaggedText:
    """Joins the Text and Thought events of one answer."""

    def __init__(self, *, is_thinking: bool = False) -> None:
        """`is_thinking`: the answer continues a text that ends in thoughts."""
        self._is_thinking = is_thinking

    def push(self, event: Text | Thought) -> str:
        """The text that an event adds, with the tag before it where thoughts begin or end."""
        was, self._is_thinking = self._is_thinking, isinstance(event, Thought)
        if was is self._is_thinking:
            return event.text
        return (THOUGHT_ENDS if was else THOUGHT_OPENS) + event.text
