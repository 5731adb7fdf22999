"""Draft model: loads the one chosen for the loaded model, which makes its answers faster.

A draft model that cannot be used costs nothing but its help: answers go on with words guessed from
the chat.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.engines.requests import RequestRouter
from app.settings.table import Settings, drafts
from app.state.chat import ModelPhase, Notice, State
from app.state.devices import CHOICES
from app.system.translation import tr
from engine import DraftKind, DraftSet, Failed, ModelLoaded, SetDraft, model_label

NOTICE = "draft"  # kind of the notice about one that cannot be used


class SpeculativeModel:
    """Sends SetDraft when a model is loaded, or another draft model is chosen for it."""

    def __init__(
        self,
        state: State,
        router: RequestRouter,
        chosen: Callable[[Path], Path | None],
        runs_on: Callable[[Path], str | None],
    ) -> None:
        """`chosen` is the draft model in a model's settings; None: none. `runs_on` is the choice in
        the draft model's own; None: it is beside the model.
        """
        self._state, self._engine, self._chosen, self._runs_on = state, router, chosen, runs_on
        self._loaded: ModelLoaded | None = None  # the load that the draft model belongs to
        self._wanted: Path | None = None
        self._request = 0  # the last one that sets it; 0: none is under way
        self._sent: set[int] = set()  # requests under way, also older ones
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
            self._loaded, self._wanted, self._in_use, self._request = model.loaded, None, None, 0
            self._state.set_notice(NOTICE, None)
        wanted = self._chosen(model.path)
        if wanted == self._wanted:
            return
        self._wanted, self._in_use = wanted, None
        self._state.set_notice(NOTICE, None)
        choice = None if wanted is None else self._runs_on(wanted)
        device = None if choice is None else CHOICES.get(choice, choice)
        self._request = self._engine.send(SetDraft(wanted, device))
        self._sent.add(self._request)

    def on_set(self, event: DraftSet) -> None:
        """The engine has this draft model now."""
        self._sent.discard(event.request)
        if event.request == self._request:
            self._request, self._in_use = 0, event.path

    def on_failed(self, event: Failed) -> bool:
        """The draft model cannot be used; False for other requests."""
        if event.request not in self._sent:
            return False
        self._sent.remove(event.request)
        if event.request != self._request:  # another was chosen since
            return True
        self._request, name = 0, model_label(self._wanted) if self._wanted else ""
        sentence = tr("{name} cannot guess words for this model.", name=name)
        notice = Notice(sentence, event.remedy, detail=event.message)
        self._state.set_notice(NOTICE, notice)
        return True
