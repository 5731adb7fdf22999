"""Answers of the engine as texts that have their thoughts between the usual tags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine import Event, Role, TaggedText, Text, Thought, Turn, split_answer


class TaggedAnswers:
    """Turns the thoughts in events into texts, for all answers in progress."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], TaggedText] = {}  # by request and answer

    def begin(self, request: int, turns: tuple[Turn, ...]) -> None:
        """An answer to these turns is requested, which may continue the thoughts of the last one."""
        last = turns[-1] if turns and turns[-1].role is Role.ASSISTANT else None
        pieces = split_answer(last.text) if last else []
        is_thinking = bool(pieces) and pieces[-1].is_thought and not pieces[-1].ends
        self._texts[request, 0] = TaggedText(is_thinking=is_thinking)

    def end(self, request: int) -> None:
        """The last event of a request has come."""
        for key in [key for key in self._texts if key[0] == request]:
            del self._texts[key]

    def tagged(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, with texts in place of thoughts."""
        for event in events:
            if not isinstance(event, Text | Thought):
                yield event
                continue
            known = self._texts.setdefault((event.request, event.answer), TaggedText())
            yield Text(
                event.request,
                known.push(event),
                event.generated_tokens,
                event.context_used,
                event.answer,
                event.logprobs,
            )
