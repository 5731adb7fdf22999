"""The model's way into memory: which is loaded, how far, and why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.engines.client import EngineRequests
from app.state.chat import ModelPhase, ModelStatus, State
from engine import (
    AdaptersSet,
    CacheType,
    Failed,
    LoadModel,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    SlowPart,
    UnloadModel,
    model_name,
    starter_path,
)


class Models:
    """Loads one model at a time; a newer load gives up the one before it."""

    def __init__(self, state: State, link: EngineRequests) -> None:
        self._state = state
        self._link = link
        self._request = 0  # the newest load's; 0: none is under way
        self._unloading = 0

    def load(self, path: Path, context: int, threads: int, cache: CacheType) -> None:
        """Load a model file in place of the one that is loaded."""
        self.cancel()
        loaded = self._state.model.loaded
        self._state.set_model(
            ModelStatus(
                ModelPhase.LOADING,
                path,
                model_name(path),
                loaded=loaded,
                adapters_slow=self._state.model.adapters_slow,
            )
        )
        self._request = self._link.send(
            lambda number: LoadModel(number, path, context, threads, cache)
        )

    def cancel(self) -> None:
        """Give up the load that is under way; the engine says which model is left."""
        if self._request:
            self._link.cancel(self._request)

    def unload(self) -> None:
        """Give the model's memory back; answers wait until another one is chosen."""
        self.cancel()
        self._request = 0
        self._unloading = self._link.send(UnloadModel)

    def is_loading(self, request: int) -> bool:
        """Whether this request is the load that is under way."""
        return bool(request) and request == self._request

    # --- events ---------------------------------------------------------------------------------

    def on_progress(self, event: LoadProgress) -> None:
        """The load came further."""
        if event.request == self._request:
            self._state.set_model(
                replace(
                    self._state.model, done_bytes=event.done_bytes, total_bytes=event.total_bytes
                )
            )

    def on_loaded(self, event: ModelLoaded) -> None:
        """A model answers from now on: the one asked for, or after giving up the one before it."""
        if event.request == self._request:
            self._request = 0
            self._state.set_model(
                ModelStatus(
                    ModelPhase.READY,
                    event.path,
                    event.name,
                    loaded=event,
                    adapters_slow=self._slow_with(event),
                )
            )
        elif self._request:  # a load that was given up; the newer one is still under way
            self._state.set_model(replace(self._state.model, loaded=event))

    def on_adapters_set(self, event: AdaptersSet) -> None:
        """The loaded model runs with other adapters, which may make it slow."""
        if event.slow != self._state.model.adapters_slow:
            self._state.set_model(replace(self._state.model, adapters_slow=event.slow))

    def _slow_with(self, loaded: ModelLoaded) -> tuple[SlowPart, ...]:
        """What its adapters slow down: it has some where a load was given up and it stayed."""
        status, before = self._state.model, self._state.model.loaded
        same = before and (before.path, before.seconds) == (loaded.path, loaded.seconds)
        return status.adapters_slow if same else ()

    def on_unloaded(self, event: ModelUnloaded) -> None:
        """No model is left: the load was given up, or `Failed` follows."""
        if event.request == self._unloading and not self._request:
            self._unloading = 0
            self._state.set_model(ModelStatus(freed_bytes=event.freed_bytes))
        elif event.request == self._request and self._link.is_cancelled(event.request):
            self._request = 0
            self._state.set_model(ModelStatus())
        else:
            self._state.set_model(replace(self._state.model, loaded=None))

    def on_failed(self, event: Failed) -> None:
        """The file could not be loaded; the model before it may still be there."""
        if event.request != self._request:
            return
        self._request = 0
        status = self._state.model
        left = status.loaded
        self._state.set_model(
            ModelStatus(
                ModelPhase.READY if left else ModelPhase.FAILED,
                left.path if left else status.path,
                left.name if left else status.name,
                loaded=left,
                adapters_slow=status.adapters_slow,
                error=event.message,
                remedy=event.remedy,
            )
        )


def first_model(last: str) -> Path | None:
    """The model of the last time, or else the starter, where they exist."""
    for path in (Path(last) if last else None, starter_path()):
        if path is not None and path.is_file():
            return path
    return None
