"""Engine events: which part of the chat handles each event, in one `match`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from app.chat.adapters import Adapters
from app.chat.answers import Answers
from app.chat.chat_settings import ChatSettingsController
from app.chat.draft_model import SpeculativeModel
from app.chat.model_loader import ModelLoader
from app.chat.performance import Performance
from app.chat.runner import Runner
from app.chat.snapshots import SnapshotController
from app.chat.titles import Titles
from app.chat.token_count import TokenCount
from app.domain.parts import ErrorPart
from app.engines.requests import RequestRouter
from app.state.chat import ModelPhase, Notice, State
from app.state.faults import explain
from app.system.translation import tr
from engine import (
    AdaptersSet,
    ConstraintChecked,
    DevicesFound,
    DraftSet,
    Embedded,
    Event,
    Failed,
    Finished,
    LoadProgress,
    MetricsRead,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    PromptProgress,
    Reranked,
    Scored,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    Thought,
    TokensCounted,
    ToolCallDelta,
)

_log = logging.getLogger(__name__)


class Events:
    """Passes the events of the engine to the parts that handle them."""

    def __init__(
        self,
        state: State,
        router: RequestRouter,
        *,
        runner: Runner,
        models: ModelLoader,
        answers: Answers,
        adapters: Adapters,
        sessions: SnapshotController,
        token_counts: Sequence[TokenCount],
        performance: Performance,
        speculative_model: SpeculativeModel,
        titles: Titles,
        chat_settings: ChatSettingsController,
        remember: Callable[[Path], None],
        report: Callable[[BaseException], None],
    ) -> None:
        """`remember` is called with the file of a loaded model, `report` with an unexpected
        exception.
        """
        self._state, self._engine = state, router
        self._runner, self._models, self._answers = runner, models, answers
        self._adapters, self._sessions, self._token_counts = adapters, sessions, token_counts
        self._performance, self._draft_models = performance, speculative_model
        self._settings, self._titles = chat_settings, titles
        self._remember, self._report = remember, report

    def receive(self, events: Sequence[Event]) -> None:
        """Handle events of one kind and request; `Text` events are handled as one batch."""
        if isinstance(events[0], Text):
            texts = [event for event in events if isinstance(event, Text)]
            self._answers.on_text(texts)
            self._titles.on_text(texts)
        else:
            for event in events:
                self._on_event(event)

    def on_unhandled(self, request: int, error: Exception) -> None:
        """End a request whose event handler raised; the partial text of an answer stays."""
        self._report(error)
        self._engine.cancel(request)
        failed = Failed(request, tr("Something went wrong in Tokonoma."), "")
        if self._titles.on_failed(failed) or self._answers.interrupt(request):
            return
        if self._models.is_loading(request):
            self._on_load_failed(failed)
        elif not self._adapters.on_failed(failed):
            self._sessions.on_failed(failed)
        self._answers.start_next()

    def _on_event(self, event: Event) -> None:
        match event:
            case LoadProgress():
                self._models.on_progress(event)
            case ModelLoaded():
                self._on_loaded(event)
            case ModelMoved():
                self._models.on_moved(event)
            case DevicesFound():
                self._state.set_devices(event.devices)
            case ModelUnloaded():
                self._models.on_unloaded(event)
                self._answers.start_next()
            case PromptProgress():
                self._answers.on_prompt(event)
            case Text():
                self._answers.on_text([event])
                self._titles.on_text([event])
            case Finished():
                self._titles.on_finished(event)
                self._answers.on_finished(event)
                self._performance.on_finished(event)
            case AdaptersSet():
                self._runner.on_adapters_set(event)  # first: the cached context may be lost
                self._adapters.on_adapters_set(event)
            case MetricsRead():
                self._performance.on_metrics(event)
            case DraftSet():
                self._draft_models.on_set(event)
            case ConstraintChecked():
                self._settings.on_checked(event)
            case Embedded() | Reranked() | Scored() | Thought() | ToolCallDelta():
                pass  # the window asks for none of these
            case SnapshotLoaded():
                self._sessions.on_snapshot_loaded(event)
            case SnapshotSaved():
                self._sessions.on_snapshot_saved(event)
            case TokensCounted():
                for count in self._token_counts:
                    count.on_counted(event)
            case Failed():
                self._on_failed(event)
            case _:
                assert_never(event)

    def _on_loaded(self, event: ModelLoaded) -> None:
        self._models.on_loaded(event)
        model = self._state.model
        if model.phase is ModelPhase.READY and model.path is not None:
            self._remember(model.path)
        self._answers.start_next()

    def _on_failed(self, event: Failed) -> None:
        parts = (
            self._titles,
            self._answers,
            self._adapters,
            self._sessions,
            *self._token_counts,
            self._performance,
            self._draft_models,
            self._settings,
        )
        if any(part.on_failed(event) for part in parts):
            return
        if self._models.is_loading(event.request):
            self._on_load_failed(event)
        else:  # of a cancelled load, or of a request that nothing in the window waits for
            _log.warning("request %d failed: %s", event.request, event.message)

    def _on_load_failed(self, event: Failed) -> None:
        self._models.on_failed(event)
        failed = self._state.model.failed
        name = failed.file_name if failed is not None else ""
        shown = explain(event.fault, name, event.message, event.remedy)
        notice = Notice(shown.sentence, shown.remedy, tr("Choose a model"), shown.detail)
        self._state.set_notice("model", notice)
        error = ErrorPart(event.fault, name, event.message, event.remedy)
        self._answers.fail_waiting(error, failed)
        self._answers.start_next()
