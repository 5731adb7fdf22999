"""Draft model: loads the one chosen for the loaded model, which makes its answers faster.

A draft model that cannot be used costs nothing but its help: answers go on with words guessed from
the chat.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.engines.client import EngineClient
from app.engines.run import RequestFailed, Run, start
from app.settings.table import Settings, drafts
from app.state.chat import ModelPhase, Notice, State
from app.state.devices import CHOICES
from app.system.translation import tr
from engine import DraftKind, DraftSet, ModelLoaded, SetDraft, model_label

NOTICE = "draft"  # kind of the notice about one that cannot be used


class SpeculativeModel:
    """Sends SetDraft when a model is loaded, or another draft model is chosen for it."""

    def __init__(
        self,
        state: State,
        engine: EngineClient,
        chosen: Callable[[Path], Path | None],
        runs_on: Callable[[Path], str | None],
        report: Callable[[Exception], None],
    ) -> None:
        """`chosen` is the draft model in a model's settings; None: none. `runs_on` is the choice in
        the draft model's own; None: it is beside the model. `report` is called with an unexpected
        exception.
        """
        self._state, self._engine, self._chosen, self._runs_on = state, engine, chosen, runs_on
        self._report = report
        self._loaded: ModelLoaded | None = None  # the load that the draft model belongs to
        self._wanted: Path | None = None
        self._last: Run | None = None  # that sets what is wanted, since the model was loaded
        self._in_use: Path | None = None
        state.model_changed.connect(self.update)

    def kind(self, settings: Settings) -> DraftKind:
        """What drafts the next answer: the draft model if there is one, unless drafts are off."""
        usual = drafts(settings)
        return DraftKind.MODEL if self._in_use and usual is not DraftKind.NONE else usual

    def update(self, _path: Path | None = None) -> None:
        """Use what is chosen for the loaded model; called when either has changed."""
        model = self._state.model
        if model.phase is not ModelPhase.READY or model.path is None:
            return
        if model.loaded is not self._loaded:  # a newly loaded model has no draft model
            self._loaded, self._wanted, self._in_use, self._last = model.loaded, None, None, None
            self._state.set_notice(NOTICE, None)
        wanted = self._chosen(model.path)
        if wanted == self._wanted:
            return
        self._wanted, self._in_use = wanted, None
        self._state.set_notice(NOTICE, None)
        choice = None if wanted is None else self._runs_on(wanted)
        device = None if choice is None else CHOICES.get(choice, choice)
        self._last = self._engine.submit(SetDraft(wanted, device))
        start(self._set(self._last, wanted), self._report)

    async def _set(self, run: Run, wanted: Path | None) -> None:
        try:
            found = await run.result(DraftSet)
        except RequestFailed as failed:
            if run is self._last:  # else another was chosen since
                name = model_label(wanted) if wanted else ""
                sentence = tr("{name} cannot guess words for this model.", name=name)
                notice = Notice(sentence, failed.event.remedy, detail=failed.event.message)
                self._state.set_notice(NOTICE, notice)
            return
        if run is self._last:
            self._in_use = found.path
