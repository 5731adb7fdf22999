"""Drafts: unsent text and files of each conversation, kept in the state and in the store.

The text of a file is not stored with a draft: it is read again, from what was extracted before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from app.domain.parts import (
    FileOrImage,
    Parts,
    TextPart,
    attachments,
    files_and_images,
    typed_text,
    without_files_and_images,
)
from app.domain.unsent import Unsent
from app.state.attachments import AttachmentsState, Editing
from app.state.chat import State, WaitingMessage
from app.store.writer import StoreQueue


class UnsentText:
    """Saves what is unsent to the state at once, and to the store soon after."""

    def __init__(
        self,
        state: State,
        attached: AttachmentsState,
        store_queue: StoreQueue,
        attach: Callable[[int | None, Sequence[FileOrImage]], None],
    ) -> None:
        """`attach` attaches the files of a stored draft, whose texts it reads."""
        self._state, self._attached, self._attach = state, attached, attach
        self._store_queue = store_queue
        self._loaded = False  # the stored draft of the new chat has been read
        self.number = count(1).__next__  # of waiting messages

    def keep(self, conversation_id: int | None, parts: Parts) -> None:
        """Save the draft of a conversation; None is the new chat, which has no id yet."""
        if self._state.drafts.get(conversation_id, ()) == parts:
            return
        self._state.set_draft(conversation_id, parts)
        self.write(conversation_id)

    def found(self, conversation_id: int, unsent: Unsent) -> None:
        """Show what was stored of a conversation: what waited in another run waits for the user."""
        waiting = [WaitingMessage(self.number(), parts, held=True) for parts in unsent.waiting]
        self._state.set_draft(conversation_id, without_files_and_images(unsent.field))
        self._state.set_outbox(conversation_id, waiting)
        self._attach(conversation_id, files_and_images(unsent.field))

    def load_new_chat(self) -> None:
        """Load the stored draft of the new chat; text typed since the start is appended to it."""

        def found(unsent: Unsent) -> None:
            if self._loaded:
                return
            self._loaded = True
            if field := without_files_and_images(unsent.field):
                meanwhile = self._state.drafts.get(None, ())
                self._state.set_draft(None, joined(field, meanwhile))
                self._state.draft_found.emit(field)
            self._attach(None, files_and_images(unsent.field))
            self.write(None)

        self._store_queue.read(lambda store: store.draft(None), found)

    def write(self, conversation_id: int | None) -> None:
        """Write what is unsent in a conversation to the store."""
        state = self._state
        waiting = () if conversation_id is None else state.outbox.get(conversation_id, ())
        if conversation_id is None and not self._loaded:
            return  # it would overwrite the stored one
        kept = (each.kept for each in self._attached.of(conversation_id))
        field = (*kept, *state.drafts.get(conversation_id, ()))
        unsent = Unsent(field, tuple(message.parts for message in waiting))
        self._store_queue.write(lambda store: store.set_draft(conversation_id, unsent), unsent.text)

    def write_all(self) -> None:
        """Write all that is unsent, after a repair of the store."""
        places = (each for each in self._attached.places() if not isinstance(each, Editing))
        for conversation_id in {*self._state.drafts, *self._state.outbox, *places}:
            self.write(conversation_id)


def joined(first: Parts, second: Parts) -> Parts:
    """The attachments of both, then the text of both, separated by line breaks."""
    text = "\n".join(filter(None, (typed_text(first), typed_text(second))))
    return (*attachments(first), *attachments(second), *((TextPart(text),) if text else ()))
