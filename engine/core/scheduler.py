"""Scheduler: continuous batching of answers over one model, their KV pages and a prefix tree.

Each step schedules rows, runs one pass and samples. All running answers decode in one pass. Several
prompts take turns in chunks of at most a second, the newest first; beside answers the chunks are
shorter, and passes that only decode have as much time as they. A longer chunk of a prompt alone is
abandoned when another request arrives.
Prompts begin with the longest cached prefix; one that begins like a prompt in progress waits for
that part of it. When pages run out, cached ones are evicted, then the answer of the least urgent
request that started last gives its pages back and is processed again later: its bits do not change.
Given texts, of which no answer is made, are read in passes of their own between these: each as long
as the chunk of a prompt, and passes of the answers beside them have as much time.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

from torch import Tensor

from engine.adapters.stack import Stack
from engine.core.cancellation import Awaited
from engine.core.device_sampling import sample_on_device
from engine.core.failover_state import FailoverState, without_frames
from engine.core.image_encoding import encode_missing, free_images, longest_cached
from engine.core.inflight_prefix import is_in_progress, share
from engine.core.loop_errors import moved_error, out_of_pages
from engine.core.metrics import Metrics
from engine.core.prefix_match import reuse_cached_ids
from engine.core.reading import TextReading
from engine.core.request import AnswerRequest, SamplerState, SequenceGroup, check
from engine.core.runner import Rows, Runner
from engine.core.sequence import RunningSequence
from engine.errors import Cancelled, EngineError
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher, lookahead
from engine.frontend.constraints.resume_matcher import matcher_at_end
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.machine.device import memory_error
from engine.messages import FinishReason, Priority, PromptProgress
from engine.sampling import check as check_sampling
from engine.speculative.costs import StepCosts
from engine.state.pages import OutOfPages, PagePool
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence as CachedSequence
from kernels.states.kv_pages import PAGE_TOKENS

MOST_RUNNING = 16  # answers decoded together
_CHUNK_SECONDS = 1.0  # of a prompt while another request waits for it, at most
_SHARED_SECONDS = 0.12  # of a prompt's chunk while other answers are being generated
_BURST_SECONDS = 0.12  # that prompts may have beside answers before passes only decode
_URGENT_SECONDS = 0.3  # of the chunk of a prompt that comes before the answers beside it
_MOST_OWED_SECONDS = 1.0  # that answers are given alone after the prompts beside them
_SMALLEST_CHUNK = 16  # tokens
_INTERRUPTED = 32  # answers whose sampler state is remembered
_STARVED_SECONDS, _POLL_SECONDS = 30.0, 0.005  # an answer alone waits for pages being saved
_COMPARED_TEXTS = 32  # cached texts compared with a prompt, the last used ones


def _no_arrival() -> bool:
    return False


def _nothing(scheduler: Scheduler | None) -> None:
    """Nobody does anything during a pass."""


class Scheduler:
    """Runs requests together; used by the engine thread only."""

    def __init__(
        self,
        runner: Runner,
        pool: PagePool,
        tree: PrefixTree,
        tokenizer: Tokenizer,
        context: int,
        *,
        most_running: int = MOST_RUNNING,
    ) -> None:
        """`context` is the capacity of one sequence in tokens; the pool has room for it.

        `most_running` answers are decoded together, others wait; those to one prompt always are.
        """
        self.runner = runner
        self.pool, self.tree = pool, tree
        self.context = context
        self._most_running = most_running
        self._tokenizer = tokenizer
        self._waiting: deque[SequenceGroup | RunningSequence] = deque()  # sequences were preempted
        self._running: list[RunningSequence] = []
        self._readings: list[TextReading] = []
        self._passes = itertools.count(1)
        self._token_seconds = runner.token_seconds  # of a prompt, running mean
        self._prompt_seconds = 0.0  # that prompts had beside answers, more than passes without them
        self.grammars = Grammars(tokenizer, runner.model.head.weight.shape[0])
        self.sight = runner.sight  # None: texts have no images
        self._costs = StepCosts()  # of passes that only decode
        self.metrics = Metrics()
        self._refused = False  # the system refused memory, and no pass has run since
        self._starved_since = 0.0  # time since which an answer alone has no pages; 0: it has
        self._interrupted: dict[tuple[str, tuple[int, ...]], SamplerState] = {}
        self._arriving = _no_arrival
        self._is_expected = False
        # During a pass: of answers with this scheduler, of given texts with None.
        self.between_layers: Callable[[Scheduler | None], None] = _nothing
        self.is_beside = False  # another model takes turns with this one
        self._is_long = False  # the pass in progress is a prompt alone, for longer than a chunk
        self.device_fault: BaseException | None = None  # what a device raised in the last pass

    @property
    def is_busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running or self._readings)

    @property
    def running(self) -> int:
        """Number of answers in progress."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their first pass, or to go on."""
        return len(self._waiting)

    @property
    def sequences(self) -> list[CachedSequence]:
        """The sequences of the answers in progress."""
        return [one.sequence for one in self._running]

    def submit(self, request: AnswerRequest) -> SequenceGroup:
        """Queue a request. Raises PromptTooLong, or RequestError for an option out of range.

        If its prompt ends with an interrupted answer, the sampler and the constraint continue where
        that stopped.
        """
        check(request, self.context)
        check_sampling(request.sampling, self._tokenizer.size)
        key = request.stack.key, tuple(request.prompt)
        request.resume = request.resume or self._interrupted.pop(key, None)
        group = SequenceGroup(request, self._matcher(request), open_answers=request.count)
        self._waiting.append(group)
        return group

    def _matcher(self, request: AnswerRequest) -> Matcher | None:
        """The state of a request's constraint after the part of the answer that its prompt has."""
        constraint, begin = request.constraint, None
        if (resume := request.resume) is not None and constraint in (None, resume.constraint):
            constraint, begin = resume.constraint, resume.begin
        if constraint is None:
            return None
        return matcher_at_end(
            self.grammars, self._tokenizer, constraint, request.prompt, begin, request.begun
        )

    def spelled_as_cached(self, stack: Stack, fresh: Sequence[int]) -> list[int]:
        """The prompt tokenized as `fresh`, with the ids of the cached text that shares most."""
        leaves = self.tree.leaves(stack.key)[:_COMPARED_TEXTS]
        texts = [leaf.all_tokens() for leaf in leaves]
        texts += [list(tokens) for key, tokens in self._interrupted if key == stack.key]
        return reuse_cached_ids(self._tokenizer, fresh, texts)

    def remember(self, stack: str, tokens: Sequence[int], state: SamplerState) -> None:
        """Keep the sampler state of an interrupted answer, which ends these tokens."""
        self._interrupted[stack, tuple(tokens)] = state
        while len(self._interrupted) > _INTERRUPTED:
            del self._interrupted[next(iter(self._interrupted))]

    def interrupted(self, stack: str, tokens: Sequence[int]) -> SamplerState | None:
        """The sampler state of the interrupted answer that ends these tokens, if it is known."""
        return self._interrupted.get((stack, tuple(tokens)))

    def run(self, request: AnswerRequest) -> SequenceGroup:
        """Submit a request and run until it is done; raises its error."""
        group = self.submit(request)
        while not group.done:
            self.step()
        if group.error is not None:
            raise group.error
        return group

    def step(
        self, arriving: Callable[[], bool] = _no_arrival, *, is_expected: bool = False
    ) -> None:
        """Run one pass; its events are delivered where they arise.

        `arriving` is asked during the pass: whether another request can be started now.
        `is_expected`: one will be submitted as soon as its prompt is built.
        """
        self._arriving, self._is_expected = arriving, is_expected
        for one in self._running:
            if one.request.cancellation.is_cancelled:
                self.drop_cancelled()
                break
        if self._waiting:
            self.drop_cancelled()
            self._admit()
        if self._readings and (reading := self._due_reading()) is not None and self._read(reading):
            return
        if not self._running:
            return
        try:
            calls = self._running, self._checkpoint, self._decode, self._fail
            if (rows := self._schedule()) and not encode_missing(self.sight, rows, *calls):
                self._run(rows)
        except Cancelled:
            self.drop_cancelled()
        except BaseException as fault:  # noqa: BLE001  each request gets its final event
            error = memory_error(fault)
            is_retried = error is not None and not self._refused
            if error is None or not self._give_memory_back():
                if not self.runner.is_of_device(fault):
                    self._fail_running(fault if error is None else error)
                elif not is_retried:  # with what the caches gave back
                    self.device_fault = without_frames(fault)  # the caller moves the model
                    return
            for generation in self._running:
                generation.rewind()

    def leave_device(self) -> FailoverState:
        """Take the requests out, to go on with another scheduler; pages and drafts are given up."""
        items: list[SequenceGroup | RunningSequence] = [*self._running, *self._waiting]
        found = FailoverState(items, self.metrics, self._interrupted).left()
        self._running, self._waiting = [], deque()
        for reading in self._readings:
            reading.fail(moved_error(EngineError("the texts are not read.", "")))
        with suppress(Exception):
            self._give_memory_back()
        return found

    def take_over(self, state: FailoverState, moved: Callable[[Stack], Stack]) -> None:
        """Process requests of another scheduler once more.

        `moved` returns a stack for this model, or raises EngineError, which ends the request.
        """
        self.metrics, self._interrupted = state.metrics, state.interrupted
        for item in state.items:
            self._waiting.append(item)
            try:
                state.move(item, self._new_sequence(), moved)
            except EngineError as error:
                self._fail(item.group, error)

    def stop(self, error: BaseException) -> None:
        """End every request with an error."""
        for item in [*self._waiting, *self._running]:
            self._fail(item.group, error)
        for reading in self._readings:
            reading.fail(error)

    # --- given texts ----------------------------------------------------------------------------

    def read(self, reading: TextReading) -> Generator[Awaited, None, None]:
        """Read given texts between the passes of answers; yields what ends with them.

        Raises what `reading` ended with. Closing it cancels them.
        """
        reading.token_seconds = max(reading.token_seconds, self._token_seconds)
        self._readings.append(reading)
        try:
            while not reading.done:
                yield reading
        finally:
            self._readings.remove(reading)
            if not reading.done:
                reading.fail(Cancelled())
        if reading.error is not None:
            raise reading.error

    def _due_reading(self) -> TextReading | None:
        """The given texts that the next pass reads; None: it is the turn of answers and prompts."""
        readings = [one for one in self._readings if not one.done]
        if not readings:
            return None
        reading = min(readings, key=lambda one: (one.priority, one.served))
        if _outranks(reading.priority, self._running):
            return reading
        prompts = [one for one in self._running if one.is_prefilling]
        if len(prompts) < len(self._running) and self._prompt_seconds > 0:
            return None
        turn = reading.priority, reading.served
        is_first = all(turn <= (one.request.priority, one.served) for one in prompts)
        return reading if is_first else None

    def _read(self, reading: TextReading) -> bool:
        """Run a pass over given texts; False if they wait for pages that answers hold."""
        started = time.perf_counter()
        reading.served = next(self._passes)

        def checkpoint() -> None:
            self.between_layers(None)
            if reading.is_cancelled:
                raise Cancelled

        alone = not self._running and len(self._readings) == 1 and self._is_unshared
        seconds = math.inf if alone else self._pass_seconds(reading.priority, self._running)
        try:
            most = reading.tokens_at_once(seconds)
            read = reading.read(most, self._new_sequence, self._has_pages, checkpoint)
        except BaseException as fault:  # noqa: BLE001  who asked gets it
            reading.fail(fault)
            return True
        if not read:
            reading.restart()
            if not self._running and self._is_starved():
                reading.fail(out_of_pages())
            return not self._running
        seconds = time.perf_counter() - started
        self._starved_since = 0.0
        reading.token_seconds = (reading.token_seconds + seconds / sum(read)) / 2
        self.metrics.on_pass(len(read))
        self.metrics.embedded_tokens += sum(read)
        if not all(one.is_prefilling for one in self._running):
            self._prompt_seconds = min(self._prompt_seconds + seconds, _MOST_OWED_SECONDS)
        return True

    def _new_sequence(self) -> CachedSequence:
        fits = None if self.sight is None else self.sight.fits
        return CachedSequence(self.pool, self.context, fits)

    def _has_pages(self, sequence: CachedSequence, tokens: int, more: int) -> bool:
        """Whether a sequence got pages for some tokens of a text, beside answers with room for all."""
        if not self.tree.evict(sequence.bytes_to_append(more)) and self._running:
            return False
        return self._reserve(sequence, tokens)

    # --- schedule -------------------------------------------------------------------------------

    def drop_cancelled(self) -> None:
        """End the requests that were cancelled, and give their pages back."""
        for item in list(self._waiting):
            if item.request.cancellation.is_cancelled:
                self._waiting.remove(item)
                if isinstance(item, SequenceGroup):
                    item = self._begun(item, self._new_sequence())
                self._cancel(item)
        for one in list(self._running):
            if one.request.cancellation.is_cancelled:
                self._running.remove(one)
                self._cancel(one)

    def _cancel(self, one: RunningSequence) -> None:
        """End an answer, and with it those to the same prompt that have not begun."""
        if not one.group.forked:
            one.group.open_answers = 1
        self._finish(one, FinishReason.CANCELLED)

    def _admit(self) -> None:
        """Start waiting requests, foreground first, while there is memory for their prompts."""
        while not (self._refused and self._running):
            ready = [
                item for item in self._waiting if not is_in_progress(item, self._running, self.tree)
            ]
            if not ready:
                return
            item = min(ready, key=lambda one: one.request.priority)
            answers = sum(map(self._answers, self._running)) + self._answers(item)
            is_full = bool(self._running) and answers > self._most_running
            if is_full or not self._start(item):
                return
            self._waiting.remove(item)

    def _answers(self, item: SequenceGroup | RunningSequence) -> int:
        """Number of answers that this one becomes once its prompt is processed."""
        return 1 if item.group.forked else item.request.count

    def _start(self, item: SequenceGroup | RunningSequence) -> bool:
        """Find the cached prefix of a request and let it run; False: no memory now."""
        request = item.request
        tokens = request.prompt if isinstance(item, SequenceGroup) else item.pending
        share(request.stack.key, tokens, self._running, self.tree)
        match = longest_cached(self.tree, request.stack.key, tokens, self.sight)
        sequence = self._new_sequence()
        sequence.adopt(tokens[: match.length], match.pages)
        wanted = sequence.bytes_to_append(len(tokens) - match.length + 1)
        if not self.tree.evict(wanted) and self._running:
            sequence.release()
            return False
        if isinstance(item, SequenceGroup):
            generation = self._begun(item, sequence)
            generation.reused_tokens = match.length
            self._progress(generation, match.length)
        else:
            generation = item
            generation.restart(sequence)
        generation.pending = list(tokens[match.length :])
        self._running.append(generation)
        return True

    def _begun(self, group: SequenceGroup, sequence: CachedSequence) -> RunningSequence:
        """The first answer to a request."""
        return RunningSequence(group, self._tokenizer, sequence, self._costs, matcher=group.matcher)

    def _schedule(self) -> list[tuple[RunningSequence, int]]:
        """The answers of the next pass and how many pending tokens each appends.

        Every answer decodes a token, and verifies a draft where no prompt is processed beside it; of
        the prompts, foreground ones first, the one that was served least recently is processed
        further, unless it is the turn of the answers.
        """
        rows: list[tuple[RunningSequence, int]] = []
        prompts: list[RunningSequence] = []
        planned = 0  # tokens
        # Plain loops: this runs before every token.
        for one in self._running:
            if one.is_prefilling:
                prompts.append(one)
            else:
                rows.append((one, len(one.pending)))
                planned += len(one.pending)
        if prompts:
            prompts = self._with_prompt(rows, prompts)
        has_room = True
        for one, count in rows:
            if one.speculation is not None:
                if prompts:
                    one.shorten_draft(0)
                else:
                    one.propose(planned)
                    planned += len(one.draft)
            sequence, needed = one.sequence, count + len(one.draft)
            has_room = has_room and len(sequence.tokens) + needed <= sequence.reserved
        if has_room:
            self._starved_since = 0.0
            return rows
        return self._with_pages(rows)

    def _with_prompt(
        self, rows: list[tuple[RunningSequence, int]], prompts: list[RunningSequence]
    ) -> list[RunningSequence]:
        """Add a part of a prompt to the rows of answers, unless it is their turn; returns the prompts
        that may be processed now.
        """
        beside = [one for one, _ in rows]
        if rows and self._prompt_seconds > _BURST_SECONDS:
            prompts = [one for one in prompts if _outranks(one.request.priority, beside)]
        if prompts:
            prompt = min(prompts, key=lambda one: (one.request.priority, one.served))
            count = min(self._chunk(prompt, beside), len(prompt.pending))
            count = count if self.sight is None else self.sight.cut(prompt.pending, count)
            rows.append((prompt, count))
            prompt.served = next(self._passes)
            prompt.group.was_alone &= len(self._running) == 1 and not self._readings
        return prompts

    def _chunk(self, prompt: RunningSequence, beside: Sequence[RunningSequence]) -> int:
        """Tokens of a prompt to process in a pass with these answers, by the measured time."""
        if not beside and self._is_alone:
            return self.runner.chunk
        fitting = int(self._pass_seconds(prompt.request.priority, beside) / self._token_seconds)
        return min(max(fitting, _SMALLEST_CHUNK), self.runner.chunk)

    def _pass_seconds(self, priority: Priority, beside: Sequence[RunningSequence]) -> float:
        """How long a pass over a prompt or given texts may take, with these answers beside it."""
        if beside and _outranks(priority, beside):
            return _URGENT_SECONDS
        return _SHARED_SECONDS if beside or self.is_beside else _CHUNK_SECONDS

    @property
    def _is_alone(self) -> bool:
        return len(self._running) == 1 and not self._readings and self._is_unshared

    @property
    def _is_unshared(self) -> bool:
        """Whether nothing waits for the pass of what runs."""
        return not (self._waiting or self._is_expected or self.is_beside)

    def _with_pages(
        self, rows: list[tuple[RunningSequence, int]]
    ) -> list[tuple[RunningSequence, int]]:
        """The rows that have pages for their tokens; others are preempted, the last one first.

        One answer alone has room for its whole context, once the pages that are being saved are
        released: until then there are no rows.
        """
        kept: list[tuple[RunningSequence, int]] = []
        for generation, count in rows:
            while generation in self._running and not self._reserve(
                generation.sequence, count + len(generation.draft)
            ):
                if generation.draft:
                    generation.shorten_draft(0)
                elif any(one.restart() for one in self._readings):
                    continue
                elif len(self._running) == 1:
                    if self._is_starved():
                        self._fail(generation.group, out_of_pages())
                    return []
                else:
                    self._preempt()
            if generation in self._running:
                kept.append((generation, count))
        self._starved_since = 0.0
        return [row for row in kept if row[0] in self._running]

    def _is_starved(self) -> bool:
        """Pause for a moment while no pages are free; whether it has been so for some seconds."""
        now = time.monotonic()
        self._starved_since = self._starved_since or now
        if now - self._starved_since < _STARVED_SECONDS:
            time.sleep(_POLL_SECONDS)
            return False
        self._starved_since = 0.0
        return True

    def _reserve(self, sequence: CachedSequence, count: int) -> bool:
        while True:
            try:
                sequence.reserve(count)
            except OutOfPages:
                if not self.tree.evict(sequence.missing_bytes(count)):
                    return False
            else:
                return True

    def _preempt(self) -> None:
        """Take the pages of the least urgent answer that started last; it waits and starts again."""
        generation = max(
            self._running, key=lambda one: (one.request.priority, self._running.index(one))
        )
        self._running.remove(generation)
        self.tree.insert(generation.request.stack.key, generation.sequence, checkpoint=False)
        generation.sequence.release()
        generation.pending, generation.is_prefilling = list(generation.text), True
        self._waiting.appendleft(generation)

    # --- run ------------------------------------------------------------------------------------

    def _run(self, rows: list[tuple[RunningSequence, int]]) -> None:
        """Run a pass over the rows, then sample where the next token is due."""
        started = time.perf_counter()
        ahead: list[tuple[Matcher, Sequence[int]]] = []
        work: list[Rows] = []
        before: list[int] = []  # pages of each
        planned = drafts = 0  # tokens without drafts; answers with one
        # Plain loops: this runs before every token.
        for one, count in rows:
            planned += count
            drafts += 1 if one.draft else 0
            is_end = count == len(one.pending)
            if is_end and one.matcher is not None and not one.is_forced:
                ahead.append((one.matcher, one.draft))
            tokens = [*one.pending[:count], *one.draft]
            wanted = 1 + len(one.draft) if is_end else 0  # logits, once the text ends
            work.append(Rows(one.sequence, tokens, one.request.stack, wanted))
            before.append(len(one.sequence.tokens) // PAGE_TOKENS)
        self._is_long = planned * self._token_seconds > _CHUNK_SECONDS and self._is_alone
        if ahead:
            lookahead(ahead)
        logits = self.runner.step(work, self._checkpoint)
        self.metrics.on_pass(len(rows), drafts)
        drawn: Sequence[int | None] = [None] * len(rows)
        if self.runner.device_sampler is not None:
            drawn = sample_on_device(self.runner.device_sampler, [one for one, _ in rows], logits)
        self._refused = False
        seconds = time.perf_counter() - started
        self._measure(rows, seconds)
        for row, pages, found, token in zip(rows, before, logits, drawn, strict=True):
            generation, count = row
            if generation not in self._running:  # another answer to its prompt has failed
                continue
            if generation.is_prefilling:
                self._advance(generation, count)
                generation.prefill_seconds += time.perf_counter() - started
            if generation.is_prefilling:
                continue
            self._sample(generation, found, token, seconds)
            has_page = len(generation.sequence.tokens) // PAGE_TOKENS > pages
            if has_page and generation in self._running:
                self._insert(generation, checkpoint=False)

    def _decode(self) -> None:
        """Run a pass of the answers beside a prompt."""
        beside = [(one, len(one.pending)) for one in self._running if not one.is_prefilling]
        if beside and (rows := self._with_pages(beside)):
            self._run(rows)

    def _advance(self, generation: RunningSequence, count: int) -> None:
        """After a pass over so many tokens of a prompt: its pages are found by other prompts."""
        del generation.pending[:count]
        generation.is_prefilling = bool(generation.pending)
        self._insert(generation, checkpoint=not generation.is_prefilling)
        if not generation.has_begun:
            self._progress(generation, len(generation.sequence))

    def _insert(self, generation: RunningSequence, *, checkpoint: bool) -> None:
        key = generation.request.stack.key
        self.tree.insert(key, generation.sequence, whole_pages=True, checkpoint=checkpoint)

    def _sample(
        self, generation: RunningSequence, logits: Tensor, drawn: int | None, seconds: float
    ) -> None:
        """The next tokens of an answer; at the end of a prompt the first one of all its answers."""
        group, answers = generation.group, (generation,)
        if not group.forked:
            answers += tuple(map(generation.fork, range(1, generation.request.count)))
            self._running += answers[1:]
            group.forked = True
        for one in answers:
            try:
                one.accept(logits, seconds, drawn)
            except EngineError as error:
                self._fail(group, error)
                return
            if one.reason is not None:
                self._running.remove(one)
                self._finish(one)

    def _checkpoint(self) -> None:
        self.between_layers(self)
        for one in self._running:
            if one.request.cancellation.is_cancelled:
                raise Cancelled
        if self._is_long and self._arriving():
            for one in self._running:
                one.group.was_alone = False
            raise Cancelled  # the chunk is processed again, in pieces beside the other request

    def _measure(self, rows: list[tuple[RunningSequence, int]], seconds: float) -> None:
        """Learn how long a token of a prompt takes, from passes that were mostly a prompt, and how
        long a pass without prompts takes.
        """
        tokens, has_prompt = 0, False
        for one, count in rows:
            tokens += count + len(one.draft)
            has_prompt = has_prompt or one.is_prefilling
        if not has_prompt or len(rows) == 1:
            self._prompt_seconds = max(self._prompt_seconds - seconds, 0.0)
        else:
            self._prompt_seconds = min(self._prompt_seconds + seconds, _MOST_OWED_SECONDS)
        if not has_prompt:
            self._costs.learn(tokens, seconds)
        elif tokens >= 2 * _SMALLEST_CHUNK:
            self._token_seconds = (self._token_seconds + seconds / tokens) / 2

    # --- end ------------------------------------------------------------------------------------

    def _finish(self, generation: RunningSequence, reason: FinishReason | None = None) -> None:
        """Emit the final events of an answer, and keep its pages for prompts that continue it."""
        request, group = generation.request, generation.group
        is_last = group.open_answers == 1
        ended = generation.finish(reason, is_last=is_last)
        self.metrics.add(ended, generation.times)
        group.open_answers -= 1
        group.tokens = generation.text
        group.answers[generation.index] = generation.tokens
        has_state = bool(generation.generated) or request.resume is not None
        if has_state and generation.reason not in (FinishReason.END, FinishReason.STOP):
            self.remember(request.stack.key, group.tokens, generation.sampler_state)
        self._keep(generation)
        request.on_end(request.stack, [*request.prompt, *generation.tokens])
        group.emit(ended)
        group.done = group.done or is_last

    def _keep(self, generation: RunningSequence) -> None:
        self.tree.insert(generation.request.stack.key, generation.sequence)
        generation.release()

    def _fail(self, group: SequenceGroup, error: BaseException) -> None:
        """End all answers to a request with an error; what it has processed stays cached."""
        for item in [one for one in self._waiting if one.group is group]:
            self._waiting.remove(item)
        for generation in [one for one in self._running if one.group is group]:
            self._running.remove(generation)
            self._keep(generation)
        group.fail(error)

    def _fail_running(self, error: BaseException) -> None:
        for generation in list(self._running):
            self._fail(generation.group, error)

    def _give_memory_back(self) -> bool:
        """After the system refused memory: free spare pages and end the answer that came last.

        False if one answer runs alone: it cannot go on.
        """
        self._refused = True
        self.tree.evict(self.pool.budget_bytes, keep=False)
        self.pool.trim()
        free_images(self.sight, self._running)
        if len(self._running) < 2:
            return False
        self._preempt()
        return True

    def _progress(self, generation: RunningSequence, done: int) -> None:
        request = generation.request
        total, reused = len(request.prompt), generation.reused_tokens
        event = PromptProgress(request.number, done, total, reused, request.dropped_turns)
        request.on_prompt(done, total)
        generation.group.emit(event)


def _outranks(priority: Priority, answers: Sequence[RunningSequence]) -> bool:
    """Whether work of a priority comes before all of these answers."""
    return all(priority < one.request.priority for one in answers)
