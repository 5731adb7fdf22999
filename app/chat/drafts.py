"""Drafts: unsent text of each conversation, kept in the state and in the store."""

from __future__ import annotations

from app.state.chat import State
from app.store.writer import Archive


class Drafts:
    """Saves drafts to the state at once, and to the store soon after."""

    def __init__(self, state: State, archive: Archive) -> None:
        self._state = state
        self._archive = archive
        self._loaded = False  # the stored draft of the new chat has been read

    def keep(self, conversation_id: int | None, text: str) -> None:
        """Save the draft of a conversation; None is the new chat, which has no number yet."""
        if self._state.drafts.get(conversation_id, "") == text:
            return
        self._state.set_draft(conversation_id, text)
        if conversation_id is not None or self._loaded:  # else it would overwrite the stored one
            self._write(conversation_id, text)

    def load_new_chat(self) -> None:
        """Load the stored draft of the new chat; text typed since the start is appended to it."""

        def found(text: str) -> None:
            if self._loaded:
                return
            self._loaded = True
            typed = self._state.drafts.get(None, "")
            if not text:
                self._write(None, typed)
                return
            self._state.set_draft(None, f"{text}\n{typed}" if typed.strip() else text)
            self._write(None, self._state.drafts[None])
            self._state.draft_found.emit(text)

        self._archive.read(lambda store: store.draft(None), found)

    def _write(self, conversation_id: int | None, text: str) -> None:
        number = self._archive.conversations.stored
        self._archive.write(
            lambda store: store.set_draft(
                None if conversation_id is None else number(conversation_id), text
            ),
            text,
        )
