"""ModelSession: the loaded model with its scheduler, KV pages and adapters; runs requests against it.

The loop (`engine.core.loop`) makes one for each model it loads. Everything processed stays cached in a prefix tree
within a memory budget, so several conversations continue without processing them again; what the
budget does not hold is restored from disk, where Save or an eviction has written it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from engine.adapter_cache import AdapterCache
from engine.adapters.stack import Stack
from engine.answerer import Answerer
from engine.core.cancellation import Awaited
from engine.core.failover_state import FailoverState, without_frames
from engine.core.handle import RequestHandle
from engine.core.scheduler import Scheduler
from engine.errors import (
    OTHER_FAULT,
    AdapterError,
    EngineError,
    RequestError,
    SnapshotError,
)
from engine.frontend import texts
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.prompt import PromptBuilder
from engine.loading.device_choice import AUTOMATIC
from engine.loading.facts import model_facts
from engine.loading.identity import ModelFiles, Stamp
from engine.loading.library import data_folder, model_parts
from engine.loading.loader import LoadedModel, load
from engine.loading.measured import MeasuredFigures, measured_file
from engine.loading.memory import DeviceMemory
from engine.loading.metrics import read_metrics
from engine.loading.prefill_estimator import PrefillEstimator
from engine.loading.sight import pictures_of
from engine.machine.background import in_background
from engine.messages import (
    AdaptersSet,
    AdapterUse,
    ApplyTemplate,
    Chat,
    Complete,
    ComputeLogits,
    ContextPolicy,
    DraftSet,
    Event,
    Forget,
    MeasureSpeed,
    MetricsRead,
    ModelLoaded,
    Restore,
    Save,
    Score,
    SetAdapters,
    SetDraft,
    SnapshotLoaded,
    SnapshotSaved,
    SpeedMeasured,
    TemplateApplied,
    TextForgotten,
)
from engine.speculative.draft_model import DraftModel
from engine.speculative.vocabulary import VocabularyMap
from engine.speed import measured
from engine.state.disk.disk_tier import DiskTier, SavedText
from engine.state.disk.folder import snapshots_size
from engine.state.disk.saver import Saver
from engine.state.disk.store import PageStore
from engine.state.pages import bytes_for
from engine.text_reader import GivenTexts, TextReader
from engine.vision.sight import Sight
from kernels.states.kv_pages import KVLayout

log = logging.getLogger(__name__)

T = TypeVar("T")
Checkpoint = Callable[[], None]
_SPARE_SHARE = 4  # of the memory left free by the plan, what KV pages may take beyond it: a fourth
_LENT_SHARE, _MOST_LENT = 4, 256 << 20  # of that, what evicted pages take while they are written


def _nothing(scheduler: Scheduler | None) -> None:
    """Nobody does anything during a pass."""


class ModelSession:
    """Runs requests against the loaded model; used by the engine thread only."""

    def __init__(
        self,
        model: LoadedModel,
        files: tuple[Stamp, ...],
        store: PageStore,
        saver: Saver,
        between_layers: Callable[[Scheduler | None], None] = _nothing,
    ) -> None:
        """`files` are the stamps of the model's files, taken before they were read.

        `between_layers` is called during passes: of answers with their scheduler, of given texts with
        None.
        """
        self.files, self._store, self._saver = files, store, saver
        self._between_layers = between_layers
        self._draft: DraftModel | None = None
        self._draft_set = DraftSet(0, None)
        self._draft_devices: tuple[DeviceMemory, ...] = ()  # beside the processor
        # Of the adapters while the model is moved: their files by hash, and the current ones.
        self._paths: dict[str, Path] = {}
        self._uses: tuple[AdapterUse, ...] = ()
        self._sight: Sight | None = None  # likewise, and of its encoder
        self._encoder_files: tuple[Stamp, ...] = ()
        self._answerer = Answerer()
        self._open(model)

    def _open(self, model: LoadedModel) -> None:
        """Use a model, with no adapters and nothing cached."""
        self.model = model
        self._adapters = AdapterCache(model.decoder.base)
        context = model.plan.context
        self._scheduler = model.new_scheduler()
        self._scheduler.between_layers = self._between_layers
        pool = self._scheduler.pool
        pool.budget_bytes, pool.most_lent_bytes = _page_budget(
            model, pool.layout, model.plan.left_bytes
        )
        self._reader = TextReader(model, self._scheduler)
        self._pictures = pictures_of(model.sight, model.encoder)
        self._prompts = PromptBuilder(
            model.template, model.tokenizer, context, self._pictures, model.blind
        )
        figures = MeasuredFigures(measured_file())
        self._prefill = PrefillEstimator(model, self._scheduler.runner, self.files, figures)
        paths, memory = model_parts(model.path), data_folder() / "hashes.json"
        identity_of = ModelFiles(paths, self.files, memory)
        paths = [Path(one.path) for one in model.encoder_files]
        encoder_of = ModelFiles(paths, model.encoder_files, memory, read_again=True)
        self._disk = DiskTier(
            self._store,
            self._saver,
            self._scheduler,
            identity_of,
            model,
            encoder_of if paths else None,
        )
        self._answerer.open(model, self._scheduler, self._prompts, self._disk, self._prefill)

    def close(self) -> None:
        """Free what belongs to no memory: what reads picture files."""
        if self._pictures is not None:
            self._pictures.close()

    def prepare(self) -> BaseException | None:
        """Compile and capture what the device needs for the first token; returns its fault."""
        try:
            self._scheduler.runner.prepare()
        except Exception as fault:
            if not self.can_move(fault):
                raise
            return without_frames(fault)
        return None

    # --- a device that fails --------------------------------------------------------------------

    @property
    def device_fault(self) -> BaseException | None:
        """What a device raised in the last pass, if the answers can go on elsewhere."""
        return self._scheduler.device_fault

    def can_move(self, fault: BaseException) -> bool:
        """Whether a fault may be one of a device beside the processor."""
        return self._scheduler.runner.is_of_device(fault)

    def leave_device(self) -> FailoverState:
        """Free the model and all that is on its device; only `go_on` may be called then."""
        self._paths, self._uses = self._adapters.paths, self._adapters.uses
        with suppress(Exception):  # of the device
            self._disk.evicted.drop()
        with suppress(Exception):  # it may still read pages
            self._saver.wait(_no_checkpoint)
        self._draft = None
        suspended = self._scheduler.leave_device()
        self._answerer.leave()
        self.close()
        self._sight, self._encoder_files = self.model.sight, self.model.encoder_files
        del self.model, self._scheduler, self._reader, self._prefill, self._disk, self._adapters
        return suspended

    def go_on(self, model: LoadedModel, suspended: FailoverState) -> None:
        """Go on with the model as it was loaded elsewhere, its adapters and its draft model."""
        draft = self._draft_set.path
        self._draft_set, self._draft_devices = DraftSet(0, None), ()
        before, self._sight = self._sight, None
        if before is not None and model.sight is not None:
            model.sight.registry = before.registry  # running answers have ids of its images
        elif before is not None:
            model = replace(model, sight=before)
        if before is not None:  # who may have read its file before it changed
            model = replace(model, encoder_files=self._encoder_files)
        self._open(model)
        with suppress(EngineError):
            self._adapters.set(self._uses, _no_checkpoint)
        if draft is not None:
            with suppress(EngineError):
                self._load_draft(SetDraft(draft), _no_checkpoint)
        self._scheduler.take_over(suspended, self._moved)

    def _moved(self, stack: Stack) -> Stack:
        """The same adapters for the model as it is now."""
        uses = [
            AdapterUse(self._paths.get(one.sha256, Path(one.name)), strength)
            for one, strength in stack.entries
        ]
        moved = self._adapters.stack_of(uses, _no_checkpoint)
        for (before, _), (after, _) in zip(stack.entries, moved.entries, strict=True):
            if before.sha256 != after.sha256:
                raise AdapterError(
                    f"The adapter {before.name} has changed since the answer began.",
                    "Ask again, with the adapter as it is now.",
                )
        return moved

    @property
    def memory_bytes(self) -> int:
        """Memory of the computer that unloading frees: weights, KV pages and adapters.

        The memory of a GPU is not counted.
        """
        if devices := self.model.plan.devices:
            return devices[0].weights_bytes + self._draft_set.memory_bytes
        held = self.model.plan.weights_bytes + self._scheduler.pool.allocated_bytes
        return held + self._adapters.size_bytes + self._draft_set.memory_bytes

    @property
    def planned_bytes(self) -> int:
        """Memory of the computer that the model may come to take with a full context."""
        plan = self.model.plan
        total = plan.devices[0].total_bytes if plan.devices else plan.total_bytes
        return total + self._adapters.size_bytes + self._draft_set.memory_bytes

    @property
    def planned_on_devices(self) -> dict[str, int]:
        """The same of each device with memory of its own, by torch's name."""
        devices = (*self.model.plan.devices[1:], *self._draft_devices)
        return {
            name: sum(one.total_bytes for one in devices if one.device == name)
            for name in {one.device for one in devices}
        }

    def set_spare(self, left_bytes: int) -> None:
        """Set its part of the memory that plans leave, for the KV pages of texts that are cached."""
        pool = self._scheduler.pool
        pool.budget_bytes, pool.most_lent_bytes = _page_budget(self.model, pool.layout, left_bytes)
        self._scheduler.tree.evict(0)

    def loaded(self, request: int, *, beside: bool = False) -> ModelLoaded:
        """The event that describes the model."""
        return model_facts(self.model, request, self.memory_bytes, beside=beside)

    @property
    def grammars(self) -> Grammars:
        """The constraints compiled for the model's vocabulary."""
        return self._scheduler.grammars

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being generated or waits, or texts are being read."""
        return self._scheduler.is_busy

    def set_beside(self, *, is_beside: bool) -> None:
        """Whether another model takes turns with this one: passes are short then."""
        self._scheduler.is_beside = is_beside

    def drop_cancelled(self, answering: Scheduler | None) -> None:
        """End the answers that were cancelled, unless they are in a pass: that of `answering`."""
        if self._scheduler is not answering:
            self._scheduler.drop_cancelled()

    def step(self, arriving: Callable[[], bool]) -> None:
        """Run one pass over the answers in progress; see `Scheduler.step`."""
        self._scheduler.step(arriving, is_expected=self._answerer.preparing > 0)

    def stop(self, error: BaseException) -> None:
        """End every answer in progress with an error."""
        self._scheduler.stop(error)

    def drop_evicted(self) -> None:
        """Give up evicted pages that are not on the disk yet."""
        self._disk.evicted.drop()

    # --- answering ------------------------------------------------------------------------------

    def generate(
        self, wanted: Chat | Complete, handle: RequestHandle
    ) -> Generator[Awaited | None, None, None]:
        """Generate answers, reusing the longest cached or saved prefix of the conversation.

        Their events are delivered by `step`, where they arise; yields None until they have ended.
        Closing it cancels them.
        """
        self._refuse_without_answers()
        stack = self._adapters.stack_of(wanted.adapters, handle.checkpoint)
        return self._answerer.generate(wanted, handle, stack, self._draft)

    def _refuse_without_answers(self) -> None:
        if self.model.decoder.is_encoder or self.model.decoder.ranking is not None:
            raise RequestError(
                f"The model {self.model.name} only makes embeddings or scores documents; it cannot chat.",
                "Load a model that was made to chat.",
            )

    def metrics(self, handle: RequestHandle) -> Generator[MetricsRead | None, None, None]:
        """The metrics since the model was loaded; a slow disk holds up no answer."""
        size = yield from in_background(snapshots_size, "disk size", handle.checkpoint)
        yield read_metrics(self.model, self._scheduler, handle.id, size)

    def read_text(
        self, request: texts.TextRequest, handle: RequestHandle
    ) -> Generator[Event | None, None, None]:
        """Answer a request that only needs the vocabulary or the template."""
        if isinstance(request, ApplyTemplate) and request.measures_cache:
            yield (yield from self._measured(request, handle))
            return
        known = self.model.tokenizer, self._prompts
        work = partial(texts.answered, request, handle.id, *known, lambda: handle.is_cancelled)
        yield (yield from in_background(work, "text", handle.checkpoint))

    def _measured(
        self, request: ApplyTemplate, handle: RequestHandle
    ) -> Generator[None, None, TemplateApplied]:
        """A prompt, and how much of it is cached."""
        self._refuse_without_answers()
        build = partial(texts.written, request, self._prompts, lambda: handle.is_cancelled)
        prompt = yield from in_background(build, "text", handle.checkpoint)
        total = len(prompt.ids)
        if total > self._scheduler.context:
            return texts.applied(handle.id, prompt)
        stack = self._adapters.stack_of(request.adapters, handle.checkpoint)
        cached = yield from self._disk.cached_length(stack, prompt.ids, handle.checkpoint)
        cached = min(cached, total - 1)  # the last token is always read
        seconds = self._prefill.seconds(stack, cached, total, handle.checkpoint)
        return texts.applied(handle.id, prompt, cached, seconds)

    def read_given(
        self, request: GivenTexts, handle: RequestHandle
    ) -> Generator[Event | Awaited | None, None, None]:
        """Answer a request that has the model read given texts; yields what it waits for."""
        has_logits = not self.model.decoder.is_encoder  # also a model that scores documents
        if isinstance(request, Score) or (isinstance(request, ComputeLogits) and not has_logits):
            self._refuse_without_answers()
        return self._reader.read(request, handle, self._stack_of(request, handle))

    def measure_speed(
        self, request: MeasureSpeed, handle: RequestHandle
    ) -> Generator[SpeedMeasured | None, None, None]:
        """Measure how fast the model is; nothing else is running."""
        self._refuse_without_answers()
        stack = self._stack_of(request, handle)
        return measured(self.model, request, handle.id, stack, handle.checkpoint)

    def _stack_of(self, request: GivenTexts | MeasureSpeed, handle: RequestHandle) -> Stack:
        """The adapters that a request names, or the current ones."""
        return self._adapters.stack_of(request.adapters, handle.checkpoint)

    # --- adapters -------------------------------------------------------------------------------

    def set_adapters(self, request: SetAdapters, handle: RequestHandle) -> AdaptersSet:
        """Replace the adapter stack; on any error, and when cancelled, it stays unchanged."""
        changed = self._adapters.set(request.adapters, handle.checkpoint)
        return self.adapters(handle.id, changed=changed)

    def adapters(self, request: int, *, changed: bool = False) -> AdaptersSet:
        """The event that describes the current adapter stack."""
        return AdaptersSet(request, self._adapters.infos(), changed)

    # --- draft model ----------------------------------------------------------------------------

    def set_draft(self, request: SetDraft, number: int, checkpoint: Checkpoint) -> DraftSet:
        """Load a draft model in place of another; on any error, and when cancelled, there is none."""
        self._load_draft(request, checkpoint)
        return self.draft(number)

    def _load_draft(self, request: SetDraft, checkpoint: Checkpoint) -> None:
        self._draft, self._draft_set, self._draft_devices = None, DraftSet(0, None), ()
        if request.path is not None:
            plan, placement = self.model.plan, self.model.decoder.placement
            model = load(
                request.path,
                device=request.device or AUTOMATIC,
                backend=placement.backends[0].name if request.device is None else "",
                context=plan.context,
                threads=None,
                cache=self.model.cache,
                checkpoint=checkpoint,
            )
            checkpoint()
            vocabulary = VocabularyMap(self.model.tokenizer, model.tokenizer)
            self._draft = DraftModel(model.new_runner(), plan.context, vocabulary)
            size = model.plan.total_bytes
            self._draft_set = DraftSet(0, model.path, model.name, size)
            self._draft_devices = model.plan.devices[1:]

    def draft(self, request: int) -> DraftSet:
        """The event that names the draft model."""
        return replace(self._draft_set, request=request)

    # --- cached conversations on disk -----------------------------------------------------------

    def load_snapshot(
        self, request: Restore, handle: RequestHandle
    ) -> Generator[SnapshotLoaded | None, None, None]:
        """Restore the longest saved prefix of a conversation and estimate the remaining prefill."""
        self._refuse_without_answers()
        started = time.perf_counter()
        stack = self._adapters.stack_of(request.adapters, handle.checkpoint)
        fresh: Sequence[int]
        refused: SnapshotError | None = None
        dropped, is_text = 0, not request.turns
        if not is_text:
            write = partial(self._prompts.conversation, cancelled=lambda: handle.is_cancelled)
            build = partial(write, request.turns, request.policy, tools=request.tools)
            prompt = yield from in_background(build, "prompt", handle.checkpoint)
            fresh, dropped = prompt.ids, prompt.dropped_turns
        elif request.text:
            encode = partial(self.model.tokenizer.encode, request.text)
            fresh = yield from in_background(encode, "prompt", handle.checkpoint)
        else:
            try:
                fresh = yield from self._disk.saved_text(
                    stack, request.conversation, handle.checkpoint
                )
            except SnapshotError as error:
                fresh, refused = (), error
        found = yield from self._disk.restore(stack, fresh, request.conversation, handle.checkpoint)
        refused = refused or found.refused
        seconds = time.perf_counter() - started
        ids = self._scheduler.spelled_as_cached(stack, fresh)
        ready, total = self._scheduler.tree.match(stack.key, ids).length, len(ids)
        handle.checkpoint()
        yield SnapshotLoaded(
            handle.id,
            found.tokens,
            ready,
            total,
            seconds,
            self._prefill.seconds(stack, ready, total, handle.checkpoint)
            if total <= self._scheduler.context
            else 0.0,
            str(refused or ""),
            dropped,
            refused.fault if refused else OTHER_FAULT,
            tuple(ids) if is_text else (),
        )

    def forget(self, request: Forget, handle: RequestHandle) -> TextForgotten:
        """Give up the cached pages of an answer's text."""
        return TextForgotten(handle.id, self._disk.forget(request.answer))

    def save_snapshot(
        self, request: Save, handle: RequestHandle
    ) -> Generator[SnapshotSaved | None, None, None]:
        """Start writing the KV pages of a text; without an event the saver delivers it when done."""
        text: SavedText | None = None
        if not request.answer:
            if not request.turns:
                raise RequestError(
                    "It is not said which text is to be saved.",
                    "Name an answer, or give its turns.",
                )
            stack = self._adapters.stack_of(request.adapters, handle.checkpoint)
            write = partial(self._prompts.conversation, cancelled=lambda: handle.is_cancelled)
            build = partial(write, request.turns, ContextPolicy.STOP)
            prompt = yield from in_background(build, "prompt", handle.checkpoint)
            ids = self._scheduler.spelled_as_cached(stack, prompt.ids)
            text = SavedText(request.conversation, stack, ids)
        yield from self._disk.prepare(request, text, handle.checkpoint)
        if (saved := self._disk.save(request, handle, text)) is not None:
            yield saved


def _no_checkpoint() -> None:
    """A checkpoint of work that is not cancelled."""


def _page_budget(model: LoadedModel, layout: KVLayout, left_bytes: int) -> tuple[int, int]:
    """Bytes of KV pages: those of a full context and some of the memory that is left; and of pages
    that are evicted and being written, two of each group at least.
    """
    plan = model.plan
    # Of the device with the least: what several devices have left together may be needed on one.
    spare, pair = left_bytes // _SPARE_SHARE, 2 * layout.bytes_per_page
    lent = min(spare // _LENT_SHARE, _MOST_LENT)
    return bytes_for(layout, plan.context) + pair + spare - lent, pair + lent
