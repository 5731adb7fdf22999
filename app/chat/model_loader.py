"""Model loading: sends load and unload commands, and keeps `ModelStatus` up to date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.domain.model_ref import Local
from app.engines.requests import RequestRouter
from app.state.chat import ModelPhase, ModelStatus, Notice, State
from app.state.devices import CHOICES, moved_words
from app.system.translation import number, tr
from engine import (
    CacheType,
    DeviceFault,
    Failed,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    Unload,
    model_name,
    starter_path,
)

NOTICE = "model"  # kind of the notice about the loaded model


class ModelLoader:
    """Loads one model at a time; a newer load cancels the one before it."""

    def __init__(self, state: State, router: RequestRouter) -> None:
        self._state = state
        self._engine = router
        self._request = 0  # of the load in progress; 0: none
        self._unloading = 0
        self._runs_on = "auto"  # of the last load

    def load(
        self,
        path: Path,
        context: int,
        threads: int,
        cache: CacheType,
        memory_bytes: int = 0,
        runs_on: str = "auto",
    ) -> None:
        """Load a model file in place of the loaded one.

        `memory_bytes` 0: what is free. `runs_on` is a value of that setting.
        """
        self.cancel()
        self._runs_on = runs_on
        loaded = self._state.model.loaded
        self._state.set_model(
            ModelStatus(
                ModelPhase.LOADING,
                Local(path),
                model_name(path),
                loaded=loaded,
            )
        )
        self._request = self._engine.send(
            Load(
                path,
                context,
                threads,
                cache,
                memory_bytes=memory_bytes,
                device=CHOICES.get(runs_on, runs_on),
            )
        )

    def expect(self, path: Path | None) -> None:
        """Show that a model will be loaded, before the engine runs; None: there is none."""
        if path is None:
            self._state.set_model(ModelStatus())
        else:
            self._state.set_model(ModelStatus(ModelPhase.LOADING, Local(path), model_name(path)))

    def cancel(self) -> None:
        """Cancel the load in progress; the engine's last event says which model is loaded then."""
        if self._request:
            self._engine.cancel(self._request)

    def unload(self) -> None:
        """Unload the model and free its memory; queued answers wait for the next model."""
        self.cancel()
        self._request = 0
        self._unloading = self._engine.send(Unload())

    def is_loading(self, request: int) -> bool:
        """Whether this request is the load in progress."""
        return bool(request) and request == self._request

    # --- events ---------------------------------------------------------------------------------

    def on_progress(self, event: LoadProgress) -> None:
        """Update the progress of the load."""
        if event.request == self._request:
            self._state.set_model(
                replace(
                    self._state.model, done_bytes=event.done_bytes, total_bytes=event.total_bytes
                )
            )

    def on_loaded(self, event: ModelLoaded) -> None:
        """A model is ready: the requested one or, after a cancelled load, the one before it."""
        if event.request == self._request:
            self._request = 0
            self._state.set_notice(NOTICE, self._notice(event))
            self._state.set_model(
                ModelStatus(
                    ModelPhase.READY,
                    Local(event.path),
                    event.name,
                    loaded=event,
                )
            )
        elif self._request:  # of a cancelled load; the newer load is still in progress
            self._state.set_model(replace(self._state.model, loaded=event))

    def on_moved(self, event: ModelMoved) -> None:
        """The GPU failed while it was in use: the processor goes on."""
        remedy = tr("Load the model again to try the GPU once more.")
        self._state.set_notice(NOTICE, _moved(event.loaded, remedy))
        if self._state.model.phase is ModelPhase.READY:
            self._state.set_model(replace(self._state.model, loaded=event.loaded))

    def _notice(self, event: ModelLoaded) -> Notice | None:
        """What the user must know of a load: a model that is faulty, slow, or not where it should be."""
        if event.template_problem:
            text = tr("{name} cannot be used for a whole chat.", name=event.name)
            return Notice(text, tr("Choose another copy of it, or another model."),
                          detail=event.template_problem)  # fmt: skip
        if event.paged_layers:
            return _from_disk(event)
        if event.moved is None:
            return None
        is_usual = event.moved.fault is DeviceFault.TOO_LARGE and self._runs_on == "auto"
        remedy = tr("What models run on is chosen in the settings.")
        return None if is_usual else _moved(event, remedy)

    def on_unloaded(self, event: ModelUnloaded) -> None:
        """No model is loaded: it was unloaded, its load was cancelled, or `Failed` follows."""
        if event.request == self._unloading and not self._request:
            self._unloading = 0
            self._state.set_model(ModelStatus(freed_bytes=event.freed_bytes))
        elif event.request == self._request and self._engine.is_cancelled(event.request):
            self._request = 0
            self._state.set_model(ModelStatus())
        else:
            self._state.set_model(replace(self._state.model, loaded=None))

    def on_failed(self, event: Failed) -> None:
        """The load failed; the model before it may still be loaded."""
        if event.request != self._request:
            return
        self._request = 0
        status = self._state.model
        left = status.loaded
        self._state.set_model(
            ModelStatus(
                ModelPhase.READY if left else ModelPhase.FAILED,
                Local(left.path) if left else status.model,
                left.name if left else status.name,
                loaded=left,
                error=event.message,
                remedy=event.remedy,
                fault=event.fault,
                failed=status.model,
            )
        )


def _moved(loaded: ModelLoaded, remedy: str) -> Notice | None:
    """Why a model does not run on the GPU."""
    moved = loaded.moved
    if moved is None:
        return None
    text = moved_words(moved, loaded.runs_on)
    return Notice(text, remedy, detail=moved.text)


def _from_disk(loaded: ModelLoaded) -> Notice:
    """Why a model that does not fit in memory is slow, and how slow."""
    seconds = loaded.paged_seconds
    text = tr("{name} does not fit in memory, so it runs slowly, from the disk.",
              name=loaded.name)  # fmt: skip
    if seconds > 0:
        text = tr("{name} does not fit in memory. It runs from the disk, and takes about "
                  "{time} for each word.",
                  name=loaded.name, time=tr("{count} s", count=number(float(f"{seconds:.2g}"))))  # fmt: skip
    remedy = tr("Close other programs and load it again, or choose a smaller model.")
    return Notice(text, remedy, tr("Choose a model"))


def expected_model(last: str) -> Path | None:
    """The file that `first_model` probably returns, without a look at the disk of the last one."""
    return Path(last) if last else first_model("")


def first_model(last: str) -> Path | None:
    """Path of the last used model, else of the starter model; None when neither exists."""
    for path in (Path(last) if last else None, starter_path()):
        if path is not None and path.is_file():
            return path
    return None


def usual_model(last: str, usable: Sequence[Path]) -> Path | None:
    """Path of the last used model, else of the only usable one; None when it must be chosen."""
    if last and Path(last).is_file():
        return Path(last)
    return usable[0] if len(usable) == 1 else None
