"""Outbox: messages entered during an answer, sent one after another as answers are completed.

An answer that was stopped, failed or reached a limit sends nothing: its messages are then held
until the user sends them, edits them or removes them. They are part of the unsent text of their
conversation, so a crash or a restart loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from app.chat.sending.drafts import UnsentText
from app.domain.message import MessageState
from app.domain.parts import Parts
from app.state.chat import State, WaitingMessage


class Outbox:
    """Keeps the waiting messages of every conversation in the state and in the store."""

    def __init__(
        self,
        state: State,
        drafts: UnsentText,
        send: Callable[[int, Parts, Callable[[], object]], bool],
    ) -> None:
        """`send` sends a message in a conversation now; False when it cannot. If its length must be
        counted first, what it was given is called then, to send it again.
        """
        self._state = state
        self._drafts = drafts
        self._send = send
        self._closed = False

    def add(self, conversation_id: int, parts: Parts) -> None:
        """Send a message when the answer in progress is complete."""
        waiting = WaitingMessage(self._drafts.number(), parts)
        self._set(conversation_id, (*self._state.outbox.get(conversation_id, ()), waiting))

    def remove(self, number: int) -> None:
        """Drop a message."""
        if found := self._find(number):
            conversation_id, message = found
            rest = [each for each in self._state.outbox[conversation_id] if each is not message]
            self._set(conversation_id, rest)

    def parts(self, number: int) -> Parts:
        """The parts of a message; nothing when it was sent or dropped meanwhile."""
        found = self._find(number)
        return found[1].parts if found else ()

    def send_now(self, number: int) -> None:
        """Send a held message now or, during an answer, when that is complete."""
        if found := self._find(number):
            conversation_id, message = found
            if conversation_id in self._state.busy_conversations:
                free = replace(message, held=False)
                all_ = self._state.outbox[conversation_id]
                self._set(conversation_id, [free if each is message else each for each in all_])
            else:
                self._send_one(conversation_id, message)

    def close(self) -> None:
        """Send nothing any more: the app quits."""
        self._closed = True

    def on_answer_ended(self, conversation_id: int, message_id: int) -> None:
        """Send the next message, if the conversation ends with this complete answer."""
        if conversation_id in self._state.busy_conversations:
            return  # the other answer of a comparison is not complete
        branch = self._state.branches.get(conversation_id, ())
        last = branch[-1] if branch else None
        if last is None or message_id not in (last.id, last.compared):
            self._hold(conversation_id)  # another branch is shown now
        elif last.id in self._state.compared:
            pass  # the user keeps one of both answers first
        elif last.state is MessageState.COMPLETE and not self._closed:
            waiting = self._state.outbox.get(conversation_id, ())
            following = next((each for each in waiting if not each.held), None)
            if following is not None:
                self._send_one(conversation_id, following)
        else:
            self._hold(conversation_id)

    # --- steps ----------------------------------------------------------------------------------

    def _send_one(self, conversation_id: int, message: WaitingMessage) -> None:
        if self._send(conversation_id, message.parts, partial(self.send_now, message.number)):
            self.remove(message.number)  # after it is stored as a message: a crash loses neither
        else:
            self._hold(conversation_id)

    def _hold(self, conversation_id: int) -> None:
        waiting = self._state.outbox.get(conversation_id, ())
        if not all(each.held for each in waiting):
            self._set(conversation_id, [replace(each, held=True) for each in waiting])

    def _find(self, number: int) -> tuple[int, WaitingMessage] | None:
        for conversation_id, waiting in self._state.outbox.items():
            for message in waiting:
                if message.number == number:
                    return conversation_id, message
        return None

    def _set(self, conversation_id: int, waiting: Sequence[WaitingMessage]) -> None:
        self._state.set_outbox(conversation_id, waiting)
        self._drafts.write(conversation_id)
