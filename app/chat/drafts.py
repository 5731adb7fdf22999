"""What is typed and not sent: kept for each conversation, and never lost to what is typed later."""

from __future__ import annotations

from app.state.chat import State
from app.store.writer import Archive


class Drafts:
    """Keeps drafts in the state and, soon after, in the store."""

    def __init__(self, state: State, archive: Archive) -> None:
        self._state = state
        self._archive = archive
        self._known = False  # what was typed last time for a conversation not begun

    def keep(self, conversation_id: int | None, text: str) -> None:
        """Keep what is typed in a conversation; None is the one not begun yet."""
        if self._state.drafts.get(conversation_id, "") == text:
            return
        self._state.set_draft(conversation_id, text)
        if conversation_id is not None or self._known:  # else it would replace last time's
            self._write(conversation_id, text)

    def read_first(self) -> None:
        """Put what was typed last time before what was typed since the start."""

        def found(text: str) -> None:
            if self._known:
                return
            self._known = True
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
