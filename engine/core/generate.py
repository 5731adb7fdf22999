"""Generation: one answer in progress, from its prompt to the end token or a stop string.

It holds everything that differs between the answers that run together: tokens and KV pages, the
sampler, the text decoder and the stop strings. The scheduler runs the model and passes the logits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Tokens
from contextlib import suppress
from dataclasses import dataclass, field, replace

from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.logprobs import token_logprobs
from engine.core.metrics import TokenTimes
from engine.core.prompt import common_length
from engine.errors import Fault, FaultKind, PromptTooLong, RequestError
from engine.frontend.answer_stream import AnswerStream, Kind, Piece
from engine.frontend.banned_texts import BannedTexts, TakenBack
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.reasoning_budget import ThoughtPlan, Thoughts
from engine.frontend.repetition import RepetitionGuard
from engine.frontend.stop_filter import StopFilter
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import (
    THOUGHT_OPENS,
    Constraint,
    Finished,
    FinishReason,
    Sampling,
    Text,
    Thought,
    TokenLogprobs,
)
from engine.sampling import Sampler
from engine.speculative.costs import StepCosts
from engine.speculative.drafter import Drafter
from engine.speculative.speculation import Speculation
from engine.state.sequence import Sequence as CachedSequence
from kernels.draw import Draw

log = logging.getLogger(__name__)

MOST_ANSWERS = 16  # to one prompt
_CHARACTER_BYTES = 4  # at most, in UTF-8
_MOST_FORCED = 128  # tokens of a constraint that one pass processes
_LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SamplerState:
    """State needed to resume an interrupted answer."""

    sampling: Sampling
    seed: int  # that was drawn with, also where `sampling` leaves it open
    mu: float  # of mirostat
    constraint: Constraint | None = None
    begin: int | None = None  # token of the text where the constrained answer begins, if known


@dataclass(slots=True)
class Request:
    """What to generate: a prompt of token ids and how to continue it."""

    prompt: Tokens[int]
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen
    number: int = 0  # id of the request in its events
    max_tokens: int = 0  # 0: no limit
    stop: Tokens[str] = ()
    opening: str = ""  # text at the end of the prompt that belongs to the answer
    count: int = 1  # answers to the one prompt
    stack: Stack = NO_ADAPTERS
    background: bool = False  # yields to requests that are not
    stop_loops: bool = True  # end an answer that repeats itself, where nothing constrains it
    resume: SamplerState | None = None  # of the interrupted answer that the prompt ends with
    # Makes the drafter of an answer, which may draw with its sampler; None: no drafts.
    drafter: Callable[[Sampler], Drafter] | None = None
    constraint: Constraint | None = None  # None: that of `resume`, if any
    begun: str = ""  # text of the answer that the prompt ends with
    thoughts: ThoughtPlan | None = None  # None: a text without thoughts
    logprobs: int = 0  # of so many most likely tokens, with each token of the answer; 0: none
    arrived: float = field(default_factory=time.perf_counter)  # when it was asked for
    cancelled: Callable[[], bool] = field(default=lambda: False)


class Generation:
    """One answer: `pending` are the tokens to process next; the fields hold the result so far."""

    def __init__(
        self,
        request: Request,
        tokenizer: Tokenizer,
        sequence: CachedSequence,
        costs: tuple[StepCosts, StepCosts],
        index: int = 0,
        matcher: Matcher | None = None,
    ) -> None:
        """`costs` are those of passes alone and of passes beside a thread that drafts; `index`
        numbers the answers to one prompt; `matcher` follows the constraint of this one.

        Raises RequestError for a bad option.
        """
        self.request = request
        self.sequence = sequence
        self.index = index
        self.text: list[int] = list(request.prompt)  # prompt and answer, without the end token
        self.pending: list[int] = list(request.prompt)
        self.draft: Tokens[int] = ()  # processed after `pending`, to be verified
        self.is_prefilling = True  # the prompt is not processed yet; also after a preemption
        self.reason: FinishReason | None = None  # None: it goes on
        self.reused_tokens = 0
        self.prefill_seconds = 0.0
        self.decode_seconds = 0.0
        self.served = 0  # number of the last pass of its prompt, for fairness
        self.times = TokenTimes(request.arrived)
        self._started = 0.0  # of decoding
        self._costs = costs
        self._tokenizer = tokenizer
        self._matcher = matcher
        self._forced: deque[int] = deque()  # next tokens that the constraint leaves no choice about
        self._forced_tokens = 0  # so far
        self._sampler = Sampler(_numbered(request.sampling, index), tokenizer)
        resume = request.resume if index == 0 else None  # others draw other random numbers
        if resume is not None and resume.sampling == request.sampling:
            self._sampler.resume(resume.seed, resume.mu)
        self._speculation: Speculation | None = None
        if request.drafter is not None:
            self._speculation = Speculation(request.drafter(self._sampler), *costs)
        banned = request.sampling.banned
        self._thoughts: Thoughts | None = None
        if (plan := request.thoughts) is not None:
            is_bare = matcher is not None or any(text in plan.markers.closing for text in banned)
            self._thoughts = Thoughts(plan, tokenizer, request.prompt, is_bare=is_bare)
        self._stream = _own_stream(tokenizer, request, self._thoughts)
        self._stops = StopFilter(request.stop)
        self._banned = BannedTexts(banned, tokenizer.shown_piece) if any(banned) else None
        self._guard: RepetitionGuard | None = None
        if request.stop_loops and matcher is None and not request.sampling.ignore_end:
            self._guard = RepetitionGuard(tokenizer.shown_piece, request.begun)
        self._opening = _opening_pieces(request.opening)
        self._is_thinking = self._thoughts is not None and self._thoughts.continues_thoughts
        self._logprobs: list[TokenLogprobs] = []  # of the tokens that no event has named

    @property
    def tokens(self) -> list[int]:
        """Generated ids, without the end token."""
        return self.text[len(self.request.prompt) :]

    @property
    def generated(self) -> int:
        """Number of generated tokens."""
        return len(self.text) - len(self.request.prompt)

    @property
    def has_begun(self) -> bool:
        """Whether a token was sampled, even if it was taken back."""
        return self._started > 0

    @property
    def sampler_state(self) -> SamplerState:
        """State to resume this answer with, if it was interrupted."""
        sampler = self._sampler
        state = SamplerState(self.request.sampling, sampler.seed, sampler.mu)
        if (matcher := self._matcher) is None:
            return state
        return replace(state, constraint=matcher.grammar.constraint, begin=matcher.begin)

    def fork(self, index: int) -> Generation:
        """Another answer to the same prompt, which shares its KV pages."""
        sequence = self.sequence.fork()
        matcher = None if self._matcher is None else self._matcher.fork()
        made = Generation(self.request, self._tokenizer, sequence, self._costs, index, matcher)
        made.pending, made.is_prefilling = [], False
        made.reused_tokens, made.prefill_seconds = self.reused_tokens, self.prefill_seconds
        return made

    @property
    def runs_beside_drafts(self) -> bool:
        """Whether a thread drafts for this answer during the next pass."""
        return self._speculation is not None and self._speculation.runs_beside

    def restart(self, sequence: CachedSequence) -> None:
        """Begin again after a preemption: prompt and answer so far are processed once more."""
        self.sequence = sequence
        self.pending, self.is_prefilling = list(self.text), True

    def leave_device(self) -> None:
        """Release the KV pages after the device failed, and stop speculative decoding for good."""
        self.draft = ()
        with suppress(Exception):  # of the device
            self.release()
        self._speculation = None

    def rewind(self) -> None:
        """After a pass that failed: process again what is not in the pages, or whose logits are lost.

        A pass may fail after it has stored keys and values, before the next token is sampled.
        """
        length = self.sequence.rewind(min(len(self.sequence), len(self.text) - 1))
        self.pending = self.text[length:]
        self.is_prefilling |= len(self.pending) > 1

    def release(self) -> None:
        """Free the pages, and what the drafter holds."""
        self.sequence.release()
        if self._speculation is not None:
            self._speculation.close()

    def propose(self, rows: int) -> None:
        """Draft tokens for the next pass, which has `rows` rows without them."""
        self.draft = ()
        if self._speculation is None or self.is_prefilling:
            return
        # The last token of a draft is accepted together with one more that the model draws.
        room = self.sequence.context - len(self.text) - 1
        if self.request.max_tokens:
            room = min(room, self.request.max_tokens - self._counted - 1)
        try:
            self.draft = self._speculation.propose(self.text, rows, room)
        except RuntimeError:
            # The draft model's device failed: continue without speculative decoding.
            log.exception("a draft model failed")
            with suppress(Exception):
                self._speculation.close()
            self._speculation = None
            return
        if self._matcher is not None and self.draft:
            self.shorten_draft(self._matcher.allowed(self.draft))

    def ahead(self) -> tuple[Matcher, Tokens[int]] | None:
        """The matcher and the draft of the next pass, if masks are needed after it."""
        return None if self._matcher is None or self._forced else (self._matcher, self.draft)

    def shorten_draft(self, length: int) -> None:
        """Verify only so many tokens of the draft."""
        self.draft = self.draft[:length]
        if self._speculation is not None:
            self._speculation.shorten(length)

    def device_draw(self) -> Draw | None:
        """What a device must know to draw the next token; None: the host draws it.

        That is so for drafts, whose later tokens depend on the first, for log probabilities, and
        where the constraint leaves no choice.
        """
        if self.is_prefilling or self.draft or self.request.logprobs:
            return None
        if self._thoughts is not None and self._thoughts.must_end:
            return None
        if (matcher := self._matcher) is not None:
            self._forced += () if self._forced else matcher.forced()
            if self._forced:
                return None
        excluded = self._banned.excluded if self._banned else ()
        allowed = None if matcher is None else matcher.mask()
        return self._sampler.device_draw(self.text, allowed, excluded)

    def accept(
        self, logits: Tensor, seconds: float, drawn: int | None = None
    ) -> Iterator[Text | Thought]:
        """Sample the next tokens, from the logits [1 + draft, V] of a pass of so many seconds.

        The first one is `drawn` by the device, if that is given.

        A token of the draft is accepted if the model draws it too: the text is then the one that it
        would have generated without drafts, token for token. Tokens that the constraint forces are
        not drawn, nor the marker that ends thoughts; those behind the draft are processed by the next pass. Yields its text; sets
        `reason` at the end. Raises ModelFileError when logits are not finite, RequestError when
        no token is left or the constraint cannot be followed any further.
        """
        now = time.perf_counter()
        if not self._started:
            self._started = now
            if self._thoughts is not None:
                self._thoughts.begin(now)
        if drawn is None:
            logits = logits.cpu()  # of a device that could have drawn
        start, self._taken_back = len(self.text), None
        for row, proposed in zip(logits, (*self.draft, None), strict=True):
            mu, token = self._sampler.mu, self._forced_token()
            if token is None and drawn is not None:
                token = drawn
            elif token is None:
                allowed = None if self._matcher is None else self._matcher.mask()
                excluded = self._banned.excluded if self._banned else ()
                token = self._sampler.draw(row, self.text, allowed, excluded)
            yield from self._append(token, mu, row)
            if self._is_over or token != proposed:
                break
        emitted = len(self.text) - start
        # Beyond the logits of this pass, where no log probabilities are asked for.
        most = 0 if self.request.logprobs else _MOST_FORCED
        while not self._is_over and len(self.text) - start < most:
            if (token := self._forced_token()) is None:
                break
            yield from self._append(token, self._sampler.mu)
        self._commit(self.text[start:], emitted, seconds)
        if self._taken_back is not None:
            self._take_back(self._taken_back)
        self.times.on_tokens(self.generated)

    @property
    def _is_over(self) -> bool:
        """Whether a pass gives no more tokens: the answer has ended, or some are taken back."""
        return self.reason is not None or self._taken_back is not None

    def _append(
        self, token: int, mu: float, logits: Tensor | None = None
    ) -> Iterator[Text | Thought]:
        """The text goes on with a token, drawn at this `mu` or forced, or ends."""
        is_end = token in self._tokenizer.end_tokens
        if is_end and not (self._thoughts is not None and self._thoughts.is_marker(token)):
            self.reason = FinishReason.END
            return
        if (most := self.request.logprobs) and logits is not None:
            self._logprobs.append(token_logprobs(logits, token, most, self._tokenizer))
        if self._matcher is not None:
            self._matcher.accept(token)
        self.text.append(token)
        pieces: Tokens[Piece] = ()
        if self._thoughts is not None:
            pieces = self._thoughts.push(token, self.generated)
        settled = [token]
        if self._banned is not None:
            self._taken_back = self._banned.push(token, mu)
            if self._taken_back is not None:
                return
            settled = self._banned.settled()
        if self._stream is not None:
            pieces = [piece for one in settled for piece in self._stream.push(one)]
        yield from self._events(self._stops.push(pieces), len(settled))
        is_loop = self._guard is not None and any(self._guard.push(one) for one in settled)
        if self._stops.stopped:
            self.reason = FinishReason.STOP
        elif self._matcher is not None and self._matcher.is_finished:
            self.reason = FinishReason.END
        elif is_loop:
            self.reason = FinishReason.REPETITION
        elif self.request.max_tokens and self._counted >= self.request.max_tokens:
            self.reason = FinishReason.LENGTH
        elif len(self.text) > self.sequence.context:
            self.reason = FinishReason.CONTEXT

    @property
    def _counted(self) -> int:
        """The generated tokens that the limit of the answer counts."""
        free = 0 if self._thoughts is None else self._thoughts.free_tokens(self.generated)
        return self.generated - free

    def _forced_token(self) -> int | None:
        """The next token, if thoughts have to end or the constraint leaves no choice."""
        if self._thoughts is not None and (token := self._thoughts.forced()) is not None:
            return token
        if self._matcher is None:
            return None
        if not self._forced:
            self._forced += self._matcher.forced()
        if not self._forced:
            return None
        if self._banned is not None and self._forced[0] in self._banned.excluded:
            raise RequestError(
                "The constraint leaves no choice but one of the banned texts.",
                "Change the constraint, or ban other texts.",
            )
        self._forced_tokens += 1
        return self._forced.popleft()

    def _commit(self, new: Tokens[int], emitted: int, seconds: float) -> None:
        """After a pass with new tokens: keep the keys and values of the draft that was accepted.

        The pass has `emitted` of these; the constraint added the others.
        """
        accepted = common_length(new[:emitted], self.draft)
        if self._speculation is not None:
            self._speculation.learn(accepted, emitted, seconds)
        if self.draft:
            processed = len(self.pending) + len(self.draft)
            self.sequence.commit_accepted([*self.pending, *new[:accepted]], processed)
            self.draft = ()
        self.pending = self.text[len(self.sequence) :]

    def finish(self, reason: FinishReason | None = None) -> Iterator[Text | Thought | Finished]:
        """The remaining text and the final event; `reason` if it was ended from outside."""
        if reason is not None:
            self.reason = reason
        assert self.reason is not None, "the answer goes on"
        if self._started:
            self.decode_seconds = time.perf_counter() - self._started
        thoughts, thought_tokens = self._thoughts, 0
        if thoughts is not None:
            thoughts.finish()
            thought_tokens = thoughts.tokens  # before what is held is counted
        if (rest := self._rest()) or self._logprobs:
            yield from self._events(rest, len(self._logprobs))
        yield Finished(
            self.request.number,
            self.reason,
            len(self.request.prompt),
            self.reused_tokens,
            self.generated,
            self.prefill_seconds,
            self.decode_seconds,
            len(self.sequence),
            self._sampler.seed,
            self.index,
            drafted_tokens=self._speculation.drafted if self._speculation else 0,
            accepted_tokens=self._speculation.accepted if self._speculation else 0,
            draft_gain=self._speculation.gain if self._speculation else 0.0,
            incomplete=self._matcher is not None and not self._matcher.is_complete,
            forced_tokens=self._forced_tokens,
            first_token_seconds=self.times.first_token_seconds,
            token_seconds_p50=self.times.quantile(0.5),
            token_seconds_p95=self.times.quantile(0.95),
            thought_tokens=thought_tokens,
            thought_seconds=thoughts.seconds if thoughts else 0.0,
            thought_budget_reached=thoughts.is_exhausted if thoughts else False,
            stop=self._stops.found,
        )

    def _take_back(self, taken_back: TakenBack) -> None:
        """Remove the tokens of a banned text; the next pass gives the logits before the first."""
        del self.text[len(self.text) - taken_back.tokens :]
        del self._logprobs[max(len(self._logprobs) - taken_back.tokens, 0) :]
        self._sampler.mu = taken_back.mu
        self._forced.clear()
        if self._thoughts is not None:
            self._thoughts.rewind(taken_back.tokens)
        if self._matcher is not None:
            self._matcher.rollback(taken_back.tokens)
        if self._speculation is not None:
            self._speculation.rewind(len(self.text))
        self.rewind()

    def _events(self, pieces: Tokens[Piece], tokens: int) -> Iterator[Text | Thought]:
        """The events of pieces; the last has the log probabilities of the first `tokens` tokens."""
        if pieces:
            pieces, self._opening = [*self._opening, *pieces], ()
        text, is_new = "", False
        for kind, more in pieces:
            if (kind in (Kind.OPENS, Kind.THOUGHT)) is not self._is_thinking:
                if text or (is_new and self._is_thinking):
                    yield self._event(text)
                text, is_new = "", True
                self._is_thinking = not self._is_thinking
            if kind in (Kind.TEXT, Kind.THOUGHT):
                text += more
        named, self._logprobs = tuple(self._logprobs[:tokens]), self._logprobs[tokens:]
        yield self._event(text, named)

    def _event(self, text: str, named: tuple[TokenLogprobs, ...] = ()) -> Text | Thought:
        kind = Thought if self._is_thinking else Text
        return kind(self.request.number, text, self.generated, len(self.text), self.index, named)

    def _rest(self) -> Tokens[Piece]:
        """The pieces still buffered at the end; an incomplete character only after an end token.

        An interrupted answer may be continued, and would then have U+FFFD in the middle.
        """
        is_complete, pieces = self.reason is FinishReason.END, []
        if (stream := self._stream) is not None:
            held = self._banned.flush() if self._banned else ()
            pieces = [piece for one in held for piece in stream.push(one)]
            pieces += stream.flush(is_complete=is_complete)
        elif self._thoughts is not None:
            pieces += self._thoughts.flush(is_complete=is_complete)
        return [*self._stops.push(pieces), *self._stops.flush()]


def _numbered(sampling: Sampling, index: int) -> Sampling:
    """The sampling of one of several answers: each draws other random numbers."""
    if not index or sampling.seed < 0:
        return sampling
    return replace(sampling, seed=sampling.seed + index & _LARGEST_SEED)


def _own_stream(
    tokenizer: Tokenizer, request: Request, thoughts: Thoughts | None
) -> AnswerStream | None:
    """The decoder of an answer's text where that is not the one of its thoughts."""
    if thoughts is not None:
        return thoughts.new_stream() if any(request.sampling.banned) else None
    made = AnswerStream(None, tokenizer)
    for token in _last_character_tokens(tokenizer, request.prompt):
        made.push(token)
    return made


def _opening_pieces(opening: str) -> Tokens[Piece]:
    """The end of a prompt that belongs to the answer: the tag that opens thoughts, and white space."""
    if not opening:
        return ()
    return (Kind.OPENS, THOUGHT_OPENS), (Kind.THOUGHT, opening.removeprefix(THOUGHT_OPENS))


def _last_character_tokens(tokenizer: Tokenizer, prompt: Tokens[int]) -> list[int]:
    """Tokens at the end of a prompt that may hold the first bytes of an incomplete character."""
    tail = list(prompt[-_CHARACTER_BYTES:])
    ends = [at for at, token in enumerate(tail) if tokenizer.is_control(token)]
    return tail[ends[-1] + 1 :] if ends else tail


def check(request: Request, context: int) -> None:
    """Raise PromptTooLong, or RequestError for an option out of range."""
    if not request.prompt:
        raise RequestError("The prompt is empty.", "Type something first.")
    if request.max_tokens < 0:
        raise RequestError(
            f"The number of tokens to generate is {request.max_tokens}.",
            "Give 0 for no limit, or more.",
        )
    if request.logprobs < 0:
        raise RequestError(
            f"Log probabilities of {request.logprobs} tokens were requested.",
            "Give 0 for none, or more.",
        )
    if request.thoughts is not None and (request.thoughts.budget or 0) < 0:
        raise RequestError(
            f"The budget of thoughts is {request.thoughts.budget} tokens.",
            "Give 0 for none, or more.",
        )
    if not 1 <= request.count <= MOST_ANSWERS:
        raise RequestError(
            f"{request.count} answers to one prompt were requested.",
            f"Ask for 1 to {MOST_ANSWERS}.",
        )
    if len(request.prompt) >= context:
        raise PromptTooLong(
            f"This chat is full: it has {len(request.prompt):,} tokens, and the model can take in "
            f"{context:,}.",
            "Start a new chat, or choose a longer context in the model's settings.",
            Fault(FaultKind.CHAT_FULL, context=len(request.prompt), most_context=context),
        )
