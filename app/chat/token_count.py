"""Token count of a text that the user edits, by the loaded model's tokenizer."""

from __future__ import annotations

from collections.abc import Callable

from app.engines.requests import RequestRouter
from app.state.chat import ModelPhase, State
from engine import CountTokens, Failed, TokensCounted


class TokenCount:
    """Counts the newest text: one request at a time, and none while an answer is generated."""

    def __init__(self, state: State, router: RequestRouter, show: Callable[[int], None]) -> None:
        """`show` is called with the tokens of the newest text; 0: none, or not counted."""
        self._state, self._engine, self._show = state, router, show
        self._text, self._tokens = "", 0
        self._model: object = None  # the load whose tokenizer counted last
        self._counted = ""
        self._request = 0
        self._asked = ""
        state.model_changed.connect(self._ask)
        state.generations_changed.connect(self._ask)

    def count(self, text: str) -> None:
        """Count this text instead of the one before, soon."""
        self._text = text
        if not text.strip():
            self._counted, self._tokens = text, 0
            self._show(0)
        self._ask()

    def of(self, text: str) -> int | None:
        """Tokens of a text, if it was counted last; None: not known."""
        is_counted = not self._request and text.strip() == self._counted.strip()
        return self._tokens if is_counted else None

    def on_counted(self, event: TokensCounted) -> None:
        """A text was counted, perhaps not the newest one."""
        if event.request == self._request:
            self._request, self._counted = 0, self._asked
            if self._text.strip():
                self._tokens = event.tokens
                self._show(event.tokens)
            self._ask()

    def on_failed(self, event: Failed) -> bool:
        """A text could not be counted; False for other requests."""
        if event.request != self._request:
            return False
        self._request, self._counted = 0, self._asked
        return True

    def _ask(self) -> None:
        model = self._state.model
        if model.phase is not ModelPhase.READY or self._state.generations or self._request:
            return
        if model.loaded is not self._model:  # another tokenizer
            self._model, self._counted = model.loaded, ""
        text = self._text
        if text.strip() and text != self._counted:
            self._asked = text
            self._request = self._engine.send(CountTokens(text))
