"""Token count of a text that the user edits, by the loaded model's tokenizer."""

from __future__ import annotations

from collections.abc import Callable

from app.engines.client import EngineClient
from app.engines.run import RequestFailed, start
from app.state.chat import ModelPhase, State
from engine import CountTokens, TokensCounted


class TokenCount:
    """Counts the newest text: one request at a time, and none while an answer is generated."""

    def __init__(
        self,
        state: State,
        engine: EngineClient,
        show: Callable[[int], None],
        report: Callable[[Exception], None],
    ) -> None:
        """`show` is called with the tokens of the newest text; 0: none, or not counted. `report` is
        called with an unexpected exception.
        """
        self._state, self._engine, self._show, self._report = state, engine, show, report
        self._text, self._tokens = "", 0
        self._model: object = None  # the load whose tokenizer counted last
        self._counted = ""
        self._counting = False  # a text is being counted, perhaps not the newest one
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
        is_counted = not self._counting and text.strip() == self._counted.strip()
        return self._tokens if is_counted else None

    def _ask(self) -> None:
        model = self._state.model
        if model.phase is not ModelPhase.READY or self._state.generations or self._counting:
            return
        if model.loaded is not self._model:  # another tokenizer
            self._model, self._counted = model.loaded, ""
        text = self._text
        if text.strip() and text != self._counted:
            self._counting = True
            start(self._count(text), self._on_fault)

    async def _count(self, text: str) -> None:
        try:
            counted = await self._engine.submit(CountTokens(text)).result(TokensCounted)
        except RequestFailed:
            self._counting, self._counted = False, text
            return
        self._counting, self._counted = False, text
        if self._text.strip():
            self._tokens = counted.tokens
            self._show(counted.tokens)
        self._ask()

    def _on_fault(self, error: Exception) -> None:
        self._counting = False
        self._report(error)
