"""Model loading: sends load and unload commands, and keeps `ModelStatus` up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.domain.model_ref import Local, ModelRef
from app.domain.parts import ErrorPart
from app.engines.client import EngineClient
from app.engines.run import Run, start
from app.state.chat import ModelPhase, ModelStatus, Notice, State
from app.state.devices import CHOICES, moved_words
from app.state.faults import explain
from app.system.translation import number, tr
from engine import (
    CacheType,
    DeviceFault,
    Event,
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
# Why a model that may run anywhere runs on the processor, as on most computers: torch from an index has
# CUDA on Linux, with or without a GPU.
_USUAL = (DeviceFault.NO_DEVICE, DeviceFault.TOO_LARGE)


class ModelLoader:
    """Loads one model at a time; a newer load cancels the one before it."""

    def __init__(
        self,
        state: State,
        engine: EngineClient,
        *,
        loaded: Callable[[Path], None],
        failed: Callable[[ErrorPart, ModelRef | None], None],
        changed: Callable[[], None],
        report: Callable[[Exception], None],
    ) -> None:
        """`loaded` is called with the file of a loaded model, `failed` with why a model could not be
        loaded, `changed` when another model is loaded, or none, and `report` with an unexpected
        exception.
        """
        self._state = state
        self._engine = engine
        self._on_ready, self._on_refused, self._changed = loaded, failed, changed
        self._report = report
        self._load: Run | None = None  # in progress
        self._unload: Run | None = None  # the last one
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
        device = CHOICES.get(runs_on, runs_on)
        self._load = self._engine.submit(
            Load(path, context, threads, cache, memory_bytes=memory_bytes, device=device)
        )
        self._follow(self._load)

    def cancel(self) -> None:
        """Cancel the load in progress; the engine's last event says which model is loaded then."""
        if self._load is not None:
            self._load.cancel()

    def unload(self) -> None:
        """Unload the model and free its memory; queued answers wait for the next model."""
        self.cancel()
        self._load = None
        self._unload = self._engine.submit(Unload())
        self._follow(self._unload)

    def on_event(self, event: Event) -> None:
        """What has become of the model without a request: its device failed while it was in use."""
        if isinstance(event, ModelMoved) and not event.loaded.beside:
            remedy = tr("Load the model again to try the GPU once more.")
            self._state.set_notice(NOTICE, _moved(event.loaded, remedy))
            if self._state.model.phase is ModelPhase.READY:
                self._state.set_model(replace(self._state.model, loaded=event.loaded))
        elif isinstance(event, ModelUnloaded) and self._is_own(event):
            # The processor cannot go on either.
            self._state.set_model(replace(self._state.model, loaded=None))
            self._changed()

    # --- steps ----------------------------------------------------------------------------------

    def _is_own(self, event: ModelUnloaded) -> bool:
        """Whether the model of the window was unloaded, not that of another client."""
        loaded = self._state.model.loaded
        return event.path is None or loaded is None or event.path == loaded.path

    def _follow(self, run: Run) -> None:
        def ended(error: Exception) -> None:
            """Fail a load whose events could not be handled."""
            self._report(error)
            run.cancel()
            if run is self._load:
                self._fail(Failed(run.id, tr("Something went wrong in Tokonoma."), ""))
            self._changed()

        start(self._read(run), ended)

    async def _read(self, run: Run) -> None:
        """Keep the status up to date while a load or an unload is in progress."""
        async for batch in run:
            match batch[-1]:
                case LoadProgress() as event if run is self._load:
                    done, total = event.done_bytes, event.total_bytes
                    self._state.set_model(
                        replace(self._state.model, done_bytes=done, total_bytes=total)
                    )
                case ModelLoaded() as event:
                    self._set_loaded(run, event)
                case ModelUnloaded() as event:
                    self._set_unloaded(run, event)
                    self._changed()
                case Failed() as event if run is self._load:
                    self._fail(event)
                    self._changed()
                case _:
                    pass

    def _set_loaded(self, run: Run, event: ModelLoaded) -> None:
        """A model is ready: the requested one or, after a cancelled load, the one before it."""
        if run is self._load:
            self._load = None
            self._state.set_notice(NOTICE, self._notice(event))
            ready = ModelStatus(
                ModelPhase.READY, Local(event.path), event.name, loaded=event, kept=run.is_cancelled
            )
            self._state.set_model(ready)
        elif self._load is not None:  # of a cancelled load; the newer load is still in progress
            self._state.set_model(replace(self._state.model, loaded=event, kept=run.is_cancelled))
        model = self._state.model
        if model.phase is ModelPhase.READY and model.path is not None:
            self._on_ready(model.path)
        self._changed()

    def _set_unloaded(self, run: Run, event: ModelUnloaded) -> None:
        """No model is loaded: it was unloaded, its load was cancelled, or `Failed` follows."""
        if run is self._unload and self._load is None:
            self._unload = None
            self._state.set_model(ModelStatus(freed_bytes=event.freed_bytes))
        elif run is self._load and run.is_cancelled:
            self._load = None
            self._state.set_model(ModelStatus())
        else:
            self._state.set_model(replace(self._state.model, loaded=None))

    def _fail(self, event: Failed) -> None:
        """The load failed; the model before it may still be loaded."""
        self._load = None
        status = self._state.model
        left, failed = status.loaded, status.model
        self._state.set_model(
            ModelStatus(
                ModelPhase.READY if left else ModelPhase.FAILED,
                Local(left.path) if left else status.model,
                left.name if left else status.name,
                loaded=left,
                error=event.message,
                remedy=event.remedy,
                fault=event.fault,
                failed=failed,
            )
        )
        name = failed.file_name if failed is not None else ""
        shown = explain(event.fault, name, event.message, event.remedy)
        notice = Notice(shown.sentence, shown.remedy, tr("Choose a model"), shown.detail)
        self._state.set_notice(NOTICE, notice)
        self._on_refused(ErrorPart(event.fault, name, event.message, event.remedy), failed)

    def _notice(self, event: ModelLoaded) -> Notice | None:
        """What the user must know of a load: a model that is faulty, slow, or not where it should be."""
        if event.template_problem:
            text = tr("{name} cannot be used for a whole chat.", name=event.name)
            return Notice(text, tr("Choose another copy of it, or another model."),
                          detail=event.template_problem)  # fmt: skip
        if event.offloaded_layers:
            return _from_disk(event)
        if event.moved is None:
            return None
        is_usual = event.moved.fault in _USUAL and self._runs_on == "auto"
        remedy = tr("What models run on is chosen in the settings.")
        return None if is_usual else _moved(event, remedy)


def _moved(loaded: ModelLoaded, remedy: str) -> Notice | None:
    """Why a model does not run on the GPU."""
    moved = loaded.moved
    if moved is None:
        return None
    text = moved_words(moved, loaded.runs_on)
    return Notice(text, remedy, detail=moved.text)


def _from_disk(loaded: ModelLoaded) -> Notice:
    """Why a model that does not fit in memory is slow, and how slow."""
    seconds = loaded.offloaded_seconds
    text = tr("{name} does not fit in memory, so it runs slowly, from the disk.",
              name=loaded.name)  # fmt: skip
    if seconds > 0:
        text = tr("{name} does not fit in memory. It runs from the disk, and takes about "
                  "{time} for each word.",
                  name=loaded.name, time=tr("{count} s", count=number(float(f"{seconds:.2g}"))))  # fmt: skip
    remedy = tr("Close other programs and load it again, or choose a smaller model.")
    return Notice(text, remedy, tr("Choose a model"))


def expect_model(state: State, path: Path | None) -> None:
    """Show that a model will be loaded, before the engine runs; None: there is none."""
    if path is None:
        state.set_model(ModelStatus())
    else:
        state.set_model(ModelStatus(ModelPhase.LOADING, Local(path), model_name(path)))


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
