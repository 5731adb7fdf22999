"""Why an answer did not reach its end: the line below it, or the word beside its tools."""

from __future__ import annotations

from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import TextPart, ThoughtPart
from app.state.faults import explain
from app.system.translation import tr


def ended_in_thoughts(message: Message) -> bool:
    """Whether a model has ended its answer in its thoughts, or at a limit in them."""
    if message.state not in (MessageState.COMPLETE, MessageState.STOPPED):
        return False
    thoughts = [
        part for part in message.parts if isinstance(part, ThoughtPart) and part.text.strip()
    ]
    rest = [part for part in message.parts if not isinstance(part, ThoughtPart)]
    is_blank = all(isinstance(part, TextPart) and not part.text.strip() for part in rest)
    return bool(thoughts) and is_blank and message.stop != StopReason.USER


def ending(message: Message) -> str:
    """One or two sentences; empty if there is no more to say than `short_ending`."""
    if message.state is MessageState.FAILED:
        error = message.error
        if error is None:
            return ""
        return explain(error.fault, error.file, error.message, error.remedy).text
    if message.state is MessageState.COMPLETE and ended_in_thoughts(message):
        return tr("The model ended while it was thinking: there is no answer after its thoughts")
    if message.state is not MessageState.STOPPED:
        return ""
    cut = message.details is not None and message.details.incomplete
    match message.stop:
        case StopReason.USER:
            return ""
        case StopReason.LENGTH if cut:
            return tr("Stopped at the answer length set in Settings: the document is incomplete")
        case StopReason.LENGTH:
            return tr("Stopped at the answer length set in Settings")
        case StopReason.CONTEXT if cut:
            return tr("Stopped because this chat is full: the document is incomplete")
        case StopReason.CONTEXT:
            return tr("Stopped because this chat is full")
        case StopReason.REPETITION:
            return tr("Stopped: the model was repeating itself")
        case StopReason.TOOL_CALLS:
            return tr("Stopped: the model has called tools as often as Settings allow")
        case sentence:  # stored by an earlier version
            return sentence


def short_ending(message: Message) -> str:
    """The word beside the tools of an unfinished answer; empty if `ending` has a sentence."""
    if ending(message):
        return ""
    match message.state:
        case MessageState.STOPPED:
            by_user = message.stop == StopReason.USER
            return tr("Stopped by you") if by_user else tr("Stopped")
        case MessageState.INTERRUPTED:
            return tr("Interrupted")
        case _:
            return ""
