"""Client: the command line at the engine's door; each request is waited for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TypeVar

from engine.cli import options as options_of
from engine.cli.interruption import interruptible
from engine.cli.options import Options
from engine.client import Engine
from engine.errors import EngineError
from engine.loading.device_choice import PROCESSOR
from engine.loading.library import find_model
from engine.messages import (
    DraftSet,
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Request,
    SetDraft,
    Text,
    Thought,
    ToolCallDelta,
)

E = TypeVar("E", bound=Event)
_POLL_SECONDS = 0.1  # a signal is handled between two waits
# Events after which a request goes on; of Finished those that are not the last.
_PARTS = (LoadProgress, PromptProgress, Text, Thought, ToolCallDelta, Finished)


class Client:
    """An engine of this process with the model of --model; a context manager that stops it."""

    def __init__(
        self,
        options: Options,
        snapshots: Path | None = None,
        *,
        embeddings: bool = False,
        ids_only: bool = False,
    ) -> None:
        """Loads the model, and that of --draft. `snapshots` as in Engine, the others as in Load.

        Raises EngineError.
        """
        self._engine = Engine(snapshots=snapshots)
        self._engine.start()
        try:
            self.model = self._load(options, embeddings=embeddings, ids_only=ids_only)
        except BaseException:
            self._engine.stop()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.stop()

    def result(self, request: Request, kind: type[E]) -> E:
        """The event that ends a request; raises EngineError."""
        found: list[E] = []

        def receive(event: Event) -> None:
            if isinstance(event, kind):
                found.append(event)

        if self.run(request, receive)[1] or not found:
            raise KeyboardInterrupt
        return found[-1]

    def run(self, request: Request, receive: Callable[[Event], None]) -> tuple[int, bool]:
        """Pass the events of a request on as they come; returns its id, and whether Ctrl-C ended it.

        Raises EngineError.
        """
        events: SimpleQueue[Event] = SimpleQueue()
        handle = self._engine.submit(request, events.put)
        with interruptible(handle.cancel):
            while True:
                try:
                    event = events.get(timeout=_POLL_SECONDS)
                except Empty:
                    continue
                if isinstance(event, Failed):
                    raise EngineError(event.message, event.remedy, event.fault)
                receive(event)
                is_part = isinstance(event, _PARTS) and not getattr(event, "last", False)
                # A failing load first reports that the model before it was unloaded.
                is_part |= isinstance(event, ModelUnloaded) and not handle.is_cancelled
                if not is_part:
                    return handle.id, handle.is_cancelled

    def _load(self, options: Options, *, embeddings: bool, ids_only: bool) -> ModelLoaded:
        load = Load(
            find_model(options.model),
            context=options.context,
            threads=options.threads,
            cache=options_of.cache_type(options),
            tokenizer=options_of.tokenizer(options),
            backend=options.backend,
            device=options_of.device(options),
            placement=tuple(options_of.placement(options)),
            embeddings=embeddings,
            ids_only=ids_only,
            memory_bytes=options_of.memory(options),
        )
        loaded = self.result(load, ModelLoaded)
        if loaded.moved is not None:
            _say(f"{loaded.moved.text} {_where(loaded)}")
        if loaded.offloaded_layers:
            _say(offloading_words(loaded))
        if (draft := getattr(options, "draft", None)) is not None:
            self.result(SetDraft(find_model(draft)), DraftSet)
        return loaded


def _where(loaded: ModelLoaded) -> str:
    """A sentence on what runs the model instead."""
    on_gpu = sum(one.layers for one in loaded.runs_on if one.name != PROCESSOR)
    others = "The other layers run on the processor." if on_gpu else ""
    return others or "The model runs on the processor."


def offloading_words(loaded: ModelLoaded) -> str:
    """A sentence on what is read from the disk for each token, and how long that takes."""
    gigabytes = f"{loaded.offloaded_bytes / 1e9:.1f} GB"
    read = f"{loaded.offloaded_layers} of its layers ({gigabytes}) are read"
    if loaded.offloaded_experts:
        read = (
            f"of {loaded.offloaded_layers} layers the experts that are used, "
            f"about {gigabytes}, are read"
        )
    seconds = loaded.offloaded_seconds
    time = f", which takes about {seconds:.2g} s" if seconds else ""
    return f"The model does not fit in memory: {read} from the disk for each token{time}."


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
