"""Counts what a picture costs the loaded model in each detail, before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.chat.requests.prompts import PromptBuilder
from app.domain.model_ref import Remote
from app.domain.parts import ImagePart
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, start
from app.state.attachments import AttachmentsState, DetailTokens
from app.state.chat import ModelPhase, State
from engine import CountTokens, Detail, TokensCounted

_Key = tuple[object, str]  # the load, and the file of the picture


class DetailCounts:
    """Counts for one picture at a time, when the user looks at what can be chosen of it."""

    def __init__(
        self,
        state: State,
        shown: AttachmentsState,
        engine: EngineClient,
        prompts: PromptBuilder,
        report: Callable[[Exception], None],
    ) -> None:
        """`report` is called with an unexpected exception."""
        self._state, self._shown, self._engine, self._prompts = state, shown, engine, prompts
        self._report = report
        self._known: tuple[_Key, DetailTokens] | None = None  # what was counted last

    def count(self, id: int) -> None:
        """Count for an attached picture; the state tells what was counted."""
        found, loaded = self._shown.find(id), self._state.model.loaded
        part = found[1].part if found else None
        chat = self._state.current
        is_here = not isinstance(self._state.settings(chat).model, Remote)
        ready = is_here and self._state.model.phase is ModelPhase.READY
        sees = loaded is not None and ready and loaded.encoder is not None
        if not isinstance(part, ImagePart) or loaded is None or not sees:
            self._shown.set_details(id, None)
            return
        key = (loaded.path, loaded.seconds), part.sha256
        if self._known is not None and self._known[0] == key:
            self._shown.set_details(id, self._known[1])
            return
        self._shown.set_details(id, None)
        start(self._count(id, part, key), self._report)

    async def _count(self, id: int, part: ImagePart, key: _Key) -> None:
        counts: list[int] = []
        for detail in (Detail.LOW, Detail.STANDARD, Detail.HIGH):
            given = self._prompts.given(replace(part, detail=detail))
            if given is None:
                return
            request = CountTokens("", images=(given,))
            try:
                counts.append((await self._engine.submit(request).result(TokensCounted)).tokens)
            except RequestFailed:
                return  # it is shown without
        tokens = DetailTokens(*counts)
        self._known = key, tokens
        if self._shown.find(id) is not None:
            self._shown.set_details(id, tokens)
