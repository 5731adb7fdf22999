"""Context room: about how many tokens a prompt has, and how many the model of a chat can read.

Counted by the bytes of the text: exact counts need the model, which may not be loaded yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.message import Message
from app.domain.model_ref import Remote
from app.domain.passages import text_bytes
from app.state.chat import State

_BYTES = 3.0  # of a token, where no answer has shown it: texts have more, rarely less
_FEWEST_BYTES, _MOST_BYTES = 1.5, 6.0
_MEASURED = 2000  # bytes: in a shorter prompt the marks between the turns count too much
_ANSWER_SHARE = 4  # one part of so many of the context is kept for the answer,
_MOST_ANSWER = 1024  # at most so many tokens


def context_of(state: State, conversation: int | None) -> int:
    """Tokens that the model of a chat can read at once; 0: not known."""
    model = state.settings(conversation).model
    if isinstance(model, Remote):
        return next((each.context for each in state.served if each.model == model), 0)
    loaded = state.model.loaded if state.has_in_use(model) else None
    return loaded.context if loaded else 0


def answer_room(context: int) -> int:
    """Tokens of a context that are kept for the answer."""
    return min(context // _ANSWER_SHARE, _MOST_ANSWER)


def bytes_per_token(messages: Sequence[Message]) -> float:
    """Bytes of a token in a branch, by the answers whose prompts were counted.

    The fewest, since a prompt from which something was left out seems to have more.
    """
    found: list[float] = []
    size = 0
    for message in messages:
        is_whole = message.prompt_tokens + message.generated_tokens == message.chat_tokens
        if message.prompt_tokens and is_whole and size >= _MEASURED:
            found.append(size / message.prompt_tokens)
        size += text_bytes(message)
    return min(max(min(found, default=_BYTES), _FEWEST_BYTES), _MOST_BYTES)
