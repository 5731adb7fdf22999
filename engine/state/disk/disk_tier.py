"""Disk tier of the prefix tree: restores saved pages into memory, and saves conversations.

What the tree no longer holds, after a restart or an eviction, is read from the page store: what
Save has written, and what was evicted from memory. Saving takes references to pages, which
nobody writes while others hold them, so nothing is copied.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from engine.adapters.stack import Stack
from engine.core.handle import RequestHandle
from engine.core.prefix_match import shared_prefix
from engine.core.scheduler import Scheduler
from engine.errors import SnapshotError
from engine.loading.identity import ModelFiles
from engine.loading.loader import LoadedModel
from engine.machine.background import BackgroundTask
from engine.messages import Save, SnapshotSaved
from engine.state.disk import image_ids, restore, resume, store
from engine.state.disk.eviction import EvictedPages
from engine.state.disk.page_file import Page as SavedPage
from engine.state.disk.page_file import SavedImage, StateKey
from engine.state.disk.page_memory import HeldPage, PageTarget
from engine.state.disk.restore import MIN_GAIN, Match
from engine.state.disk.saver import Capture, Saver
from engine.state.disk.sequence_file import SavedSequence
from engine.state.disk.store import PageRead, PageStore
from engine.state.pages import Page, storage_dtype
from engine.state.sequence import Sequence as CachedSequence
from engine.vision.registry import ImageRegistry
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout

log = logging.getLogger(__name__)

T = TypeVar("T")
Checkpoint = Callable[[], None]
_ALL_PAGES = 1 << 40
_MOST_TEXTS = 64  # conversations whose last text is known
_WRITTEN_SECONDS = 2.0  # wait for evicted pages of a prompt that are still being written


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Outcome of a search for saved pages."""

    tokens: int = 0  # of the prompt, restored from the disk
    refused: SnapshotError | None = None  # why the conversation's own pages were unusable


@dataclass(frozen=True, slots=True)
class _Search:
    """What was found for a prompt on the disk."""

    matches: list[Match] = field(default_factory=list[Match])  # the longest first
    files: list[SavedSequence] = field(default_factory=list[SavedSequence])  # looked at
    key: StateKey | None = None  # None: nothing was looked at, for the reason `refused`
    encoder: str = ""  # key of the picture encoder, if a file has images
    refused: SnapshotError | None = None


@dataclass(frozen=True, slots=True)
class SavedText:
    """A text that may be saved for a conversation."""

    conversation: str  # "": it had no name then
    stack: Stack
    tokens: list[int]


class _Reads:
    """Pages of a sequence that are being read from files."""

    def __init__(self) -> None:
        self.reads: list[PageRead] = []
        self._targets: list[list[PageTarget]] = []  # of each of `reads`
        self._indices: list[int] = []

    def add(
        self, index: int, page: SavedPage, parts: Sequence[Page | None], groups: list[int]
    ) -> None:
        """Read these groups' parts of the sequence's page of this index."""
        targets = {group: PageTarget(one) for group in groups if (one := parts[group])}
        views = [targets[group].view if group in targets else None for group in range(len(parts))]
        self.reads.append(PageRead(page, views))
        self._targets.append(list(targets.values()))
        self._indices.append(index)

    def finish(self, good: int) -> int:
        """So many of `reads` are good; returns how many leading pages are complete."""
        for target in (target for targets in self._targets[:good] for target in targets):
            target.finish()
        return self._indices[good] if good < len(self.reads) else _ALL_PAGES


class DiskTier:
    """Saved pages of one loaded model; used by the engine thread only."""

    def __init__(
        self,
        page_store: PageStore,
        saver: Saver,
        scheduler: Scheduler,
        files: ModelFiles,
        model: LoadedModel,
        encoder_files: ModelFiles | None = None,
    ) -> None:
        """`encoder_files` are those of the picture encoder of a model that sees."""
        self._store = page_store
        self._saver = saver
        self._scheduler = scheduler
        self._files = files
        self._model = model
        self._encoder_files = encoder_files
        self._images = None if model.sight is None else model.sight.registry
        self._texts: dict[int, SavedText] = {}  # by request, the last one last
        self.evicted = EvictedPages(
            page_store,
            saver,
            scheduler.pool,
            identify=partial(identify, files, model),
            describe=lambda stack: metadata_of(model, stack),
            to_saved=partial(_to_saved, model, encoder_files),
        )
        scheduler.tree.on_evict = self.evicted.take
        self._saved: dict[str, tuple[list[int], str, Path]] = {}  # tokens, stack key, file

    def identify(self, stack: Stack, checkpoint: Checkpoint = lambda: None) -> StateKey:
        """The key of this model's pages; its hash is computed at first use, which takes seconds.

        Raises SnapshotError when the model's files have changed since they were loaded.
        """
        return identify(self._files, self._model, stack, checkpoint)

    def encoder_key(self, checkpoint: Checkpoint = lambda: None) -> str:
        """The key of the picture encoder, see `encoder_key`."""
        return encoder_key(self._encoder_files, self._model, checkpoint)

    def has_images(self, tokens: Sequence[int]) -> bool:
        """Whether a text has rows of images."""
        return _has_images(tokens, self._images)

    def _ids(
        self,
        saved: SavedSequence,
        encoder: str | None = None,
        *,
        pending: Sequence[int] = (),
        adds: bool = False,
    ) -> list[int]:
        """The ids of a saved text in this process, see `image_ids.from_saved`."""
        vocabulary = self._model.config.vocabulary
        if self._images is not None:
            vocabulary = self._images.vocabulary
        ids = [*saved.tokens, *pending]
        return image_ids.from_saved(
            ids, saved.images, self._images, vocabulary, encoder=encoder, adds=adds
        )

    # --- restoring ------------------------------------------------------------------------------

    def restore(
        self, stack: Stack, fresh: Sequence[int], conversation: str, checkpoint: Checkpoint
    ) -> Generator[None, None, RestoreResult]:
        """Read the longest saved prefix of a prompt, tokenized as `fresh`, into the tree.

        Only if that is longer than the prefix in memory; for pages of another conversation than
        `conversation`, longer by `MIN_GAIN` tokens. "" means no conversation. Yields while it waits
        for other threads. Raises what `checkpoint` raises.
        """
        scheduler = self._scheduler
        ids = scheduler.spelled_as_cached(stack, fresh)
        cached = scheduler.tree.match(stack.key, ids).length
        if len(ids) - cached < (1 if conversation else MIN_GAIN):
            return RestoreResult()
        end = time.monotonic() + _WRITTEN_SECONDS
        while self.evicted.has(stack.key, ids, cached) and time.monotonic() < end:
            checkpoint()
            yield None

        search = yield from self._matches(stack, fresh, cached, conversation, checkpoint)
        if search.key is None:
            return RestoreResult(refused=search.refused)
        files, key = search.files, search.key
        damaged: SnapshotError | None = None
        for match in search.matches:
            tokens, error = yield from self._read(stack, match, search.encoder, checkpoint)
            if conversation and match.saved.belongs_to(conversation):
                damaged = damaged or error
            if tokens > cached:
                self._store.touch(match.saved)
                self._remember(stack, match.saved, search.encoder)
                return RestoreResult(tokens)
        refused = restore.refusal(
            self._store, files, key, scheduler.context, conversation, search.encoder
        )
        return RestoreResult(refused=refused or damaged)

    def cached_length(
        self, stack: Stack, fresh: Sequence[int], checkpoint: Checkpoint
    ) -> Generator[None, None, int]:
        """How many leading tokens of a prompt are in memory, or would be restored; reads no pages."""
        scheduler = self._scheduler
        ids = scheduler.spelled_as_cached(stack, fresh)
        cached = scheduler.tree.match(stack.key, ids).length
        if len(ids) - cached < MIN_GAIN:
            return cached
        found = yield from self._matches(stack, fresh, cached, "", checkpoint)
        return max((match.tokens for match in found.matches), default=cached)

    def saved_text(
        self, stack: Stack, conversation: str, checkpoint: Checkpoint
    ) -> Generator[None, None, list[int]]:
        """The tokens that were saved last with a conversation, with those of an interrupted answer;
        none if nothing was. Its images get ids; their pixels are not known.

        Raises SnapshotError if the model cannot continue what was saved.
        """
        context = self._scheduler.context
        own = [one for one in self._store.sequences() if one.belongs_to(conversation)]
        if not own:
            return []
        key = yield from _on_thread(lambda: self.identify(stack, checkpoint), checkpoint)
        encoder = yield from self._encoder_of(own, checkpoint)
        for saved in own:
            with suppress(SnapshotError):
                restore.check_origin(saved, key, context, encoder)
                pending = resume.pending(saved.resume)
                return self._ids(saved, encoder, pending=pending, adds=True)
        if refused := restore.refusal(self._store, own, key, context, conversation, encoder):
            raise refused
        return []

    def _encoder_of(
        self, files: Sequence[SavedSequence], checkpoint: Checkpoint
    ) -> Generator[None, None, str]:
        """The key of the picture encoder, if a file has images; "" if no image is of it."""
        if self._encoder_files is None or not any(saved.images for saved in files):
            return ""
        try:
            return (yield from _on_thread(lambda: self.encoder_key(checkpoint), checkpoint))
        except SnapshotError as error:
            log.info("saved texts with pictures are not used: %s", error)
            return ""

    def _matches(
        self,
        stack: Stack,
        fresh: Sequence[int],
        cached: int,
        conversation: str,
        checkpoint: Checkpoint,
    ) -> Generator[None, None, _Search]:
        """The saved texts that share more of a prompt than the `cached` tokens in memory."""
        scheduler = self._scheduler

        def shared_length(saved: SavedSequence, encoder: str | None = None) -> int:
            shared, _ = shared_prefix(self._model.tokenizer, fresh, self._ids(saved, encoder))
            return min(shared, scheduler.context)

        files = yield from _on_thread(
            lambda: restore.candidates(
                self._store.sequences(), shared_length, cached, conversation
            ),
            checkpoint,
        )
        if not files:
            return _Search(refused=self._store.removed.refusal(conversation))
        try:
            key = yield from _on_thread(lambda: self.identify(stack, checkpoint), checkpoint)
        except SnapshotError as error:
            return _Search(refused=error)
        encoder = yield from self._encoder_of(files, checkpoint)

        def in_memory(saved: SavedSequence, length: int) -> Sequence[Sequence[object]]:
            return scheduler.tree.parts(stack.key, self._ids(saved, encoder)[:length])

        found = restore.matches(
            self._store,
            files,
            key,
            partial(shared_length, encoder=encoder),
            windows=scheduler.pool.layout.windows,
            cached=cached,
            conversation=conversation,
            in_memory=in_memory,
        )
        return _Search(found, files, key, encoder)

    def _read(
        self, stack: Stack, match: Match, encoder: str, checkpoint: Checkpoint
    ) -> Generator[None, None, tuple[int, SnapshotError | None]]:
        """Read the pages of a saved sequence that are not in memory.

        Returns how many of its tokens are cached then, and why not all of them.
        """
        pool, tree = self._scheduler.pool, self._scheduler.tree
        tokens = self._ids(match.saved, encoder)[: min(match.tokens, self._scheduler.context)]
        wanted = store.needed_parts(pool.layout.windows, len(tokens))
        held: list[list[Page | None]] = [[None for _ in needed] for needed in wanted]
        reads = _Reads()
        try:
            for parts, needed, cached in zip(
                held, wanted, tree.parts(stack.key, tokens), strict=False
            ):
                for group, page in enumerate(cached):
                    if needed[group] and page is not None:
                        parts[group] = pool.retain(page)
            missing = [
                [group for group, one in enumerate(parts) if needed[group] and one is None]
                for parts, needed in zip(held, wanted, strict=True)
            ]
            sizes = pool.layout.page_bytes
            if not tree.evict(sum(sizes[group] for groups in missing for group in groups)):
                return 0, None
            for index, groups in enumerate(missing):
                for group in groups:
                    held[index][group] = pool.take_undefined(group)
                if groups:
                    reads.add(index, match.saved.pages[index], held[index], groups)
            good, error = yield from _on_thread(
                lambda: self._store.read_pages(reads.reads, checkpoint), checkpoint
            )
            if error is not None:
                log.info("%s: %s", match.saved.path.name, error)
            tokens = tokens[: reads.finish(good) * PAGE_TOKENS]
            sequence = CachedSequence(pool, self._scheduler.context)
            pages_of_all = [tuple(parts) for parts in held[: -(-len(tokens) // PAGE_TOKENS)]]
            sequence.adopt(tokens, pages_of_all)
            tree.insert(stack.key, sequence)
            sequence.release()
        finally:
            for page in (page for parts in held for page in parts):
                if page is not None:
                    pool.release(page)
        return tree.match(stack.key, tokens).length, error

    def _remember(self, stack: Stack, saved: SavedSequence, encoder: str) -> None:
        """Let an interrupted answer continue with its random numbers."""
        if state := resume.sampler_state(saved.resume):
            pending = resume.pending(saved.resume)
            ids = self._ids(saved, encoder, pending=pending)
            if len(ids) == len(saved.tokens) + len(pending):
                self._scheduler.remember(stack.key, ids, state)

    # --- saving ---------------------------------------------------------------------------------

    def set_budget(self, budget_bytes: int) -> None:
        """Disk space of all conversations together; 0: nothing is written any more."""
        self.evicted.set_budget(budget_bytes)

    def begin(self, request: int, conversation: str, stack: Stack, prompt: Sequence[int]) -> None:
        """A prompt is being processed: what is evicted of it may be written."""
        self.evicted.note(request, conversation, stack, prompt)

    def note(self, request: int, conversation: str, stack: Stack, tokens: list[int]) -> None:
        """An answer has ended: Save finds its tokens by its request."""
        self.evicted.note(request, conversation, stack, tokens)
        self._texts.pop(request, None)
        self._texts[request] = SavedText(conversation, stack, tokens)
        while len(self._texts) > _MOST_TEXTS:
            del self._texts[next(iter(self._texts))]

    def forget(self, answer: int) -> int:
        """Give up the cached pages of an answer's text; returns how many of its tokens are gone."""
        text = self._texts.pop(answer, None)
        return 0 if text is None else self._scheduler.tree.forget(text.stack.key, text.tokens)

    def prepare(
        self, request: Save, text: SavedText | None, checkpoint: Checkpoint
    ) -> Generator[None, None, None]:
        """Hash the picture encoder on a thread before `save`, if the text has images."""
        text = text or self._texts.get(request.answer)
        if text is not None and self.has_images(text.tokens):
            yield from _on_thread(lambda: self.encoder_key(checkpoint), checkpoint)

    def save(
        self, request: Save, handle: RequestHandle, text: SavedText | None = None
    ) -> SnapshotSaved | None:
        """Start writing a text's pages; None: the saver delivers the event when done.

        `text` None: that of the answer. Nothing is written for an answer that is not known, nor for
        one of another conversation. Hashes the picture encoder of a text with images, unless
        `prepare` has.

        Raises RequestError for more pages than the budget, SnapshotError for a picture encoder that
        has changed, and Cancelled.
        """
        self._saver.wait(handle.checkpoint, saves_only=True)
        self.evicted.set_budget(request.budget_bytes)
        if request.answer:
            self.evicted.name(request.answer, request.conversation)
        nothing = SnapshotSaved(handle.id, 0, 0, 0.0, 0)
        name = request.conversation
        text = text or self._texts.get(request.answer)
        if text is None or text.conversation not in ("", name):
            return nothing
        tree, pool, key = self._scheduler.tree, self._scheduler.pool, text.stack.key
        match = tree.match_to_save(key, text.tokens)
        tokens = text.tokens[: match.length]
        before = self._saved.get(name)
        if not tokens or (before and before[:2] == (text.tokens, key) and before[2].exists()):
            return nothing
        ids, images = _to_saved(self._model, self._encoder_files, text.tokens)
        held = [page for pages in match.pages for page in pages if page is not None]
        store.check_budget(sum(page.data.nbytes for page in held), request.budget_bytes)
        for page in held:
            pool.retain(page)
        captured = Capture(
            name,
            metadata_of(self._model, text.stack),
            ids[: match.length],
            [HeldPage(pool, pages) for pages in match.pages],
            resume.encoded(self._scheduler.interrupted(key, text.tokens), ids[match.length :]),
            images,
        )

        def saved(path: Path) -> None:
            self._saved[name] = text.tokens, key, path

        self._saver.save(
            handle.id,
            handle.deliver,
            captured,
            self._store,
            identify=lambda: self.identify(text.stack),
            budget_bytes=request.budget_bytes,
            saved=saved,
        )
        return None


def identify(
    files: ModelFiles, model: LoadedModel, stack: Stack, checkpoint: Checkpoint = lambda: None
) -> StateKey:
    """The key of the pages of a model with an adapter stack, by the hash of its files.

    Raises SnapshotError when they have changed since they were loaded.
    """
    if sha256 := files.sha256(checkpoint):
        return state_key(sha256, stack, model)
    raise SnapshotError(
        "The model's file has changed since it was loaded.", "Load the model again."
    )


def encoder_key(
    files: ModelFiles | None, model: LoadedModel, checkpoint: Checkpoint = lambda: None
) -> str:
    """The key of a picture encoder, at first use as `identify`; "": there is none.

    A hash over that of its file and how the rows of an image attend to each other. Raises
    SnapshotError when the file has changed since the model was loaded.
    """
    if files is None or model.sight is None:
        return ""
    if sha256 := files.sha256(checkpoint):
        return hashlib.sha256(f"{sha256} {model.sight.seeing.spans.name}".encode()).hexdigest()
    raise SnapshotError(
        "The file of the picture encoder has changed since the model was loaded.",
        "Load the model again.",
    )


def _has_images(tokens: Sequence[int], images: ImageRegistry | None) -> bool:
    return images is not None and max(tokens, default=0) >= images.vocabulary


def _to_saved(
    model: LoadedModel, encoder_files: ModelFiles | None, tokens: list[int]
) -> tuple[list[int], tuple[SavedImage, ...]]:
    """Ids and images of a text as files have them. Raises SnapshotError."""
    images = None if model.sight is None else model.sight.registry
    if images is None or not _has_images(tokens, images):
        return tokens, ()
    if not (encoder := encoder_key(encoder_files, model)):
        raise SnapshotError(
            "The picture encoder of this text is not known.", "Load the model again."
        )
    return image_ids.to_saved(tokens, images, encoder)


def state_key(model_sha256: str, stack: Stack, model: LoadedModel) -> StateKey:
    """The key of the pages of a model with an adapter stack."""
    layout = KVLayout(model.decoder.layer_states, storage_dtype(model.cache))
    return StateKey(
        *(model_sha256, stack.key, model.cache.value),
        *(layout.page_bytes, layout.name, model.computation),
    )


def metadata_of(model: LoadedModel, stack: Stack) -> dict[str, str]:
    """Facts of a sequence for messages: names of model and adapters."""
    adapters = [
        {"name": adapter.name, "sha256": adapter.sha256, "strength": strength}
        for adapter, strength in stack.entries
    ]
    return {
        "model": f"{model.name} · {model.format}" if model.format else model.name,
        "architecture": model.config.architecture,
        "adapters": json.dumps(adapters),
        "context": str(model.plan.context),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _on_thread(work: Callable[[], T], checkpoint: Checkpoint) -> Generator[None, None, T]:
    """Run work on a helper thread, yielding until it is done; the thread has ended afterwards."""
    task = BackgroundTask(work, "disk tier")
    try:
        yield from task.polled(checkpoint)
    finally:
        task.wait()
    return task.result()
