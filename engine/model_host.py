"""ModelHost: the loaded model with its scheduler, KV pages and adapters; runs commands against it.

The service creates one for each model it loads. Everything processed stays cached in a prefix tree
within a memory budget, so several conversations continue without processing them again; what the
budget does not hold is restored from disk, where SaveSnapshot has written it.

Adapters of the stack stay in memory, and so do the last few removed from it, so that switching one
back on is instant. All are freed with the model. A file that changed on disk is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from engine.chat.prompt import PromptBuilder
from engine.chat.template import answer_prefix
from engine.errors import OTHER_FAULT, AdapterError, ModelFileError, RequestError
from engine.host.background import BackgroundTask
from engine.host.device import resident_memory
from engine.inference.constraints.beginning import after_thoughts
from engine.inference.constraints.grammars import Grammars
from engine.inference.generate import Request
from engine.inference.speculative.drafters import Drafts, maker
from engine.inference.speculative.vocabulary import VocabularyMap
from engine.loading import identity
from engine.loading.identity import ModelFiles, Stamp
from engine.loading.library import data_folder, model_parts
from engine.loading.loader import LoadedModel, load
from engine.loading.measured import MeasuredFigures, measured_file
from engine.loading.memory import NO_PAGING
from engine.loading.metrics import read_metrics
from engine.loading.prefill_estimator import PrefillEstimator
from engine.lora import peft as lora_peft
from engine.lora import stack as lora
from engine.lora.stack import NO_ADAPTERS, Adapter, Stack
from engine.messages import (
    AdapterInfo,
    AdaptersSet,
    AdapterUse,
    CountTokens,
    DraftSet,
    Embed,
    Embedded,
    Event,
    Finished,
    Generate,
    LoadSnapshot,
    MetricsRead,
    ModelLoaded,
    PromptProgress,
    Rerank,
    Reranked,
    SaveSnapshot,
    SetAdapters,
    SetDraft,
    SnapshotLoaded,
    SnapshotSaved,
    TokensCounted,
)
from engine.snapshot.disk_tier import DiskTier
from engine.snapshot.folder import snapshots_size
from engine.snapshot.saver import Saver
from engine.snapshot.store import PageStore
from engine.state.pages import bytes_for
from kernels.kv_pages import KVLayout

T = TypeVar("T")
Checkpoint = Callable[[], None]
_SPARE_ADAPTERS = 4  # kept in memory though no longer in the stack
_SPARE_SHARE = 4  # of the memory left free by the plan, what KV pages may take beyond it: a fourth
_LENT_SHARE, _MOST_LENT = 4, 256 << 20  # of that, what evicted pages take while they are written


@dataclass(frozen=True, slots=True)
class _CachedAdapter:
    """An adapter in memory, with the stamps of its files from before they were read."""

    adapter: Adapter
    files: tuple[Stamp, ...]


class ModelHost:
    """Runs commands against the loaded model; used by the engine thread only."""

    def __init__(
        self, model: LoadedModel, files: tuple[Stamp, ...], store: PageStore, saver: Saver
    ) -> None:
        """`files` are the stamps of the model's files, taken before they were read."""
        self.model = model
        self._stack: Stack = NO_ADAPTERS
        self._uses: tuple[AdapterUse, ...] = ()
        self._adapters: dict[Path, _CachedAdapter] = {}  # least recently used first
        context = model.plan.context
        self._scheduler = model.new_scheduler()
        pool = self._scheduler.pool
        pool.budget_bytes, pool.most_lent_bytes = _page_budget(model, pool.layout)
        self._embedder = model.new_embedder(self._scheduler)
        self._ranker = model.new_ranker(self._scheduler) if model.decoder.ranking else None
        self._reading = 0  # commands whose texts are being read
        self._draft: Drafts | None = None
        self._draft_set = DraftSet(0, None)
        self._prompts = PromptBuilder(model.template, model.tokenizer, context)
        figures = MeasuredFigures(measured_file())
        self._prefill = PrefillEstimator(model, self._scheduler.runner, files, figures)
        paths, memory = model_parts(model.path), data_folder() / "hashes.json"
        identity_of = ModelFiles(paths, files, memory)
        self._disk = DiskTier(store, saver, self._scheduler, identity_of, model)

    @property
    def memory_bytes(self) -> int:
        """Memory that unloading frees: weights, KV pages and adapters."""
        adapters = sum(cached.adapter.size_bytes for cached in self._adapters.values())
        held = self.model.plan.weights_bytes + self._scheduler.pool.allocated_bytes
        return held + adapters + self._draft_set.memory_bytes

    def loaded(self, request: int) -> ModelLoaded:
        """The event that describes the model."""
        model = self.model
        paging = model.plan.paging or NO_PAGING
        return ModelLoaded(
            request=request,
            path=model.path,
            name=model.name,
            architecture=model.config.architecture,
            layout=model.layout,
            parameters=model.parameters,
            context=model.plan.context,
            file_bytes=model.file_bytes,
            memory_bytes=model.plan.total_bytes,
            kernels=model.backends,
            slow=model.slow,
            template=model.template.built_in,
            vocabulary=model.vocabulary,
            format=model.format,
            base=model.base,
            has_thinking_switch=model.template.has_thinking_switch,
            seconds=model.seconds,
            resident_bytes=resident_memory(),
            held_bytes=self.memory_bytes,
            cache=model.cache,
            sampling=model.sampling,
            paged_layers=len(paging.layers),
            paged_bytes=paging.pass_bytes,
            paged_seconds=paging.pass_seconds,
        )

    @property
    def grammars(self) -> Grammars:
        """The constraints compiled for the model's vocabulary."""
        return self._scheduler.grammars

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being generated or waits, or texts are being read."""
        return self._scheduler.is_busy or self._reading > 0

    def step(self) -> None:
        """Run one pass over the answers in progress."""
        self._scheduler.step()

    def stop(self, error: BaseException) -> None:
        """End every answer in progress with an error."""
        self._scheduler.stop(error)

    def close(self) -> None:
        """End the thread that drafts, if there is one; no answer is in progress."""
        if self._draft is not None:
            self._draft.close()

    def drop_evicted(self) -> None:
        """Give up evicted pages that are not on the disk yet."""
        self._disk.evicted.drop()

    # --- answering ------------------------------------------------------------------------------

    def generate(
        self,
        command: Generate,
        checkpoint: Checkpoint,
        cancelled: Callable[[], bool],
        arrived: float,
    ) -> Generator[Event | None, None, None]:
        """Generate answers, reusing the longest cached or saved prefix of the conversation.

        `arrived` is the `perf_counter` time of the command.

        Yields None when there is no event now: `step` makes the next ones. Closing it cancels them.
        """
        self._refuse_without_answers()
        is_abandoned = False
        stack = self._stack_of(command.adapters, checkpoint)
        if command.budget_bytes is not None:
            self._disk.set_budget(command.budget_bytes)
        build = partial(self._prompts.answer, command.turns, command.policy, command.thinking)
        prompt = yield from _in_background(build, "prompt", checkpoint)
        if len(prompt.ids) < self._scheduler.context:
            yield from self._disk.restore(stack, prompt.ids, "", checkpoint)
        opening = "" if prompt.continued else answer_prefix(prompt.text)
        begun = command.turns[-1].text if prompt.continued else opening
        constraint, begun = after_thoughts(command.constraint, begun)
        if constraint is not None:
            compiling = partial(self._scheduler.grammars.compile, constraint)
            yield from _in_background(compiling, "grammar", checkpoint)
        request = Request(
            self._scheduler.spelled_as_cached(stack, prompt.ids),
            command.sampling,
            number=command.request,
            max_tokens=command.max_tokens,
            stop=(*command.stop, *self.model.template.stop),
            opening=opening,
            constraint=constraint,
            begun=begun,
            logprobs=command.logprobs,
            arrived=arrived,
            count=command.answers,
            stack=stack,
            background=command.background,
            drafter=maker(command.drafts, self._draft),
            cancelled=lambda: is_abandoned or cancelled(),
        )
        ticket = self._scheduler.submit(request)
        self._disk.evicted.note(command.request, command.conversation, stack, request.prompt)
        timer = self._prefill.timer()
        try:
            while True:
                while ticket.events:
                    event = ticket.events.popleft()
                    if isinstance(event, PromptProgress):
                        timer.on_progress(event.done_tokens, event.total_tokens)
                        event = replace(event, dropped_turns=prompt.dropped_turns)
                    elif isinstance(event, Finished):
                        tokens = [*request.prompt, *ticket.answers[event.answer]]
                        self._disk.note(command.request, command.conversation, stack, tokens)
                        is_last = ticket.open_answers == 0 and not ticket.events
                        event = replace(event, last=is_last)
                    yield event
                if ticket.error is not None:
                    raise ticket.error
                if ticket.done:
                    break
                yield None
        finally:
            is_abandoned = True  # nobody reads the events any more: see `close` of generators
        if ticket.was_alone:
            self._prefill.learn(stack, timer)

    def _refuse_without_answers(self) -> None:
        if self.model.decoder.is_encoder or self.model.decoder.ranking is not None:
            raise RequestError(
                f"The model {self.model.name} only makes embeddings or scores documents; it cannot chat.",
                "Load a model that was made to chat.",
            )

    def metrics(
        self, request: int, checkpoint: Checkpoint
    ) -> Generator[MetricsRead | None, None, None]:
        """The metrics since the model was loaded; a slow disk holds up no answer."""
        size = yield from _in_background(snapshots_size, "disk size", checkpoint)
        yield read_metrics(self.model, self._scheduler, request, size)

    def count_tokens(self, command: CountTokens, checkpoint: Checkpoint) -> TokensCounted:
        """Count the tokens of a text."""
        tokenizer, text = self.model.tokenizer, command.text
        task = BackgroundTask(lambda: len(tokenizer.encode(text, add_special=False)), "count")
        return TokensCounted(command.request, task.result(checkpoint))

    def embed(
        self, command: Embed, checkpoint: Checkpoint
    ) -> Generator[Embedded | None, None, None]:
        """Compute the vectors of texts; yields None between passes, when answers go on."""
        stack = self._stack
        encode = partial(self._embedder.tokens, command.texts)
        texts = yield from _in_background(encode, "texts", checkpoint)
        pooling = command.pooling or self.model.pooling
        work = self._embedder.vectors(texts, pooling, stack, checkpoint)
        vectors = yield from self._read(work)
        yield Embedded(command.request, tuple(vectors), sum(map(len, texts)), pooling)

    def rerank(
        self, command: Rerank, checkpoint: Checkpoint
    ) -> Generator[Reranked | None, None, None]:
        """Score documents; yields None between passes, when answers go on."""
        stack, ranker = self._stack, self._ranker or self.model.new_ranker()
        encode = partial(ranker.pairs, command.query, command.documents, self.model.rank_template)
        pairs = yield from _in_background(encode, "documents", checkpoint)
        scores = yield from self._read(ranker.scores(pairs, stack, checkpoint))
        yield Reranked(command.request, tuple(scores), sum(map(len, pairs)))

    def _read(self, work: Generator[None, None, T]) -> Generator[None, None, T]:
        """Run work between the passes of answers."""
        self._reading += 1
        try:
            return (yield from work)
        finally:
            self._reading -= 1

    # --- adapters -------------------------------------------------------------------------------

    def set_adapters(self, command: SetAdapters, checkpoint: Checkpoint) -> AdaptersSet:
        """Replace the adapter stack; on any error, and when cancelled, it stays unchanged."""
        stack, loaded = self._load_stack(command.adapters, checkpoint)
        changed = stack.key != self._stack.key
        self._stack = stack
        self._cache_adapters(loaded)
        self._uses = command.adapters
        return self.adapters(command.request, changed=changed)

    def adapters(self, request: int, *, changed: bool = False) -> AdaptersSet:
        """The event that describes the current adapter stack."""
        entries = zip(self._uses, self._stack.entries, strict=True)
        infos = tuple(_adapter_info(use, adapter) for use, (adapter, _) in entries)
        return AdaptersSet(request, infos, changed)

    def _stack_of(self, uses: Sequence[AdapterUse] | None, checkpoint: Checkpoint) -> Stack:
        """The stack of these adapters, which stay in memory for a while; None: the current one."""
        if uses is None:
            return self._stack
        stack, loaded = self._load_stack(uses, checkpoint)
        current = {use.path: self._adapters[use.path] for use in self._uses}
        self._cache_adapters(current | loaded)
        return stack

    def _load_stack(
        self, uses: Sequence[AdapterUse], checkpoint: Checkpoint
    ) -> tuple[Stack, dict[Path, _CachedAdapter]]:
        """The stack of these adapters, and the adapters by path."""
        paths = dict.fromkeys(use.path for use in uses)
        loaded = {path: self._adapter(path, checkpoint) for path in paths}
        return Stack((loaded[use.path].adapter, use.strength) for use in uses), loaded

    def _adapter(self, path: Path, checkpoint: Checkpoint) -> _CachedAdapter:
        """The adapter from memory if its files are unchanged, else from disk."""
        files = _adapter_files(path)
        known = self._adapters.get(path)
        if known is not None and files and known.files == files:
            return known
        checkpoint()
        try:
            return _CachedAdapter(
                lora.load_adapter(path, self.model.decoder.base, checkpoint), files
            )
        except (AdapterError, ModelFileError) as error:
            if path.name in str(error):
                raise
            # The stack may have several adapters: name the faulty one.
            raise AdapterError(f"{path.name}: {error}", error.remedy, error.fault) from error

    def _cache_adapters(self, used: dict[Path, _CachedAdapter]) -> None:
        """Keep `used` as the most recent adapters; drop all but a few of the others."""
        spare = [path for path in self._adapters if path not in used]
        for path in spare[: max(len(spare) - _SPARE_ADAPTERS, 0)]:
            del self._adapters[path]
        for path in used:
            self._adapters.pop(path, None)
        self._adapters |= used

    # --- draft model ----------------------------------------------------------------------------

    def set_draft(self, command: SetDraft, checkpoint: Checkpoint) -> DraftSet:
        """Load a draft model in place of another; on any error, and when cancelled, there is none."""
        self.close()
        self._draft, self._draft_set = None, DraftSet(0, None)
        if command.path is not None:
            plan, placement = self.model.plan, self.model.decoder.placement
            model = load(
                command.path,
                backend=placement.backends[0].name,
                context=plan.context,
                threads=None,
                cache=self.model.cache,
                checkpoint=checkpoint,
            )
            checkpoint()
            vocabulary = VocabularyMap(self.model.tokenizer, model.tokenizer)
            self._draft = Drafts(model.new_runner, plan.context, vocabulary)
            size = model.plan.total_bytes
            self._draft_set = DraftSet(0, model.path, model.name, size)
        return self.draft(command.request)

    def draft(self, request: int) -> DraftSet:
        """The event that names the draft model."""
        return replace(self._draft_set, request=request)

    # --- cached conversations on disk -----------------------------------------------------------

    def load_snapshot(
        self, command: LoadSnapshot, checkpoint: Checkpoint
    ) -> Generator[SnapshotLoaded | None, None, None]:
        """Restore the longest saved prefix of a conversation and estimate the remaining prefill."""
        self._refuse_without_answers()
        started = time.perf_counter()
        stack = self._stack_of(command.adapters, checkpoint)
        build = partial(self._prompts.conversation, command.turns, command.policy)
        prompt = yield from _in_background(build, "prompt", checkpoint)
        found = yield from self._disk.restore(stack, prompt.ids, command.conversation, checkpoint)
        seconds = time.perf_counter() - started
        ids = self._scheduler.spelled_as_cached(stack, prompt.ids)
        ready, total = self._scheduler.tree.match(stack.key, ids).length, len(ids)
        checkpoint()
        yield SnapshotLoaded(
            command.request,
            found.tokens,
            ready,
            total,
            seconds,
            self._prefill.seconds(stack, ready, total, checkpoint)
            if total <= self._scheduler.context
            else 0.0,
            str(found.refused or ""),
            prompt.dropped_turns,
            found.refused.fault if found.refused else OTHER_FAULT,
        )

    def save_snapshot(self, command: SaveSnapshot, checkpoint: Checkpoint) -> SnapshotSaved | None:
        """Start writing a conversation's KV pages; None: the saver delivers the event when done."""
        return self._disk.save(command, checkpoint)


def _adapter_files(path: Path) -> tuple[Stamp, ...]:
    """The stamps of an adapter's files; empty if they cannot be read."""
    with suppress(OSError, AdapterError):
        folder = lora_peft.find_folder(path)
        return identity.stamps(
            [path] if folder is None else [folder / lora_peft.CONFIG, folder / lora_peft.TENSORS]
        )
    return ()


def _adapter_info(use: AdapterUse, adapter: Adapter) -> AdapterInfo:
    return AdapterInfo(
        path=use.path,
        name=adapter.name,
        sha256=adapter.sha256,
        kind=adapter.kind,
        rank=adapter.rank,
        targets=len(adapter.pairs),
        size_bytes=adapter.size_bytes,
        strength=use.strength,
    )


def _page_budget(model: LoadedModel, layout: KVLayout) -> tuple[int, int]:
    """Bytes of KV pages: those of a full context and some of the memory that is left; and of pages
    that are evicted and being written, two of each group at least.
    """
    plan = model.plan
    # Of the device with the least: what several devices have left together may be needed on one.
    left = plan.left_bytes
    spare, pair = left // _SPARE_SHARE, 2 * layout.bytes_per_page
    lent = min(spare // _LENT_SHARE, _MOST_LENT)
    return bytes_for(layout, plan.context) + pair + spare - lent, pair + lent


def _in_background(
    work: Callable[[], T], name: str, checkpoint: Checkpoint
) -> Generator[None, None, T]:
    """Run work on a helper thread: tokenizing a very long prompt takes seconds."""
    task = BackgroundTask(work, name)
    while not task.finished:
        checkpoint()
        yield None
    return task.result(checkpoint)
