"""Deleting conversations, and the undo stack of deletions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QTimer

from app.chat.conversations import Conversations
from app.state.chat import Deletion, State
from app.store.writer import Archive

UNDO_MILLISECONDS = 8000  # for which the sidebar offers Undo; Ctrl+Z works until the app closes


class Deletions:
    """Deletes in the state at once, and in the store afterwards; `undo` restores the last one."""

    def __init__(
        self,
        state: State,
        archive: Archive,
        conversations: Conversations,
        *,
        stop: Callable[[int], None],
        forget: Callable[[Sequence[int]], None],
        show: Callable[[int | None], None],
    ) -> None:
        """`stop` ends an answer, `forget` drops snapshots, and `show` opens a conversation."""
        self._state = state
        self._archive = archive
        self._conversations = conversations
        self._stop = stop
        self._forget = forget
        self._show = show
        self._offer = QTimer(state, singleShot=True, interval=UNDO_MILLISECONDS)
        self._offer.timeout.connect(lambda: state.set_deletions(state.deletions, offered=0))

    def delete(self, conversation_ids: Sequence[int]) -> None:
        """Stop the answers of conversations, and move them to the trash."""
        if not conversation_ids:
            return
        ids, number = tuple(conversation_ids), self._archive.conversations.stored
        for conversation_id in ids:
            self._stop(conversation_id)
        self._conversations.remove(ids)
        self._archive.write(lambda store: store.delete([number(each) for each in ids]))
        self._push(Deletion(ids))
        self._forget(ids)
        if self._state.current in ids:
            self._show(None)

    def undo(self) -> None:
        """Undo the last deletion that is not undone yet; a single conversation is shown."""
        state = self._state
        if not state.deletions:
            return
        *before, last = state.deletions
        offered = max(state.offered - 1, 0)
        state.set_deletions(before, offered=offered)
        if offered:
            self._offer.start()
        number = self._archive.conversations.stored
        self._archive.write(
            lambda store: store.restore([number(each) for each in last.conversations])
        )
        self._conversations.read()
        if len(last.conversations) == 1:
            self._show(last.conversations[0])

    def _push(self, deletion: Deletion) -> None:
        state = self._state
        state.set_deletions((*state.deletions, deletion), offered=state.offered + 1)
        self._offer.start()
