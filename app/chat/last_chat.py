"""Last chat: remembers the shown conversation in the settings, and opens it at the next start."""

from __future__ import annotations

from collections.abc import Callable

from app.state.chat import State


class LastChat:
    """Connects the state's shown conversation with the setting `last_conversation`."""

    def __init__(
        self,
        state: State,
        *,
        remember: Callable[[int], None],
        open_conversation: Callable[[int], None],
        stop_opening: Callable[[], None],
    ) -> None:
        """`remember` saves the id of a conversation; 0: a new chat."""
        self._state = state
        self._remember, self._open = remember, open_conversation
        self._stop_opening = stop_opening
        self._opening = self._stays = False
        self._remembered = self._wanted = 0
        state.conversation_changed.connect(self._on_shown)
        state.conversations_changed.connect(self._on_listed)

    def start(self, number: int) -> None:
        """Open the conversation of the last run once the list is read, unless another is shown."""
        self._remembered = number
        self._wanted = 0 if self._stays else number

    def stay(self) -> None:
        """Stay in the new chat, in which the user has begun to write."""
        self._wanted, self._stays = 0, True
        if self._opening:
            self._opening = False
            self._stop_opening()

    @property
    def stays_empty(self) -> bool:
        """Whether the new chat is shown, and the user has not begun to write in it."""
        return self._state.current is None and not (self._opening or self._stays)

    def _on_listed(self) -> None:
        listed = {conversation.id for conversation in self._state.conversations}
        if self._wanted not in listed:
            return
        wanted, self._wanted = self._wanted, 0
        if self._state.current is None:
            self._opening = True
            self._open(wanted)

    def _on_shown(self) -> None:
        shown = self._state.current or 0
        self._wanted, self._opening, self._stays = 0, False, False
        if shown != self._remembered:
            self._remembered = shown
            self._remember(shown)
