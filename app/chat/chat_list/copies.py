"""Copies of chats: the whole chat, or the shown branch up to a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.chat.chat_list.conversations import Conversations
from app.state.chat import State
from app.system.translation import tr


class Copies:
    """Copies chats with all their messages and settings."""

    def __init__(
        self,
        state: State,
        conversations: Conversations,
        save: Callable[[], None],
        show: Callable[[int], None],
    ) -> None:
        """`save` writes the answers in progress to the store, and `show` opens a conversation."""
        self._state, self._conversations = state, conversations
        self._save, self._show = save, show

    def fork(self, message_id: int) -> None:
        """Copy the branch up to a message of the shown chat into a new chat, and show that."""
        message = self._state.message(message_id)
        if message is not None:
            title = tr("{title} (fork)", title=self._state.title(message.conversation))
            self._save()
            made = self._conversations.copy(message.conversation, title, message_id)
            if made is not None:
                self._show(made)

    def duplicate(self, conversation_ids: Sequence[int]) -> None:
        """Copy whole chats; a single one is shown."""
        self._save()
        made: int | None = None
        for conversation_id in conversation_ids:
            title = tr("{title} (copy)", title=self._state.title(conversation_id))
            made = self._conversations.copy(conversation_id, title)
        if made is not None and len(conversation_ids) == 1:
            self._show(made)
