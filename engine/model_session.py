"""ModelSession: the loaded model with its scheduler, KV pages and adapters; runs requests against it.

The service creates one for each model it loads. Everything processed stays cached in a prefix tree
within a memory budget, so several conversations continue without processing them again; what the
budget does not hold is restored from disk, where Save has written it.
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
from engine.core.cancellation import Awaited
from engine.core.failover_state import FailoverState, without_frames
from engine.core.handle import RequestHandle
from engine.core.prompt_scorer import PromptScorer
from engine.core.request import AnswerEvent, AnswerRequest
from engine.errors import (
    OTHER_FAULT,
    AdapterError,
    Cancelled,
    EngineError,
    RequestError,
)
from engine.frontend import texts
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.refusal import RefusedConstraint
from engine.frontend.constraints.resume_matcher import after_thoughts
from engine.frontend.prompt import PromptBuilder
from engine.frontend.reasoning_budget import ThoughtPlan
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.frontend.tool_formats.formats import ToolFormat
from engine.frontend.tool_formats.grammar import relaxed, tool_constraint
from engine.frontend.tool_formats.stage import ToolCallEvents
from engine.loading.device_choice import AUTOMATIC
from engine.loading.identity import ModelFiles, Stamp
from engine.loading.library import data_folder, model_parts
from engine.loading.loader import LoadedModel, load
from engine.loading.measured import MeasuredFigures, measured_file
from engine.loading.memory import NO_PAGING
from engine.loading.metrics import read_metrics
from engine.loading.prefill_estimator import PrefillEstimator, PrefillTimer
from engine.machine.background import BackgroundTask
from engine.machine.device import resident_memory
from engine.messages import (
    AdaptersSet,
    AdapterUse,
    Chat,
    Complete,
    Constraint,
    ConstraintKind,
    ContextPolicy,
    DraftSet,
    Embed,
    Embedded,
    Event,
    MetricsRead,
    ModelLoaded,
    PromptProgress,
    Rerank,
    Reranked,
    Restore,
    Save,
    Score,
    Scored,
    SetAdapters,
    SetDraft,
    SnapshotLoaded,
    SnapshotSaved,
    ToolChoice,
)
from engine.messages.reasoning_markers import resolved_thinking
from engine.speculative.draft_registry import Drafts, maker
from engine.speculative.vocabulary import VocabularyMap
from engine.state.disk.disk_tier import DiskTier, SavedText
from engine.state.disk.folder import snapshots_size
from engine.state.disk.saver import Saver
from engine.state.disk.store import PageStore
from engine.state.pages import bytes_for
from kernels.kv_pages import KVLayout

log = logging.getLogger(__name__)

T = TypeVar("T")
Checkpoint = Callable[[], None]
_SPARE_SHARE = 4  # of the memory left free by the plan, what KV pages may take beyond it: a fourth
_LENT_SHARE, _MOST_LENT = 4, 256 << 20  # of that, what evicted pages take while they are written


class ModelSession:
    """Runs requests against the loaded model; used by the engine thread only."""

    def __init__(
        self, model: LoadedModel, files: tuple[Stamp, ...], store: PageStore, saver: Saver
    ) -> None:
        """`files` are the stamps of the model's files, taken before they were read."""
        self.files, self._store, self._saver = files, store, saver
        self._draft: Drafts | None = None
        self._draft_set = DraftSet(0, None)
        self._reading = 0  # requests whose texts are being read
        self._preparing = 0  # answers whose prompts are being built
        # Of the adapters while the model is moved: their files by hash, and the current ones.
        self._paths: dict[str, Path] = {}
        self._uses: tuple[AdapterUse, ...] = ()
        self._open(model)

    def _open(self, model: LoadedModel) -> None:
        """Use a model, with no adapters and nothing cached."""
        self.model = model
        self._adapters = AdapterCache(model.decoder.base)
        context = model.plan.context
        self._scheduler = model.new_scheduler()
        pool = self._scheduler.pool
        pool.budget_bytes, pool.most_lent_bytes = _page_budget(
            model, pool.layout, model.plan.left_bytes
        )
        self._embedder = model.new_embedder(self._scheduler)
        self._ranker = model.new_ranker(self._scheduler) if model.decoder.ranking else None
        self._prompts = PromptBuilder(model.template, model.tokenizer, context)
        figures = MeasuredFigures(measured_file())
        self._prefill = PrefillEstimator(model, self._scheduler.runner, self.files, figures)
        paths, memory = model_parts(model.path), data_folder() / "hashes.json"
        identity_of = ModelFiles(paths, self.files, memory)
        self._disk = DiskTier(self._store, self._saver, self._scheduler, identity_of, model)

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
        with suppress(Exception):
            self.close()
        self._draft = None
        suspended = self._scheduler.leave_device()
        del self.model, self._scheduler, self._embedder, self._ranker, self._prefill, self._disk
        del self._adapters
        return suspended

    def go_on(self, model: LoadedModel, suspended: FailoverState) -> None:
        """Go on with the model as it was loaded elsewhere, its adapters and its draft model."""
        draft, self._draft_set = self._draft_set.path, DraftSet(0, None)
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

    def set_spare(self, left_bytes: int) -> None:
        """Set its part of the memory that plans leave, for the KV pages of texts that are cached."""
        pool = self._scheduler.pool
        pool.budget_bytes, pool.most_lent_bytes = _page_budget(self.model, pool.layout, left_bytes)
        self._scheduler.tree.evict(0)

    def loaded(self, request: int, *, beside: bool = False) -> ModelLoaded:
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
            template_problem=self._template_problem(),
            vocabulary=model.vocabulary,
            format=model.format,
            base=model.base,
            has_thinking_switch=model.template.has_thinking_switch,
            can_think=model.template.markers.can_think,
            seconds=model.seconds,
            resident_bytes=resident_memory(),
            held_bytes=self.memory_bytes,
            cache=model.cache,
            sampling=model.sampling,
            sampling_fields=model.recommended.fields,
            sampling_unusable=model.recommended.unusable,
            paged_layers=len(paging.layers),
            paged_bytes=paging.token_bytes,
            paged_seconds=paging.token_seconds,
            runs_on=model.runs_on,
            moved=model.moved,
            beside=beside,
            template_source=model.template.source,
            begin=_shown(model.tokenizer, model.tokenizer.bos),
            end=_shown(model.tokenizer, model.tokenizer.eos),
        )

    def _template_problem(self) -> str:
        """Why the template cannot be used for a chat; "" also for a model that does not answer."""
        found = None if self.model.decoder.is_encoder else self.model.template.problem
        return found.sentence if found else ""

    @property
    def grammars(self) -> Grammars:
        """The constraints compiled for the model's vocabulary."""
        return self._scheduler.grammars

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being generated or waits, or texts are being read."""
        return self._scheduler.is_busy or self._reading > 0

    @property
    def is_reading(self) -> bool:
        """Whether texts are being read."""
        return self._reading > 0

    def set_beside(self, between_layers: Callable[[], None] | None) -> None:
        """Whether another model takes turns with this one: passes are short then.

        `between_layers` is called during the passes of answers; None: this one runs alone.
        """
        self._scheduler.between_layers = between_layers
        self._embedder.is_beside = between_layers is not None
        if self._ranker is not None:
            self._ranker.is_beside = between_layers is not None

    def drop_cancelled(self) -> None:
        """End the answers that were cancelled."""
        self._scheduler.drop_cancelled()

    def step(self, arriving: Callable[[], bool]) -> None:
        """Run one pass over the answers in progress; see `Scheduler.step`."""
        self._scheduler.step(arriving, is_expected=self._preparing > 0)

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
        self, wanted: Chat | Complete, handle: RequestHandle
    ) -> Generator[Awaited | None, None, None]:
        """Generate answers, reusing the longest cached or saved prefix of the conversation.

        Their events are delivered by `step`, where they arise; yields None until they have ended.
        Closing it cancels them.
        """
        self._refuse_without_answers()
        if isinstance(wanted, Complete):
            yield from self._complete(wanted, handle)
            return
        checkpoint = handle.checkpoint
        stack = self._adapters.stack_of(wanted.adapters, checkpoint)
        if wanted.budget_bytes is not None:
            self._disk.set_budget(wanted.budget_bytes)
        given = wanted.template_arguments.get("enable_thinking")
        switch = given if wanted.thinking is None and isinstance(given, bool) else wanted.thinking
        thinking, budget = resolved_thinking(switch, wanted.thinking_budget)
        # A constraint begins with the answer, so that the model could not open thoughts itself.
        opens = wanted.constraint is not None and not wanted.constraint.trigger
        read = partial(
            self._prompts.answer,
            opens_thoughts=opens,
            tools=wanted.tools,
            variables=wanted.template_arguments,
        )
        build = partial(read, wanted.turns, wanted.policy, thinking)
        self._preparing += 1
        try:
            prompt = yield from _in_background(build, "prompt", checkpoint)
            if len(prompt.ids) < self._scheduler.context:
                yield from self._disk.restore(stack, prompt.ids, "", checkpoint)
            rendered, markers = prompt.rendered, self.model.template.markers
            constraint, begun = wanted.constraint, rendered.begun
            if prompt.tool_format is not None:
                build_calls = partial(self._tool_constraint, wanted, prompt.tool_format, thinking)
                constraint = yield from _in_background(build_calls, "grammar", checkpoint)
            if prompt.tool_format is None or not prompt.tool_format.has_messages:
                constraint, begun = after_thoughts(constraint, rendered.begun, markers)
            if constraint is not None:
                compiling = partial(self._scheduler.grammars.compile, constraint)
                yield from _in_background(compiling, "grammar", checkpoint)
        finally:
            self._preparing -= 1
        plan = ThoughtPlan(markers, budget, rendered.begun, rendered.continued)
        deliver: Callable[[AnswerEvent], None] = handle.deliver
        if (form := prompt.tool_format) and wanted.tool_choice is not ToolChoice.NONE:
            is_written = constraint is not None and constraint.kind is ConstraintKind.TOOLS
            calls = ToolCallEvents(form, wanted.tools, constrained=is_written)
            deliver = partial(_deliver_calls, calls, handle.deliver)
            plan = replace(plan, shown=form.markers, calls_end=form.has_messages)
            if form.has_messages and constraint is not None and constraint.required:
                # The marker that a budget writes begins the answer, where a call must begin.
                plan = replace(plan, budget=None)
        timer = self._prefill.timer()
        request = AnswerRequest(
            self._scheduler.spelled_as_cached(stack, prompt.ids),
            wanted.sampling,
            number=handle.id,
            max_tokens=wanted.max_tokens,
            stop=(*wanted.stop, *self.model.template.stop),
            opening=rendered.opening,
            constraint=constraint,
            begun=begun,
            thoughts=plan,
            logprobs=wanted.logprobs,
            arrived=handle.arrived,
            count=wanted.answers,
            stack=stack,
            priority=handle.priority,
            stop_loops=wanted.stop_loops,
            drafter=maker(wanted.drafts, self._draft),
            dropped_turns=prompt.dropped_turns,
            on_prompt=partial(_on_prompt, handle, timer),
            deliver=deliver,
            cancellation=handle,
        )
        yield from self._answer(request, wanted.conversation, handle, timer)

    def _complete(
        self, wanted: Complete, handle: RequestHandle
    ) -> Generator[Awaited | None, None, None]:
        """Continue a text without the template."""
        checkpoint = handle.checkpoint
        stack = self._adapters.stack_of(wanted.adapters, checkpoint)
        build = partial(texts.prompt_of, wanted, self.model.tokenizer)
        self._preparing += 1
        try:
            ids = yield from _in_background(build, "prompt", checkpoint)
            if 0 < len(ids) < self._scheduler.context:
                yield from self._disk.restore(stack, ids, wanted.conversation, checkpoint)
            if wanted.constraint is not None:
                compiling = partial(self._scheduler.grammars.compile, wanted.constraint)
                yield from _in_background(compiling, "grammar", checkpoint)
        finally:
            self._preparing -= 1
        timer = self._prefill.timer()
        given = not isinstance(wanted.prompt, str)  # ids are taken as they are
        request = AnswerRequest(
            ids if given or not ids else self._scheduler.spelled_as_cached(stack, ids),
            wanted.sampling,
            number=handle.id,
            max_tokens=wanted.max_tokens,
            stop=wanted.stop,
            constraint=wanted.constraint,
            logprobs=wanted.logprobs,
            arrived=handle.arrived,
            count=wanted.answers,
            stack=stack,
            priority=handle.priority,
            stop_loops=wanted.stop_loops,
            drafter=maker(wanted.drafts, self._draft),
            on_prompt=partial(_on_prompt, handle, timer),
            deliver=handle.deliver,
            cancellation=handle,
        )
        yield from self._answer(request, wanted.conversation, handle, timer)

    def _answer(
        self,
        request: AnswerRequest,
        conversation: str,
        handle: RequestHandle,
        timer: PrefillTimer,
    ) -> Generator[Awaited, None, None]:
        """Let the scheduler answer a request, which delivers its events."""
        request.on_end = partial(self._note, handle.id, conversation)
        group = self._scheduler.submit(request)
        self._disk.evicted.note(handle.id, conversation, request.stack, request.prompt)
        try:
            while not group.done:
                yield group
        except GeneratorExit:  # no event of it is delivered any more
            handle.cancel()
            group.fail(Cancelled())
            raise
        if group.error is not None:
            raise group.error
        if group.was_alone:
            self._prefill.learn(request.stack, timer)

    def _note(self, number: int, conversation: str, stack: Stack, text: list[int]) -> None:
        # The disk tier as it is now: the model may have moved since the answer began.
        self._disk.note(number, conversation, stack, text)

    def _tool_constraint(
        self, wanted: Chat, form: ToolFormat, thinking: bool | None
    ) -> Constraint | None:
        """The constraint of an answer with tools: its own, or that calls follow the schemas.

        A schema that cannot be followed leaves its arguments any object. Raises RequestError.
        """
        tools, choice = wanted.tools, wanted.tool_choice
        if wanted.constraint is not None:
            if choice in (ToolChoice.AUTO, ToolChoice.NONE):
                return wanted.constraint
            raise RequestError(
                "An answer that must call a tool cannot have a format of its own.",
                "Leave out the format, or the choice of a tool.",
            )
        thoughts = None if thinking is False else self.model.template.markers
        make = partial(
            tool_constraint,
            form,
            choice=choice,
            parallel=wanted.parallel_tool_calls,
            thoughts=thoughts,
        )
        made = make(tools)
        try:
            if made is not None:
                self._scheduler.grammars.compile(made)
        except RefusedConstraint as error:
            log.info("the schemas of tools cannot be followed: %s", error)
            made = make(relaxed(tools))
        return made

    def _refuse_without_answers(self) -> None:
        if self.model.decoder.is_encoder or self.model.decoder.ranking is not None:
            raise RequestError(
                f"The model {self.model.name} only makes embeddings or scores documents; it cannot chat.",
                "Load a model that was made to chat.",
            )

    def metrics(self, handle: RequestHandle) -> Generator[MetricsRead | None, None, None]:
        """The metrics since the model was loaded; a slow disk holds up no answer."""
        size = yield from _in_background(snapshots_size, "disk size", handle.checkpoint)
        yield read_metrics(self.model, self._scheduler, handle.id, size)

    def read_text(
        self, request: texts.TextRequest, handle: RequestHandle
    ) -> Generator[Event | None, None, None]:
        """Answer a request that only needs the vocabulary or the template."""
        work = partial(texts.answered, request, handle.id, self.model.tokenizer, self._prompts)
        yield (yield from _in_background(work, "text", handle.checkpoint))

    def embed(
        self, request: Embed, handle: RequestHandle
    ) -> Generator[Embedded | None, None, None]:
        """Compute the vectors of texts; yields None between passes, when answers go on."""
        stack = self._adapters.stack
        encode = partial(self._embedder.tokens, request.texts)
        texts = yield from _in_background(encode, "texts", handle.checkpoint)
        pooling = request.pooling or self.model.pooling
        work = self._embedder.vectors(texts, pooling, stack, handle.checkpoint)
        vectors = yield from self._read(work)
        yield Embedded(handle.id, tuple(vectors), sum(map(len, texts)), pooling)

    def rerank(
        self, request: Rerank, handle: RequestHandle
    ) -> Generator[Reranked | None, None, None]:
        """Score documents; yields None between passes, when answers go on."""
        stack, ranker = self._adapters.stack, self._ranker or self.model.new_ranker()
        encode = partial(ranker.pairs, request.query, request.documents, self.model.rank_template)
        pairs = yield from _in_background(encode, "documents", handle.checkpoint)
        scores = yield from self._read(ranker.scores(pairs, stack, handle.checkpoint))
        yield Reranked(handle.id, tuple(scores), sum(map(len, pairs)))

    def score(self, request: Score, handle: RequestHandle) -> Generator[Scored | None, None, None]:
        """Score the tokens of a text; yields None between chunks, when answers go on."""
        self._refuse_without_answers()
        stack = self._adapters.stack_of(request.adapters, handle.checkpoint)
        text = request.text
        if isinstance(text, str):
            encode = partial(self.model.tokenizer.encode, text)
            ids = yield from _in_background(encode, "text", handle.checkpoint)
        else:
            ids = list(text)
        scorer = PromptScorer(self._scheduler, self.model.tokenizer)
        work = scorer.score(ids, request.logprobs, stack, handle.checkpoint)
        yield Scored(handle.id, tuple((yield from self._read(work))))

    def _read(self, work: Generator[None, None, T]) -> Generator[None, None, T]:
        """Run work between the passes of answers."""
        self._reading += 1
        try:
            return (yield from work)
        finally:
            self._reading -= 1

    # --- adapters -------------------------------------------------------------------------------

    def set_adapters(self, request: SetAdapters, handle: RequestHandle) -> AdaptersSet:
        """Replace the adapter stack; on any error, and when cancelled, it stays unchanged."""
        changed = self._adapters.set(request.adapters, handle.checkpoint)
        return self.adapters(handle.id, changed=changed)

    def adapters(self, request: int, *, changed: bool = False) -> AdaptersSet:
        """The event that describes the current adapter stack."""
        return AdaptersSet(request, self._adapters.infos(), changed)

    # --- draft model ----------------------------------------------------------------------------

    def set_draft(self, request: SetDraft, handle: RequestHandle) -> DraftSet:
        """Load a draft model in place of another; on any error, and when cancelled, there is none."""
        self._load_draft(request, handle.checkpoint)
        return self.draft(handle.id)

    def _load_draft(self, request: SetDraft, checkpoint: Checkpoint) -> None:
        self.close()
        self._draft, self._draft_set = None, DraftSet(0, None)
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
            self._draft = Drafts(model.new_runner, plan.context, vocabulary)
            size = model.plan.total_bytes
            self._draft_set = DraftSet(0, model.path, model.name, size)

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
        dropped, is_text = 0, not request.turns
        if not is_text:
            build = partial(self._prompts.conversation, request.turns, request.policy)
            prompt = yield from _in_background(build, "prompt", handle.checkpoint)
            fresh, dropped = prompt.ids, prompt.dropped_turns
        elif request.text:
            encode = partial(self.model.tokenizer.encode, request.text)
            fresh = yield from _in_background(encode, "prompt", handle.checkpoint)
        else:
            fresh = self._disk.saved_text(request.conversation)
        found = yield from self._disk.restore(stack, fresh, request.conversation, handle.checkpoint)
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
            str(found.refused or ""),
            dropped,
            found.refused.fault if found.refused else OTHER_FAULT,
            tuple(ids) if is_text else (),
        )

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
            build = partial(self._prompts.conversation, request.turns, ContextPolicy.STOP)
            prompt = yield from _in_background(build, "prompt", handle.checkpoint)
            ids = self._scheduler.spelled_as_cached(stack, prompt.ids)
            text = SavedText(request.conversation, stack, ids)
        if (saved := self._disk.save(request, handle, text)) is not None:
            yield saved


def _on_prompt(handle: RequestHandle, timer: PrefillTimer, done: int, total: int) -> None:
    """So many tokens of a prompt are processed."""
    handle.has_begun, handle.has_answer = True, done >= total
    timer.on_progress(done, total)


def _deliver_calls(
    calls: ToolCallEvents, deliver: Callable[[Event], None], event: AnswerEvent
) -> None:
    """Deliver what an event of an answer with tools becomes."""
    if isinstance(event, PromptProgress):
        deliver(event)
        return
    for each in calls.of(event):
        deliver(each)


def _no_checkpoint() -> None:
    """A checkpoint of work that is not cancelled."""


def _shown(tokenizer: Tokenizer, token: int | None) -> str:
    """The text of a special token."""
    return "" if token is None else tokenizer.piece(token).decode("utf-8", "replace")


def _page_budget(model: LoadedModel, layout: KVLayout, left_bytes: int) -> tuple[int, int]:
    """Bytes of KV pages: those of a full context and some of the memory that is left; and of pages
    that are evicted and being written, two of each group at least.
    """
    plan = model.plan
    # Of the device with the least: what several devices have left together may be needed on one.
    spare, pair = left_bytes // _SPARE_SHARE, 2 * layout.bytes_per_page
    lent = min(spare // _LENT_SHARE, _MOST_LENT)
    return bytes_for(layout, plan.context) + pair + spare - lent, pair + lent


def _in_background(
    work: Callable[[], T], name: str, checkpoint: Checkpoint
) -> Generator[None, None, T]:
    """Run work on a helper thread: tokenizing a very long prompt takes seconds."""
    task = BackgroundTask(work, name)
    yield from task.polled(checkpoint)
    return task.result(checkpoint)
