"""Long documents: an answer that reads files part by part, each part one request.

The files are cut at borders of pages and paragraphs into parts that fit in the context of the
model. What it makes of each part is a section of the answer, stored when it is done; then it writes
the answer from the sections, in several levels if they do not fit in one prompt. An answer that was
stopped, or ended with the process, goes on behind its last section. All requests begin with the same
instructions, and run in the background: the answers of other chats come first.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.chat.documents.part_cuts import part_end, part_length, part_of, part_text
from app.chat.documents.part_sizes import (
    MARKUP,
    USUAL_CONTEXT,
    PartSizes,
    part_sizes,
    rewritten_most,
)
from app.chat.requests.running_answer import QueuedAnswer
from app.domain.answer_request import AnswerRequest, PromptMessage
from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    AnswerUsage,
    Delta,
    EndReason,
    PromptProgressDelta,
    SectionDelta,
    StepDelta,
    TextDelta,
    ThoughtDelta,
    WaitingDelta,
)
from app.domain.document_prompt import (
    OF_PART,
    OF_RESULTS,
    OF_REWRITTEN,
    part_prompt,
    results_prompt,
)
from app.domain.documents import Reads, page_spans
from app.domain.message import Message
from app.domain.model_ref import Remote
from app.domain.parts import (
    ErrorPart,
    FilePart,
    Parts,
    SectionPart,
    TextPart,
    files,
    prompt_text,
    typed_text,
    with_section,
    without_error,
)
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.engines.client import EngineClient
from app.engines.local import LocalAnswer
from app.engines.remote_client import RemoteAnswer, RemoteClient
from app.engines.run import AnswerRun, RequestFailed
from app.state.chat import State
from app.system.durations import time_left
from app.system.translation import listed, number, tr
from engine import (
    ApplyTemplate,
    Chat,
    Constraint,
    ConstraintKind,
    CountTokens,
    Fault,
    FaultKind,
    Priority,
    Role,
    TemplateApplied,
    TokensCounted,
    Turn,
)

_MEASURED = 8  # sections by whose time that of the others is estimated
_CUT_STEP = 1024  # servers that cut a prompt without a word keep a multiple of so many tokens
_FEWEST_CONTEXT = 512  # tokens: with less there is no sense in going on
_BYTES = 3  # of a token, where the tokenizer is not here
_ids = itertools.count(-(2**62), -1)  # of runs, which no engine gives


class Door(Protocol):
    """An engine that is asked about the parts of a document."""

    @property
    def context(self) -> int:
        """Tokens that the model reads at once."""
        ...

    @property
    def instructions(self) -> str:
        """Those of the chat."""
        ...

    async def chat_tokens(self) -> int:
        """Tokens of the chat with its question, without the documents read part by part."""
        ...

    async def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def ask(self, text: str, begun: str = "", most_tokens: int = 0, schema: str = "") -> AnswerRun:
        """Ask for an answer, or for the rest of one; with `most_tokens` it is made of a part.

        Such an answer is JSON that a schema describes, if there is one and the engine can do that.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalDoor:
    """The engine in this process."""

    engine: EngineClient
    command: Chat  # whose settings are used
    context: int

    @property
    def instructions(self) -> str:
        """Those of the chat."""
        return "".join(turn.text for turn in self.command.turns[:1] if turn.role is Role.SYSTEM)

    async def chat_tokens(self) -> int:
        """Tokens of the chat with its question; all that it reads at once if they are more."""
        turns = self.command.turns
        turns = turns[:-1] if turns and turns[-1].role is Role.ASSISTANT else turns
        asked = ApplyTemplate(turns, self.command.thinking, self.command.policy)
        try:
            return (await self.engine.submit(asked).result(TemplateApplied)).tokens
        except RequestFailed:
            return self.context

    async def count(self, text: str) -> int:
        """Tokens of a text."""
        try:
            return (await self.engine.submit(CountTokens(text)).result(TokensCounted)).tokens
        except RequestFailed as failed:
            event = failed.event
            error = ErrorPart(event.fault, "", event.message, event.remedy)
            raise AnswerFailed(error) from failed

    def ask(self, text: str, begun: str = "", most_tokens: int = 0, schema: str = "") -> AnswerRun:
        """Ask behind the answers of other chats; nothing is made of a part by thinking."""
        turns = [turn for turn in self.command.turns[:1] if turn.role is Role.SYSTEM]
        turns += [Turn(Role.USER, text), *([Turn(Role.ASSISTANT, begun)] if begun else [])]
        made = replace(self.command, turns=tuple(turns))
        if most_tokens:
            made = replace(
                made,
                max_tokens=most_tokens,
                thinking=False,
                thinking_budget=0,
                constraint=Constraint(ConstraintKind.JSON_SCHEMA, schema) if schema else None,
            )
        if schema:  # the most probable one
            made = replace(made, sampling=replace(made.sampling, temperature=0.0))
        return LocalAnswer(self.engine.submit(made, Priority.BACKGROUND))


@dataclass(frozen=True, slots=True)
class RemoteDoor:
    """An engine elsewhere, whose tokens are estimated."""

    client: RemoteClient
    model: Remote
    request: AnswerRequest  # whose settings are used
    context: int
    formats: frozenset[ConstraintKind] = frozenset()  # that its answers can be held to

    @property
    def instructions(self) -> str:
        """Those of the chat."""
        return "".join(prompt_text(each.parts) for each in self._system)

    @property
    def _system(self) -> list[PromptMessage]:
        return [each for each in self.request.messages[:1] if each.role is Role.SYSTEM]

    async def chat_tokens(self) -> int:
        """About how many tokens the chat has with its question."""
        messages = self.request.messages
        messages = messages[:-1] if messages[-1].role is Role.ASSISTANT else messages
        return await self.count("".join(prompt_text(each.parts) for each in messages))

    async def count(self, text: str) -> int:
        """About how many tokens a text has."""
        return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES)

    def ask(self, text: str, begun: str = "", most_tokens: int = 0, schema: str = "") -> AnswerRun:
        """Ask; nothing is made of a part by thinking."""
        said = [PromptMessage(Role.USER, (TextPart(text),))]
        said += [PromptMessage(Role.ASSISTANT, (TextPart(begun),))] if begun else []
        made = replace(self.request, messages=(*self._system, *said))
        if most_tokens:
            kind = ConstraintKind.JSON_SCHEMA
            wanted = Constraint(kind, schema) if schema and kind in self.formats else None
            made = replace(made, max_tokens=most_tokens, thinking=False, constraint=wanted)
        return RemoteAnswer(self.client, self.model, made)


@dataclass(frozen=True, slots=True)
class LongRequest:
    """What an answer is made from."""

    files: tuple[FilePart, ...]  # that are read part by part
    wish: str  # what the user typed, and all else that the question has
    done: tuple[SectionPart, ...]  # of the answer so far
    begun: str  # its text so far

    @property
    def rewrites(self) -> bool:
        """Whether the sections are the answer."""
        return self.files[0].reads is Reads.REWRITE


def long_request(question: Message | None, so_far: Parts) -> LongRequest | None:
    """What an answer to a question is made from part by part; None: it is one request."""
    found = () if question is None else files(question.parts)
    found = tuple(part for part in found if part.reads.by_parts)
    if question is None or not found:
        return None
    done = tuple(part for part in so_far if isinstance(part, SectionPart))
    return LongRequest(found, prompt_text(question.parts), done, typed_text(so_far))


def long_here(
    state: State, engine: EngineClient, job: QueuedAnswer, command: Chat
) -> LongAnswer | None:
    """The run of an answer that the engine in this process writes part by part, if it is one."""
    asked = _asked(state, job)
    return LongAnswer(asked, door_here(state, engine, command)) if asked else None


def long_elsewhere(
    state: State, client: RemoteClient, job: QueuedAnswer, model: Remote, request: AnswerRequest
) -> LongAnswer | None:
    """The run of an answer that an engine elsewhere writes part by part, if it is one."""
    asked = _asked(state, job)
    return LongAnswer(asked, door_elsewhere(state, client, model, request)) if asked else None


def door_here(state: State, engine: EngineClient, command: Chat) -> LocalDoor:
    """The engine in this process, with the settings of a request."""
    loaded = state.model.loaded
    return LocalDoor(engine, command, loaded.context if loaded else 0)


def door_elsewhere(
    state: State, client: RemoteClient, model: Remote, request: AnswerRequest
) -> RemoteDoor:
    """An engine elsewhere, with the settings of a request."""
    context = next((each.context for each in state.served if each.model == model), 0)
    return RemoteDoor(client, model, request, context or USUAL_CONTEXT, client.formats(model))


def _asked(state: State, job: QueuedAnswer) -> LongRequest | None:
    ids = job.branch.messages
    return long_request(state.message(ids[-2]) if len(ids) > 1 else None, without_error(job.parts))


def step_words(step: StepDelta) -> str:
    """What a long answer does now."""
    if step.query:
        words = (
            tr("Writing the answer from the result…"),
            tr("Writing a query over the table…"),
            tr("Looking into the table…"),
        )
        return words[step.number]
    if not step.number:
        return tr("Writing the answer from all parts…")
    at, count = number(step.number), number(step.count)
    if step.level:
        return tr("Putting parts together: {number} of {count}…", number=at, count=count)
    if left := time_left(step.seconds) if step.seconds else "":
        return tr("Reading part {number} of {count}, {left}…", number=at, count=count, left=left)
    return tr("Reading part {number} of {count}…", number=at, count=count)


class LongAnswer:
    """An answer that is written part by part: `AnswerRun`."""

    def __init__(self, asked: LongRequest, door: Door) -> None:
        self.id = next(_ids)  # unique in the process
        self._asked, self._door = asked, door
        self._done: Parts = asked.done  # the sections so far
        self._run: AnswerRun | None = None  # in progress
        self._cancelled = False
        self._took: list[float] = []  # seconds, for each section
        self._has_text = False  # of the answer itself
        self._chat_tokens = 0  # of the chat with what there is of the answer
        self._usage = AnswerUsage()

    def cancel(self) -> None:
        """End it soon: the part in progress is given up."""
        self._cancelled = True
        if self._run is not None:
            self._run.cancel()

    async def deltas(self) -> AsyncIterator[Delta]:
        """The sections, then the text; raises AnswerFailed.

        An engine may read less at once than it says: the remaining parts are then made smaller.
        """
        context = self._door.context
        try:
            self._chat_tokens = await self._door.chat_tokens()
            if self._asked.begun:
                self._chat_tokens += await self._door.count(self._asked.begun)
            while True:
                try:
                    async for delta in self._steps(await self._sizes(context)):
                        yield delta
                    break
                except AnswerFailed as failed:
                    context //= 2
                    if self._has_text or context < _FEWEST_CONTEXT or not _is_too_long(failed):
                        raise
        except AnswerFailed:
            yield self._used()
            raise

    async def _steps(self, sizes: PartSizes) -> AsyncIterator[Delta]:
        """The remaining steps, with parts of such sizes."""
        sections = self._level(0)
        is_read = bool(self._asked.begun and sections)
        left = [] if is_read else await self._parts(sections, sizes.text)
        if self._cancelled:  # while they were counted
            yield self._used()
            yield AnswerEnd(EndReason.CANCELLED)
            return
        count = len(sections) + len(left)
        rewrites = self._asked.rewrites
        if not count:
            names = listed([file.name for file in self._asked.files])
            raise _failure(tr("There is no text in {name}.", name=names))
        if count == 1 and not (sections or rewrites):  # it fits in one prompt
            question = self._of_part(replace(left[0], count=1))
            async for delta in self._written(question):
                yield delta
            return
        numbered = [replace(part, number=at) for at, part in enumerate(left, len(sections) + 1)]
        again = [] if self._asked.begun else [each for each in sections if not each.text]
        if rewrites and not left:  # all have been read
            again = [each for each in sections if each.cut or not each.text]
        for part in (*again, *numbered):
            part = replace(part, count=count, cut=False)
            question, most = self._of_part(part), sizes.result
            if rewrites:  # what repeats itself ends
                most = min(most, rewritten_most(await self._door.count(question)))
            async for delta in self._section(part, question, most):
                yield delta
            if self._cancelled:
                break
        if rewrites or self._cancelled:
            yield self._used()
            yield AnswerEnd(EndReason.CANCELLED if self._cancelled else EndReason.END)
            return
        if not any(section.text for section in self._level(0)):
            raise _failure(tr("The model wrote nothing about any part."))
        level = 0
        while True:
            sections, above = self._level(level), self._level(level + 1)
            groups = await self._groups(sections, above, sizes.text)
            if len(above) + len(groups) <= 1:
                break
            level += 1
            for group in groups:
                question = self._of_results(sections[group.start : group.end], group.start + 1)
                async for delta in self._section(group, question, sizes.result):
                    yield delta
                if self._cancelled:
                    yield self._used()
                    yield AnswerEnd(EndReason.CANCELLED)
                    return
        yield StepDelta(0, 0, level + 1)
        async for delta in self._written(self._of_results(sections, 1)):
            yield delta

    def _level(self, level: int) -> list[SectionPart]:
        """The sections of a level so far, in order."""
        made = [part for part in self._done if isinstance(part, SectionPart)]
        return [part for part in made if part.level == level]

    # --- requests -------------------------------------------------------------------------------

    def _of_part(self, part: SectionPart) -> str:
        """The prompt for a part: what all have in common comes first."""
        text = part_text(self._asked.files[part.file], part.start, part.end)
        pages = f"{part.unit} {part.pages}" if part.pages else ""
        read = part_prompt(part.name, text, part.number, part.count, pages)
        task = OF_REWRITTEN if self._asked.rewrites else OF_PART
        return f"{self._asked.wish}\n\n{task}\n\n{read}".lstrip()

    def _of_results(self, sections: Sequence[SectionPart], first: int) -> str:
        read = results_prompt([each.text for each in sections if each.text], first)
        return f"{self._asked.wish}\n\n{OF_RESULTS}\n\n{read}".lstrip()

    async def _section(self, part: SectionPart, question: str, most: int) -> AsyncIterator[Delta]:
        """Ask for a section, which is the last delta; those before it are the progress."""
        left = part.count - part.number + 1
        seconds = self._section_seconds * left if not part.level else 0.0
        before = self._usage.prompt_tokens
        yield StepDelta(part.number, part.count, part.level, seconds)
        began, text, reason = time.perf_counter(), "", EndReason.END
        async for delta in self._told(self._door.ask(question, most_tokens=most)):
            match delta:
                case TextDelta():
                    text += delta.text
                    yield replace(delta, text="", context_used=self._chat_tokens)
                case ThoughtDelta():
                    yield TextDelta("", delta.generated_tokens, self._chat_tokens)
                case AnswerEnd():
                    reason = delta.reason
                case PromptProgressDelta() | WaitingDelta():
                    yield delta
                case _:
                    pass
        self._cancelled |= reason is EndReason.CANCELLED
        read = self._usage.prompt_tokens - before
        if read and read % _CUT_STEP == 0 and await self._door.count(question) > read:
            raise AnswerFailed(ErrorPart(RemoteFault(RemoteFaultKind.CONTEXT, most_tokens=read)))
        if self._cancelled:
            return
        is_cut = reason in (EndReason.LENGTH, EndReason.CONTEXT, EndReason.REPETITION)
        done = replace(part, text=text.strip(), cut=is_cut)
        self._done = with_section(self._done, done)
        self._took.append(time.perf_counter() - began)
        yield SectionDelta(done)

    async def _written(self, question: str) -> AsyncIterator[Delta]:
        """Ask for the text of the answer."""
        if self._cancelled:
            yield self._used()
            yield AnswerEnd(EndReason.CANCELLED)
            return
        before, begun = self._chat_tokens, self._usage.generated_tokens
        async for delta in self._told(self._door.ask(question, self._asked.begun)):
            if isinstance(delta, TextDelta | ThoughtDelta):
                self._has_text |= bool(delta.text)
                self._chat_tokens = before + delta.generated_tokens
                delta = replace(delta, context_used=self._chat_tokens)
            if isinstance(delta, AnswerEnd):
                self._chat_tokens = before + self._usage.generated_tokens - begun
                yield self._used()
            yield delta

    @property
    def _section_seconds(self) -> float:
        """Of a section, by the last ones; 0: not known."""
        last = self._took[-_MEASURED:]
        return sum(last) / len(last) if last else 0.0

    def _used(self) -> AnswerUsage:
        return replace(self._usage, chat_tokens=self._chat_tokens)

    async def _told(self, run: AnswerRun) -> AsyncIterator[Delta]:
        """What a request brings, whose usage is added to that of all."""
        self._run = run
        if self._cancelled:
            run.cancel()
        used = AnswerUsage()
        try:
            async for delta in run.deltas():
                if isinstance(delta, AnswerEnd):
                    self._usage, used = _sum(self._usage, used), AnswerUsage()
                if isinstance(delta, AnswerUsage):
                    used = delta
                else:
                    yield delta
        except AnswerFailed:
            self._usage = _sum(self._usage, used)
            raise

    # --- parts ----------------------------------------------------------------------------------

    async def _sizes(self, context: int) -> PartSizes:
        """How long parts are that fit in such a context."""
        fixed = f"{self._door.instructions}\n{self._asked.wish}\n{OF_RESULTS}"
        reads = self._asked.files[0].reads
        sizes = part_sizes(context, await self._door.count(fixed), reads)
        if sizes is None:
            fault = Fault(FaultKind.MESSAGE_TOO_LONG, context=context)
            raise AnswerFailed(ErrorPart(fault, message="no room for a part of the document"))
        return sizes

    async def _parts(self, done: Sequence[SectionPart], room: int) -> list[SectionPart]:
        """The parts of the files behind the last section."""
        first = done[-1].file if done else 0
        found: list[SectionPart] = []
        for at in range(first, len(self._asked.files)):
            file = self._asked.files[at]
            start = done[-1].end if done and at == first else 0
            cuts = await self._cut(file, start, room)
            spans = [*page_spans(file.text, file.pages)] if file.pages else []
            found += [part_of(file, at, begin, end, spans) for begin, end in cuts]
        return found

    async def _cut(self, file: FilePart, start: int, room: int) -> list[tuple[int, int]]:
        """Where the parts of a file begin and end, about equally long; empty ones are left out."""
        text = file.text
        tokens = await self._door.count(text[start:])
        wanted = part_length(len(text) - start, tokens, room)
        found: list[tuple[int, int]] = []
        while start < len(text) and not self._cancelled:
            size = wanted
            end = part_end(file, start, size)
            while end - start > 1 and await self._door.count(part_text(file, start, end)) > room:
                size = max(min(size, end - start) * 4 // 5, 1)
                end = part_end(file, start, size)
            if text[start:end].strip():
                found.append((start, end))
            start = end
        return found

    async def _groups(
        self, sections: Sequence[SectionPart], above: Sequence[SectionPart], room: int
    ) -> list[SectionPart]:
        """Which sections are put together behind those above, that are done: as many as fit in one
        prompt, and never one alone.
        """
        groups: list[tuple[int, int]] = []
        start, used = above[-1].end if above else 0, 0
        for at, section in enumerate(sections[start:], start):
            size = await self._door.count(section.text) + MARKUP // 4
            if used + size > room and at - start > 1:
                groups.append((start, at))
                start, used = at, 0
            used += size
        if start < len(sections):
            groups.append((start, len(sections)))
        level, count = sections[0].level + 1, len(above) + len(groups)
        return [
            SectionPart("", level=level, number=n, count=count, start=begin, end=end)
            for n, (begin, end) in enumerate(groups, len(above) + 1)
        ]


def _failure(sentence: str) -> AnswerFailed:
    return AnswerFailed(ErrorPart(message=sentence, remedy=tr("Try another document or model.")))


def _is_too_long(failed: AnswerFailed) -> bool:
    """Whether the engine reads less at once than the request has."""
    kind = failed.error.fault.kind
    return kind in (RemoteFaultKind.CONTEXT, FaultKind.MESSAGE_TOO_LONG, FaultKind.CHAT_FULL)


def _sum(one: AnswerUsage, other: AnswerUsage) -> AnswerUsage:
    """What two requests took together: the first text is the first one's, the times of tokens the
    last one's.
    """
    names = (
        "prompt_tokens", "cached_tokens", "generated_tokens", "thought_tokens", "prompt_seconds",
        "decode_seconds", "thought_seconds", "drafted_tokens", "accepted_tokens",
    )  # fmt: skip
    total = {name: getattr(one, name) + getattr(other, name) for name in names}
    first = one.first_token_seconds or other.first_token_seconds
    return replace(other, **total, first_token_seconds=first)
