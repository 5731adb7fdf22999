"""The instructions of a chat as the first message of its transcript: one row that unfolds the text.

The window makes this message of the settings, and it is never stored. Its id is 0, which no stored
message has, and the number of its tokens is in `prompt_tokens`.
"""

from __future__ import annotations

from app.domain.message import Message, MessageState
from app.domain.parts import TextPart
from app.markdown.stream import PlainText
from app.system.translation import tr, trn
from app.ui.transcript.message.sections import Kind, Section
from engine import Role

ID = 0
_FIRST_WORDS = 80  # characters in the row


def instructions_message(text: str, tokens: int) -> Message | None:
    """The message that shows instructions; None where there are none. `tokens` 0: not counted."""
    if not text.strip():
        return None
    parts, state = (TextPart(text),), MessageState.COMPLETE
    return Message(ID, 0, None, Role.SYSTEM, parts, state, 0.0, "", "", tokens, 0, 0.0, 1, 1)


def instructions_section(message: Message) -> Section:
    """The section of the message: how long the instructions are, and how they begin."""
    text, tokens = message.text, message.prompt_tokens
    first = " ".join(text[: 4 * _FIRST_WORDS].split())
    if len(first) > _FIRST_WORDS:
        first = f"{first[:_FIRST_WORDS].rstrip()}…"
    if tokens:
        many = trn("{count} token", "{count} tokens", tokens)
        words = tr("Instructions · {tokens} · {first}", tokens=many, first=first)
    else:
        words = tr("Instructions · {first}", first=first)
    own = PlainText(text)
    return Section(Kind.INSTRUCTIONS, words, own.blocks, own.source)
