"""The line below an answer that did not reach its end: an error, or why it was stopped."""

from __future__ import annotations

from app.store.store import Message, MessageState, StopReason
from app.system.translation import tr


def ending(message: Message) -> str:
    """One or two sentences; empty for an answer that is complete or being written."""
    if message.state is MessageState.FAILED:
        return message.error
    if message.state is not MessageState.STOPPED:
        return ""
    match message.error:
        case StopReason.USER:
            return tr("Stopped by you")
        case StopReason.LENGTH:
            return tr("Stopped at the answer length set in Settings")
        case StopReason.CONTEXT:
            return tr("Stopped because this chat is full. Start a new chat to go on.")
        case sentence:  # stored by an earlier version
            return sentence
