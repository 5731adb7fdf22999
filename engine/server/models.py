"""Models by name: the installed ones, loaded when a client asks, kept for a while, then unloaded.

A model that answers is never unloaded. The main model, the window's, is only replaced by its owner.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.client import Engine
from engine.errors import EngineError, FaultKind
from engine.loading.library import installed_models, model_label, model_name, model_parts
from engine.messages import (
    DraftSet,
    Load,
    Metrics,
    MetricsRead,
    ModelLoaded,
    ModelUnloaded,
    SetDraft,
    Tokenize,
    Tokenized,
    Unload,
)
from engine.server.bridge import answer, in_thread
from engine.server.errors import ApiError

KEEP_SECONDS = 300.0  # after the last answer, as Ollama keeps models
_SEARCHED_SECONDS = 2.0  # until the folders are searched again
_PART = re.compile(r"-\d{5}-of-\d{5}$")
ANY = "*"  # alias: any name that no model has
_MOST_NAMED = 50  # models in the sentence about an unknown one


@dataclass(frozen=True, slots=True)
class MainModel:
    """The main model of a server that owns it: how it is loaded, also when it was unloaded."""

    load: Load
    draft: Path | None = None  # the model that drafts its tokens
    sleep_seconds: float = 0.0  # after its last answer it is unloaded until the next; 0: never


@dataclass(frozen=True, slots=True)
class ModelCard:
    """An installed or loaded model, as lists of models show it."""

    # Unique: the first alias, or the stem of its file, with its folder where another has the same.
    name: str
    path: Path
    label: str  # display name with the quantization
    size_bytes: int
    changed: float  # of the file, seconds since the epoch
    loaded: ModelLoaded | None = None
    is_main: bool = False
    aliases: tuple[str, ...] = ()  # further names that its owner gave it
    tags: tuple[str, ...] = ()  # words of its owner about it

    @property
    def sees(self) -> bool:
        """Whether it is loaded and takes pictures."""
        return self.loaded is not None and self.loaded.encoder is not None


class Models:
    """The models that clients may name; used on the server's event loop."""

    def __init__(
        self,
        engine: Engine,
        folders: Callable[[], Sequence[Path]] = lambda: (),
        *,
        keep_seconds: float = KEEP_SECONDS,
        loads: bool = True,
        context: int = 0,
        aliases: Sequence[str] = (),
        tags: Sequence[str] = (),
        main: MainModel | None = None,
    ) -> None:
        """`folders` has models beside the models folder; `loads` is whether other models than the
        loaded ones are loaded on demand, with contexts of `context` tokens, 0: as the app chooses;
        `aliases` are further names of the main model, "*" any name that no other model has; `tags` are
        words about it. `main` is None where others load and unload it.
        """
        self._engine = engine
        self._folders = folders
        self.keep_seconds = keep_seconds
        self._loads = loads
        self._context = context
        self._aliases = tuple(alias for alias in aliases if alias != ANY)
        self.takes_any = ANY in aliases  # a name that no model has is the main one's
        self._tags = tuple(tags)
        self._main = main
        self.before_sleep: MetricsRead | None = None  # of the main model, when it was unloaded
        self._searched = -_SEARCHED_SECONDS  # when the folders were, last
        self._files: dict[Path, tuple[int, float]] = {}  # found: their bytes, and when they changed
        self._leases: Counter[Path] = Counter()
        self._timers: dict[Path, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Future[ModelLoaded] | None = None
        self._client = f"models {id(self):x}"  # the engine's client that loads them
        self._changed = asyncio.Event()  # set when a lease ends or the loaded models change
        self._is_changing = False  # a model is being loaded or unloaded
        self._is_swapping = False  # no answer may begin meanwhile

    def begin(self) -> None:
        """The server listens: a main model that nobody uses goes to sleep."""
        if self._main is not None:
            self._keep(self._main.load.path, 0.0)

    async def cards(self) -> list[ModelCard]:
        """All models, the main one first."""
        resident = {one.path: one for one in self._engine.resident}
        own = [] if self._main is None else [self._main.load.path]
        is_old = time.monotonic() - self._searched > _SEARCHED_SECONDS
        if is_old or not resident.keys() <= self._files.keys():
            self._files = await in_thread(
                lambda: _found(self._folders(), [*resident.values()], own)
            )
            self._searched = time.monotonic()
        first = next(iter(resident), None)
        main = first if first is not None and not resident[first].beside else None
        if main is None and own:  # it sleeps
            main = first = own[0]
        paths = sorted(self._files, key=lambda path: path != first)
        names = Counter(_stem(path).lower() for path in paths)
        made: list[ModelCard] = []
        for path in paths:
            name = _stem(path)
            if names[name.lower()] > 1 and path != main:
                name = f"{path.parent.name}/{name}"
            (size, changed), loaded = self._files[path], resident.get(path)
            is_main, label = path == main, model_label(path)
            aliases, tags = (self._aliases, self._tags) if is_main else ((), ())
            name = aliases[0] if aliases else name
            made.append(ModelCard(name, path, label, size, changed, loaded, is_main, aliases, tags))
        return made

    async def find(self, name: str) -> ModelCard:
        """The model of a name; "": the main one. Raises ApiError with the names that there are."""
        cards = await self.cards()
        wanted = name.strip().lower().removesuffix(":latest")
        if not wanted:
            for card in cards:
                if card.is_main or card.loaded is not None:
                    return card
            with suppress(EngineError):  # none is being loaded either
                await answer(self._engine, Tokenize(""), Tokenized)  # waits for the main model
                return await self.find(name)
        for is_exact in (True, False):
            for card in cards:
                if wanted and wanted in ({card.name.lower()} if is_exact else _names(card)):
                    return card
        if cards and cards[0].is_main and self.takes_any:
            return cards[0]
        names = ", ".join(card.name for card in cards[:_MOST_NAMED]) or "none"
        what = f"There is no model {name[:200]!r}" if wanted else "No model is named or loaded"
        raise ApiError(404, f"{what}; installed: {names}.", code="model_not_found", param="model")

    @asynccontextmanager
    async def use(
        self, name: str, keep_seconds: float | None = None
    ) -> AsyncGenerator[ModelCard, None]:
        """A model that stays loaded meanwhile, and `keep_seconds` longer; loaded first if need be.

        Raises ApiError for an unknown name, EngineError where it cannot be loaded.
        """
        card = await self.find(name)
        loaded = await self._lease(card)
        path = card.path
        try:
            yield replace(card, loaded=loaded)
        finally:
            self._leases[path] -= 1
            if not self._leases[path]:
                del self._leases[path]
                self._keep(path, self.keep_seconds if keep_seconds is None else keep_seconds)
            self._notify()

    async def unload(self, name: str) -> None:
        """Unload a model once its answers have ended; raises ApiError for an unknown name, and for the
        main model of another owner.
        """
        card = await self.find(name)
        if not self._may_unload(card.path) and card.loaded is not None:
            raise ApiError(403, f"The model {card.name} belongs to the window.", param="model")
        await self._until(lambda: card.path not in self._leases)
        if (timer := self._timers.pop(card.path, None)) is not None:
            timer.cancel()
        await self._unload(card.path)

    def expiry(self, path: Path) -> float | None:
        """When a loaded model is unloaded, in seconds since the epoch; None: never."""
        if (timer := self._timers.get(path)) is not None:
            return time.time() + timer.when() - asyncio.get_running_loop().time()
        is_used = path in self._leases and self._is_beside(path)
        return time.time() + self.keep_seconds if is_used and self.keep_seconds >= 0 else None

    async def close(self) -> None:
        """Have the models unloaded that were loaded for clients; does not wait for that."""
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._engine.resident:
            if one.beside:
                self._engine.submit(Unload(one.path), lambda event: None)

    def _is_beside(self, path: Path) -> bool:
        """Whether it is loaded beside the main model, for clients."""
        found = self._resident(path)
        return found is not None and found.beside

    def _is_own(self, path: Path) -> bool:
        """Whether it is the main model of this server's owner."""
        return self._main is not None and path == self._main.load.path

    def _may_unload(self, path: Path) -> bool:
        return self._is_beside(path) or (self._is_own(path) and self._resident(path) is not None)

    def _resident(self, path: Path) -> ModelLoaded | None:
        return next((one for one in self._engine.resident if one.path == path), None)

    async def _lease(self, card: ModelCard) -> ModelLoaded:
        """Keep a model from being unloaded, and load it if need be; one is loaded at a time."""
        path = card.path
        await self._until(lambda: not self._is_changing or self._is_usable(path))
        if (loaded := self._resident(path)) is None:
            self._is_changing = True
            try:
                loaded = await self._load(card)
            finally:
                self._start(self._settle(path))
        self._take(path)  # without a wait before it, in which the client could go away
        return loaded

    def _is_usable(self, path: Path) -> bool:
        return not self._is_swapping and self._resident(path) is not None

    def _take(self, path: Path) -> None:
        self._leases[path] += 1
        if (timer := self._timers.pop(path, None)) is not None:
            timer.cancel()

    async def _load(self, card: ModelCard) -> ModelLoaded:
        """Load a model; if it does not fit beside others, when their answers have ended."""
        if self._main is not None and self._is_own(card.path):
            loaded = await answer(self._engine, self._main.load, ModelLoaded)
            if self._main.draft is not None:
                await answer(self._engine, SetDraft(self._main.draft), DraftSet)
            return loaded
        if not self._loads:
            raise ApiError(
                403,
                f"The model {card.name} is not loaded, and this server loads none for clients.",
                code="model_not_loaded",
                param="model",
            )
        load = Load(card.path, context=self._context, embeddings=True, beside=True)
        try:
            return await self._answered(load)
        except EngineError as error:
            if error.fault.kind is not FaultKind.MEMORY or not self._leases:
                raise
        self._is_swapping = True  # new answers wait, those that run end
        await self._until(lambda: not self._leases)
        return await self._answered(load)

    async def _answered(self, load: Load) -> ModelLoaded:
        """The end of a load; one that nobody waits for any more is cancelled, and ends later."""
        self._loading = asyncio.ensure_future(answer(self._engine, load, ModelLoaded, self._client))
        try:
            return await asyncio.shield(self._loading)
        except asyncio.CancelledError:
            self._engine.leave(self._client)
            raise

    async def _settle(self, path: Path) -> None:
        """Let others load and unload again as soon as a load has really ended.

        One that was cancelled too late leaves a model, which is unloaded after a while as usual.
        """
        if (loading := self._loading) is not None:
            await asyncio.wait({loading})
            _ = loading.cancelled() or loading.exception()  # it was told to whoever waits
        self._loading = None
        if path not in self._leases:
            self._keep(path, self.keep_seconds)
        self._end_change()

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition of leases and loaded models holds."""
        while not holds():
            await self._changed.wait()

    def _notify(self) -> None:
        """Wake those that wait for a condition."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _end_change(self) -> None:
        self._is_changing = self._is_swapping = False
        self._notify()

    def _keep(self, path: Path, seconds: float) -> None:
        """Unload a model after a time; a negative one: never. The main model is its owner's."""
        if self._main is not None and self._is_own(path):
            seconds = self._main.sleep_seconds or -1.0
        if seconds < 0 or not self._may_unload(path):
            return
        loop = asyncio.get_running_loop()
        self._timers[path] = loop.call_later(seconds, self._start_unload, path)

    def _start_unload(self, path: Path) -> None:
        self._timers.pop(path, None)
        self._start(self._unload(path))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with some work beside others."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unload(self, path: Path) -> None:
        await self._until(lambda: not self._is_changing)
        if path in self._leases or path in self._timers or not self._may_unload(path):
            return
        self._is_changing = self._is_swapping = True
        try:
            with suppress(EngineError):  # it is unloaded when memory is needed
                if self._is_own(path):
                    self.before_sleep = await answer(self._engine, Metrics(path), MetricsRead)
                await answer(self._engine, Unload(path), ModelUnloaded)
        finally:
            self._end_change()


def _found(
    folders: Sequence[Path], resident: Sequence[ModelLoaded], own: Sequence[Path]
) -> dict[Path, tuple[int, float]]:
    """The installed models, and loaded ones from elsewhere: bytes of their files, time of change."""
    made: dict[Path, tuple[int, float]] = {}
    for path in (*own, *installed_models(folders), *(one.path for one in resident)):
        with suppress(OSError):  # deleted since the search
            files = [one.stat() for one in model_parts(path)]
            made[path] = sum(one.st_size for one in files), max(one.st_mtime for one in files)
    for one in resident:  # it answers, with or without its file
        made.setdefault(one.path, (one.file_bytes, 0.0))
    return made


def _stem(path: Path) -> str:
    return _PART.sub("", path.name.removesuffix(path.suffix))


def _names(card: ModelCard) -> set[str]:
    """Further names of a model, in lower case."""
    path = card.path
    names = (
        *card.aliases,
        *(path.name, path.stem, _stem(path), card.label, model_name(path), str(path)),
    )
    return {name.lower() for name in names}
