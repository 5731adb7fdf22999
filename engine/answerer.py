"""Answerer: generates answers with one model, from a request to the events of its answers.

It builds the prompt, restores what is saved of it, compiles the constraint and lets the scheduler
answer. Prompts and constraints are built on other threads, while answers go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial

from engine.adapters.stack import Stack
from engine.core.cancellation import Awaited
from engine.core.handle import RequestHandle
from engine.core.request import AnswerEvent, AnswerRequest, check_length
from engine.core.scheduler import Scheduler
from engine.errors import Cancelled, RequestError
from engine.frontend import texts
from engine.frontend.constraints.refusal import RefusedConstraint
from engine.frontend.constraints.resume_matcher import after_thoughts
from engine.frontend.prompt import PromptBuilder
from engine.frontend.reasoning_budget import ThoughtPlan
from engine.frontend.tool_formats.formats import ToolFormat
from engine.frontend.tool_formats.grammar import relaxed, tool_constraint
from engine.frontend.tool_formats.stage import ToolCallEvents
from engine.loading.loader import LoadedModel
from engine.loading.prefill_estimator import PrefillEstimator, PrefillTimer
from engine.machine.background import in_background
from engine.messages import (
    Chat,
    Complete,
    Constraint,
    ConstraintKind,
    Event,
    PromptProgress,
    ToolChoice,
)
from engine.messages.reasoning_markers import resolved_thinking
from engine.speculative.draft_model import DraftModel
from engine.speculative.draft_registry import maker
from engine.state.disk.disk_tier import DiskTier

log = logging.getLogger(__name__)


class Answerer:
    """Used by the engine thread only, between `open` and `leave`.

    Answers that run go on with the model that is opened next: nothing of theirs holds the one before.
    """

    def __init__(self) -> None:
        self.preparing = 0  # answers whose prompts are being built

    def open(
        self,
        model: LoadedModel,
        scheduler: Scheduler,
        prompts: PromptBuilder,
        disk: DiskTier,
        prefill: PrefillEstimator,
    ) -> None:
        """Answer with this model."""
        self._model, self._scheduler = model, scheduler
        self._prompts, self._disk, self._prefill = prompts, disk, prefill

    def leave(self) -> None:
        """Let go of the model."""
        del self._model, self._scheduler, self._prompts, self._disk, self._prefill

    def generate(
        self,
        wanted: Chat | Complete,
        handle: RequestHandle,
        stack: Stack,
        drafts: DraftModel | None,
    ) -> Generator[Awaited | None, None, None]:
        """Generate answers, reusing the longest cached or saved prefix of the conversation.

        Their events are delivered by the scheduler's steps, where they arise; yields None until the
        prompt is there, then what ends with them. Closing it cancels them.
        """
        if isinstance(wanted, Complete):
            yield from self._complete(wanted, handle, stack, drafts)
            return
        checkpoint = handle.checkpoint
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
            cancelled=lambda: handle.is_cancelled,
        )
        build = partial(read, wanted.turns, wanted.policy, thinking)
        self.preparing += 1
        try:
            prompt = yield from in_background(build, "prompt", checkpoint)
            check_length(prompt.ids, self._scheduler.context)  # before the work of a grammar
            yield from self._disk.restore(stack, prompt.ids, "", checkpoint)
            rendered, markers = prompt.rendered, self._model.template.markers
            constraint, begun = wanted.constraint, rendered.begun
            if prompt.tool_format is not None:
                build_calls = partial(self._tool_constraint, wanted, prompt.tool_format, thinking)
                constraint = yield from in_background(build_calls, "grammar", checkpoint)
            if prompt.tool_format is None or not prompt.tool_format.has_messages:
                constraint, begun = after_thoughts(constraint, rendered.begun, markers)
            if constraint is not None:
                compiling = partial(self._scheduler.grammars.compile, constraint)
                yield from in_background(compiling, "grammar", checkpoint)
        finally:
            self.preparing -= 1
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
        ids = self._scheduler.spelled_as_cached(stack, prompt.ids)
        request = _request(ids, wanted, handle, stack, drafts, timer)
        request.stop = (*wanted.stop, *self._model.template.stop)
        request.opening, request.begun = rendered.opening, begun
        request.constraint, request.thoughts = constraint, plan
        request.dropped_turns, request.deliver = prompt.dropped_turns, deliver
        yield from self._answer(request, wanted.conversation, handle, timer)

    def _complete(
        self,
        wanted: Complete,
        handle: RequestHandle,
        stack: Stack,
        drafts: DraftModel | None,
    ) -> Generator[Awaited | None, None, None]:
        """Continue a text without the template."""
        checkpoint = handle.checkpoint
        build = partial(texts.prompt_of, wanted, self._model.tokenizer, self._scheduler.context)
        self.preparing += 1
        try:
            if wanted.prompt == () and wanted.conversation:
                ids = yield from self._disk.saved_text(stack, wanted.conversation, checkpoint)
            else:
                ids = yield from in_background(build, "prompt", checkpoint)
            if 0 < len(ids) < self._scheduler.context:
                yield from self._disk.restore(stack, ids, wanted.conversation, checkpoint)
            if wanted.constraint is not None:
                compiling = partial(self._scheduler.grammars.compile, wanted.constraint)
                yield from in_background(compiling, "grammar", checkpoint)
        finally:
            self.preparing -= 1
        timer = self._prefill.timer()
        given = not isinstance(wanted.prompt, str)  # ids and gaps are taken as they are
        if not given and ids:
            ids = self._scheduler.spelled_as_cached(stack, ids)
        request = _request(ids, wanted, handle, stack, drafts, timer)
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
        self._disk.begin(handle.id, conversation, request.stack, request.prompt)
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
                "An answer that must call a tool cannot follow a schema or grammar too.",
                "Leave out the format, or the choice of a tool.",
            )
        thoughts = None if thinking is False else self._model.template.markers
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


def _request(
    ids: list[int],
    wanted: Chat | Complete,
    handle: RequestHandle,
    stack: Stack,
    drafts: DraftModel | None,
    timer: PrefillTimer,
) -> AnswerRequest:
    """What the scheduler answers, as the request says it."""
    return AnswerRequest(
        ids,
        wanted.sampling,
        number=handle.id,
        max_tokens=wanted.max_tokens,
        stop=wanted.stop,
        constraint=wanted.constraint,
        logprobs=wanted.logprobs,
        sampled_logprobs=wanted.sampled_logprobs,
        arrived=handle.arrived,
        count=wanted.answers,
        stack=stack,
        priority=handle.priority,
        stop_loops=wanted.stop_loops,
        drafter=maker(wanted.drafts, drafts),
        on_prompt=partial(_on_prompt, handle, timer),
        deliver=handle.deliver,
        cancellation=handle,
    )


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
