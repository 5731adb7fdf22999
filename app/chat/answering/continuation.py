"""Continue: the model goes on after the last answer of the shown chat, also a complete one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.domain.message import Message, MessageState
from app.domain.parts import without_error
from app.state.chat import Notice, State
from app.store.writer import StoreQueue
from app.system.translation import tr
from engine import Role

NOTICE = "ended"  # kind of the notice that the model added nothing


class Continuation:
    """Continues an answer, and says so when nothing was added to it."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        refuses: Callable[[int], bool],
        answer: Callable[[Message], None],
    ) -> None:
        """`refuses` says whether a chat cannot be answered now, `answer` requests an answer."""
        self._state, self._store_queue = state, store_queue
        self._refuses, self._answer = refuses, answer
        self._before: Message | None = None  # the answer continued last, as it was

    def start(self, message_id: int) -> None:
        """Continue the last answer of the shown branch, if it is this one."""
        state = self._state
        last = state.messages[-1] if state.messages else None
        if (
            last is None
            or last.id != message_id
            or last.role is not Role.ASSISTANT
            or last.is_greeting
            or last.state is MessageState.STREAMING
            or state.busy
            or last.undecided
            or self._refuses(last.conversation)
        ):
            return
        self._before = last
        state.set_notice(NOTICE, None)
        parts = without_error(last.parts)
        message = replace(last, state=MessageState.STREAMING, stop="", parts=parts)
        state.change(message)
        self._store_queue.write(lambda store: store.append_text(message_id, ""))
        self._answer(message)

    def on_ended(self, message_id: int) -> None:
        """An answer has ended: a notice says if a continued one got no text."""
        before, now = self._before, self._state.message(message_id)
        if now is None or before is None or before.id != message_id:
            return
        self._before = None
        if (now.parts, now.state) == (before.parts, MessageState.COMPLETE):
            sentence = tr("The model adds nothing to this answer.")
            remedy = tr("Ask for more in a message, or edit the end of the answer.")
            self._state.set_notice(NOTICE, Notice(sentence, remedy))
