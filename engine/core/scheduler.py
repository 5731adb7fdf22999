"""Scheduler: continuous batching of answers over one model, their KV pages and a prefix tree.

Each step schedules rows, runs one pass and samples. All running answers decode in one pass. Several
prompts take turns in chunks of at most a second, the newest first; beside answers the chunks are
shorter, and passes that only decode have as much time as they. A longer chunk of a prompt alone is
abandoned when another request arrives.
Prompts begin with the longest cached prefix; one that begins like a prompt in progress waits for
that part of it. When pages run out, cached ones are evicted, then the answer that started last
gives its pages back and is processed again later: its bits do not change.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from torch import Tensor

from engine.adapters.stack import Stack
from engine.core.device_sampling import draw_on_device
from engine.core.generate import Generation, Request, SamplerState, check
from engine.core.inflight_prefix import is_in_progress, share
from engine.core.metrics import Metrics
from engine.core.prompt import reuse_cached_ids
from engine.core.runner import Rows, Runner
from engine.core.suspended import Suspended, without_frames
from engine.core.ticket import Ticket
from engine.errors import Cancelled, EngineError, OutOfMemory
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher, lookahead
from engine.frontend.constraints.resume_matcher import matcher_at_end
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.machine.device import memory_error
from engine.messages import Finished, FinishReason, PromptProgress
from engine.sampling import check as check_sampling
from engine.speculative.costs import StepCosts
from engine.state.pages import OutOfPages, PagePool
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence as CachedSequence
from kernels.kv_pages import PAGE_TOKENS

MOST_RUNNING = 16  # answers decoded together
_CHUNK_SECONDS = 1.0  # of a prompt while another request waits for it, at most
_SHARED_SECONDS = 0.12  # of a prompt's chunk while other answers are being generated
_BURST_SECONDS = 0.12  # that prompts may have beside answers before passes only decode
_SMALLEST_CHUNK = 16  # tokens
_INTERRUPTED = 32  # answers whose sampler state is remembered
_STARVED_SECONDS, _POLL_SECONDS = 30.0, 0.005  # an answer alone waits for pages being saved
_COMPARED_TEXTS = 32  # cached texts compared with a prompt, the last used ones


def _no_arrival() -> bool:
    return False


class Scheduler:
    """Runs requests together; used by the engine thread only."""

    def __init__(
        self,
        runner: Runner,
        pool: PagePool,
        tree: PrefixTree,
        tokenizer: Tokenizer,
        context: int,
    ) -> None:
        """`context` is the capacity of one sequence in tokens; the pool has room for it."""
        self.runner = runner
        self.pool, self.tree = pool, tree
        self.context = context
        self._tokenizer = tokenizer
        self._waiting: deque[Ticket | Generation] = deque()  # generations were preempted
        self._running: list[Generation] = []
        self._tickets: dict[int, Ticket] = {}  # by identity of the request
        self._passes = itertools.count(1)
        self._token_seconds = runner.token_seconds  # of a prompt, running mean
        self._prompt_seconds = 0.0  # that prompts had beside answers, more than passes without them
        self.grammars = Grammars(tokenizer, runner.model.head.weight.shape[0])
        self._costs = StepCosts()  # of passes that only decode
        self._busy_costs = StepCosts()  # of those beside a thread that drafts
        self.metrics = Metrics()
        self._refused = False  # the system refused memory, and no pass has run since
        self._starved_since = 0.0  # time since which an answer alone has no pages; 0: it has
        self._interrupted: dict[tuple[str, tuple[int, ...]], SamplerState] = {}
        self._arriving = _no_arrival
        self._is_expected = False
        self._is_long = False  # the pass in progress is a prompt alone, for longer than a chunk
        self.device_fault: BaseException | None = None  # what a device raised in the last pass

    @property
    def is_busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def running(self) -> int:
        """Number of answers in progress."""
        return len(self._running)

    @property
    def sequences(self) -> list[CachedSequence]:
        """The sequences of the answers in progress."""
        return [one.sequence for one in self._running]

    def submit(self, request: Request) -> Ticket:
        """Queue a request. Raises PromptTooLong, or RequestError for an option out of range.

        If its prompt ends with an interrupted answer, the sampler and the constraint continue where
        that stopped.
        """
        check(request, self.context)
        check_sampling(request.sampling, self._tokenizer.size)
        key = request.stack.key, tuple(request.prompt)
        request.resume = request.resume or self._interrupted.pop(key, None)
        ticket = Ticket(request, self._matcher(request), open_answers=request.count)
        self._tickets[id(request)] = ticket
        self._waiting.append(ticket)
        return ticket

    def _matcher(self, request: Request) -> Matcher | None:
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

    def run(self, request: Request) -> Ticket:
        """Submit a request and run until it is done; raises its error."""
        ticket = self.submit(request)
        while not ticket.done:
            self.step()
        if ticket.error is not None:
            raise ticket.error
        return ticket

    def step(
        self, arriving: Callable[[], bool] = _no_arrival, *, is_expected: bool = False
    ) -> None:
        """Run one pass; events are added to the tickets.

        `arriving` is asked during the pass: whether another request can be started now.
        `is_expected`: one will be submitted as soon as its prompt is built.
        """
        self._arriving, self._is_expected = arriving, is_expected
        self._drop_cancelled()
        self._admit()
        if not self._running:
            return
        try:
            rows = self._schedule()
            if rows:
                self._run(rows)
        except Cancelled:
            self._drop_cancelled()
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

    def suspend(self) -> Suspended:
        """Take the requests out, to go on with another scheduler; pages and drafts are given up."""
        items: list[Ticket | Generation] = [*self._running, *self._waiting]
        found = Suspended(items, self._tickets, self.metrics, self._interrupted).left()
        self._running, self._waiting, self._tickets = [], deque(), {}
        with suppress(Exception):
            self._give_memory_back()
        return found

    def resume(self, suspended: Suspended, moved: Callable[[Stack], Stack]) -> None:
        """Process requests of another scheduler once more.

        `moved` returns a stack for this model, or raises EngineError, which ends the request.
        """
        self._tickets, self.metrics = suspended.tickets, suspended.metrics
        self._interrupted = suspended.interrupted
        for item in suspended.items:
            self._waiting.append(item)
            try:
                suspended.move(item, CachedSequence(self.pool, self.context), moved)
            except EngineError as error:
                self._fail(item.request, error)

    def stop(self, error: BaseException) -> None:
        """End every request with an error."""
        self._waiting.clear()
        for ticket in list(self._tickets.values()):
            self._fail(ticket.request, error)

    # --- schedule -------------------------------------------------------------------------------

    def _drop_cancelled(self) -> None:
        for item in list(self._waiting):
            request = item.request
            if request.cancelled():
                self._waiting.remove(item)
                if isinstance(item, Ticket):
                    item = self._begun(item, CachedSequence(self.pool, self.context))
                self._cancel(item)
        for generation in list(self._running):
            if generation.request.cancelled():
                self._running.remove(generation)
                self._cancel(generation)

    def _cancel(self, generation: Generation) -> None:
        """End an answer, and with it those to the same prompt that have not begun."""
        ticket = self._ticket(generation)
        if not ticket.forked:
            ticket.open_answers = 1
        self._finish(generation, FinishReason.CANCELLED)

    def _admit(self) -> None:
        """Start waiting requests, foreground first, while there is memory for their prompts."""
        while not (self._refused and self._running):
            ready = [
                item for item in self._waiting if not is_in_progress(item, self._running, self.tree)
            ]
            if not ready:
                return
            item = min(ready, key=lambda one: one.request.background)
            answers = sum(map(self._answers, self._running)) + self._answers(item)
            if answers > MOST_RUNNING or not self._start(item):
                return
            self._waiting.remove(item)

    def _answers(self, item: Ticket | Generation) -> int:
        """Number of answers that this one becomes once its prompt is processed."""
        ticket = item if isinstance(item, Ticket) else self._ticket(item)
        return 1 if ticket.forked else item.request.count

    def _start(self, item: Ticket | Generation) -> bool:
        """Find the cached prefix of a request and let it run; False: no memory now."""
        request = item.request
        tokens = request.prompt if isinstance(item, Ticket) else item.pending
        share(request.stack.key, tokens, self._running, self.tree)
        # The last token is always computed: its logits give the first token of the answer.
        match = self.tree.match(request.stack.key, tokens, len(tokens) - 1)
        sequence = CachedSequence(self.pool, self.context)
        sequence.adopt(tokens[: match.length], match.pages)
        wanted = sequence.bytes_to_append(len(tokens) - match.length + 1)
        if not self.tree.evict(wanted) and self._running:
            sequence.release()
            return False
        if isinstance(item, Ticket):
            generation = self._begun(item, sequence)
            generation.reused_tokens = match.length
            self._progress(generation, match.length)
        else:
            generation = item
            generation.restart(sequence)
        generation.pending = list(tokens[match.length :])
        self._running.append(generation)
        return True

    def _begun(self, ticket: Ticket, sequence: CachedSequence) -> Generation:
        """The first answer to a request."""
        return Generation(
            ticket.request,
            self._tokenizer,
            sequence,
            (self._costs, self._busy_costs),
            matcher=ticket.matcher,
        )

    def _schedule(self) -> list[tuple[Generation, int]]:
        """The answers of the next pass and how many pending tokens each appends.

        Every answer decodes a token, and verifies a draft where no prompt is processed beside it; of
        the prompts, foreground ones first, the one that was served least recently is processed
        further, unless it is the turn of the answers.
        """
        rows = [(one, len(one.pending)) for one in self._running if not one.is_prefilling]
        prompts = [one for one in self._running if one.is_prefilling]
        if rows and self._prompt_seconds > _BURST_SECONDS:
            foreground = any(not one.request.background for one, _ in rows)
            prompts = [one for one in prompts if not (foreground or one.request.background)]
        if prompts:
            prompt = min(prompts, key=lambda one: (one.request.background, one.served))
            chunk = self._chunk(beside_answers=bool(rows))
            rows.append((prompt, min(chunk, len(prompt.pending))))
            prompt.served = next(self._passes)
            self._ticket(prompt).was_alone &= len(self._running) == 1
        planned = sum([count for _, count in rows])
        for one, _ in rows:
            if prompts:
                one.shorten_draft(0)
            else:
                one.propose(planned)
                planned += len(one.draft)
        return self._with_pages(rows)

    def _chunk(self, *, beside_answers: bool) -> int:
        """Tokens of a prompt to process in a pass, by the measured time of a token."""
        if not beside_answers and self._is_alone:
            return self.runner.chunk
        seconds = _SHARED_SECONDS if beside_answers else _CHUNK_SECONDS
        fitting = int(seconds / self._token_seconds)
        return min(max(fitting, _SMALLEST_CHUNK), self.runner.chunk)

    @property
    def _is_alone(self) -> bool:
        return len(self._running) == 1 and not self._waiting and not self._is_expected

    def _with_pages(self, rows: list[tuple[Generation, int]]) -> list[tuple[Generation, int]]:
        """The rows that have pages for their tokens; others are preempted, the last one first.

        One answer alone has room for its whole context, once the pages that are being saved are
        released: until then there are no rows.
        """
        kept: list[tuple[Generation, int]] = []
        for generation, count in rows:
            while generation in self._running and not self._reserve(generation, count):
                if generation.draft:
                    generation.shorten_draft(0)
                elif len(self._running) == 1:
                    self._wait_for_pages(generation)
                    return []
                else:
                    self._preempt()
            if generation in self._running:
                kept.append((generation, count))
        self._starved_since = 0.0
        return [row for row in kept if row[0] in self._running]

    def _wait_for_pages(self, generation: Generation) -> None:
        """Pause for a moment; after some seconds the answer fails."""
        now = time.monotonic()
        self._starved_since = self._starved_since or now
        if now - self._starved_since < _STARVED_SECONDS:
            time.sleep(_POLL_SECONDS)
            return
        self._starved_since = 0.0
        error = OutOfMemory(
            "The memory for cached conversations is used up.",
            "Choose a shorter context in the model's settings, or load the model again.",
        )
        self._fail(generation.request, error)

    def _reserve(self, generation: Generation, count: int) -> bool:
        count += len(generation.draft)
        while True:
            try:
                generation.sequence.reserve(count)
            except OutOfPages:
                if not self.tree.evict(generation.sequence.missing_bytes(count)):
                    return False
            else:
                return True

    def _preempt(self) -> None:
        """Take the pages of the answer that started last; it waits and starts again."""
        generation = max(
            self._running, key=lambda one: (one.request.background, self._running.index(one))
        )
        self._running.remove(generation)
        self.tree.insert(generation.request.stack.key, generation.sequence, checkpoint=False)
        generation.sequence.release()
        generation.pending, generation.is_prefilling = list(generation.text), True
        self._waiting.appendleft(generation)

    # --- run ------------------------------------------------------------------------------------

    def _run(self, rows: list[tuple[Generation, int]]) -> None:
        """Run a pass over the rows, then sample where the next token is due."""
        started = time.perf_counter()
        predicted = sum([count for _, count in rows]) * self._token_seconds
        self._is_long = self._is_alone and predicted > _CHUNK_SECONDS
        ahead = [one.ahead() for one, count in rows if count == len(one.pending)]
        lookahead([each for each in ahead if each is not None])
        before = [len(one.sequence) // PAGE_TOKENS for one, _ in rows]
        logits = self.runner.step([_rows(one, count) for one, count in rows], self._checkpoint)
        drawn = draw_on_device(self.runner.drawer, [one for one, _ in rows], logits)
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
            if len(generation.sequence) // PAGE_TOKENS > pages and generation in self._running:
                self._insert(generation, checkpoint=False)

    def _advance(self, generation: Generation, count: int) -> None:
        """After a pass over so many tokens of a prompt: its pages are found by other prompts."""
        del generation.pending[:count]
        generation.is_prefilling = bool(generation.pending)
        self._insert(generation, checkpoint=not generation.is_prefilling)
        if not generation.has_begun:
            self._progress(generation, len(generation.sequence))

    def _insert(self, generation: Generation, *, checkpoint: bool) -> None:
        key = generation.request.stack.key
        self.tree.insert(key, generation.sequence, whole_pages=True, checkpoint=checkpoint)

    def _sample(
        self, generation: Generation, logits: Tensor, drawn: int | None, seconds: float
    ) -> None:
        """The next tokens of an answer; at the end of a prompt the first one of all its answers."""
        answers, ticket = [generation], self._ticket(generation)
        if not ticket.forked:
            answers += [generation.fork(index) for index in range(1, generation.request.count)]
            self._running += answers[1:]
            ticket.forked = True
        for one in answers:
            try:
                ticket.events += one.accept(logits, seconds, drawn)
            except EngineError as error:
                self._fail(one.request, error)
                return
            if one.reason is not None:
                self._running.remove(one)
                self._finish(one)

    def _checkpoint(self) -> None:
        if any(one.request.cancelled() for one in self._running):
            raise Cancelled
        if self._is_long and self._arriving():
            for one in self._running:
                self._ticket(one).was_alone = False
            raise Cancelled  # the chunk is processed again, in pieces beside the other request

    def _measure(self, rows: list[tuple[Generation, int]], seconds: float) -> None:
        """Learn how long a token of a prompt takes, from passes that were mostly a prompt, and how
        long a pass without prompts takes.
        """
        tokens = sum([count + len(one.draft) for one, count in rows])
        has_prompt = any(one.is_prefilling for one, _ in rows)
        if not has_prompt or len(rows) == 1:
            self._prompt_seconds = max(self._prompt_seconds - seconds, 0.0)
        else:
            self._prompt_seconds += seconds
        if not has_prompt:
            is_busy = any(one.runs_beside_drafts for one, _ in rows)
            (self._busy_costs if is_busy else self._costs).learn(tokens, seconds)
        elif tokens >= 2 * _SMALLEST_CHUNK:
            self._token_seconds = (self._token_seconds + seconds / tokens) / 2

    # --- end ------------------------------------------------------------------------------------

    def _finish(self, generation: Generation, reason: FinishReason | None = None) -> None:
        """Add the final events of an answer, and keep its pages for prompts that continue it."""
        request, ticket = generation.request, self._ticket(generation)
        for event in generation.finish(reason):
            ticket.events.append(event)
            if isinstance(event, Finished):
                self.metrics.add(event, generation.times)
        ticket.open_answers -= 1
        ticket.tokens = generation.text
        ticket.answers[generation.index] = generation.tokens
        has_state = bool(generation.generated) or request.resume is not None
        if has_state and generation.reason not in (FinishReason.END, FinishReason.STOP):
            self.remember(request.stack.key, ticket.tokens, generation.sampler_state)
        self._keep(generation)
        if ticket.done:
            self._tickets.pop(id(request), None)

    def _keep(self, generation: Generation) -> None:
        self.tree.insert(generation.request.stack.key, generation.sequence)
        generation.release()

    def _fail(self, request: Request, error: BaseException) -> None:
        """End all answers to a request with an error; what it has processed stays cached."""
        ticket = self._tickets.pop(id(request), None)
        for item in [one for one in self._waiting if one.request is request]:
            self._waiting.remove(item)
        for generation in [one for one in self._running if one.request is request]:
            self._running.remove(generation)
            self._keep(generation)
        if ticket is not None:
            ticket.error = error

    def _fail_running(self, error: BaseException) -> None:
        for generation in list(self._running):
            self._fail(generation.request, error)

    def _give_memory_back(self) -> bool:
        """After the system refused memory: free spare pages and end the answer that came last.

        False if one answer runs alone: it cannot go on.
        """
        self._refused = True
        self.tree.evict(self.pool.budget_bytes, keep=False)
        self.pool.trim()
        if len(self._running) < 2:
            return False
        self._preempt()
        return True

    def _ticket(self, generation: Generation) -> Ticket:
        return self._tickets[id(generation.request)]

    def _progress(self, generation: Generation, done: int) -> None:
        number, total = generation.request.number, len(generation.request.prompt)
        event = PromptProgress(number, done, total, generation.reused_tokens)
        self._ticket(generation).events.append(event)


def _rows(generation: Generation, count: int) -> Rows:
    """The next `count` pending tokens of an answer and its draft; logits once the text ends."""
    wanted = 1 + len(generation.draft) if count == len(generation.pending) else 0
    tokens = [*generation.pending[:count], *generation.draft]
    return Rows(generation.sequence, tokens, generation.request.stack, wanted)
