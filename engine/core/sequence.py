"""RunningSequence: one answer in progress, from its prompt to the end token or a stop string.

It holds everything that differs between the answers that run together: tokens and KV pages, the
sampler, the text decoder and the stop strings. The scheduler runs the model and passes the logits;
its events leave here.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from contextlib import suppress
from dataclasses import replace

import numpy as np
from torch import Tensor

from engine.core.logprobs import sampled_logprobs, token_logprobs
from engine.core.metrics import TokenTimes
from engine.core.prefix_match import common_length
from engine.core.request import AnswerRequest, SamplerState, SequenceGroup
from engine.errors import RequestError
from engine.frontend.answer_stream import AnswerStream, Kind, Piece
from engine.frontend.banned_texts import BannedTexts, TakenBack
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.reasoning_budget import Thoughts
from engine.frontend.repetition import RepetitionGuard
from engine.frontend.stop_filter import StopFilter
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import (
    THOUGHT_OPENS,
    Finished,
    FinishReason,
    Sampling,
    Text,
    Thought,
    TokenLogprobs,
)
from engine.sampling import Sampler
from engine.sampling.candidates import Candidates
from engine.sampling.penalties import Mask
from engine.speculative.costs import StepCosts
from engine.speculative.speculation import Speculation
from engine.state.sequence import Sequence as CachedSequence
from kernels.backend.device_sampling import DeviceSampling

log = logging.getLogger(__name__)

_CHARACTER_BYTES = 4  # at most, in UTF-8
_MOST_FORCED = 128  # tokens of a constraint that one pass processes
_LARGEST_SEED = (1 << 63) - 1


class RunningSequence:
    """One answer: `pending` are the tokens to process next; the fields hold the result so far."""

    def __init__(
        self,
        group: SequenceGroup,
        tokenizer: Tokenizer,
        sequence: CachedSequence,
        costs: StepCosts,
        index: int = 0,
        matcher: Matcher | None = None,
    ) -> None:
        """`costs` are those of passes alone and of passes beside a thread that drafts; `index`
        numbers the answers to one prompt; `matcher` follows the constraint of this one.

        Raises RequestError for a bad option.
        """
        request = group.request
        self.group, self.request = group, request
        self.sequence = sequence
        self.index = index
        self._prompt_length = len(request.prompt)
        self.text: list[int] = list(request.prompt)  # prompt and answer, without the end token
        self.pending: list[int] = list(request.prompt)
        self.draft: Tokens[int] = ()  # processed after `pending`, to be verified
        self.is_prefilling = True  # the prompt is not processed yet; also after a preemption
        self.reason: FinishReason | None = None  # None: it goes on
        self.reused_tokens = 0
        self.prefill_seconds = 0.0
        self.served = 0  # number of the last pass of its prompt, for fairness
        self.times = TokenTimes(request.arrived)
        self._started = 0.0  # of decoding
        self._costs = costs
        self._tokenizer = tokenizer
        self.matcher = matcher  # of the constraint
        self._forced: deque[int] = deque()  # next tokens that the constraint leaves no choice about
        self._forced_tokens = 0  # so far
        self._sampler = Sampler(_numbered(request.sampling, index), tokenizer)
        resume = request.resume if index == 0 else None  # others draw other random numbers
        if resume is not None and resume.sampling == request.sampling:
            self._sampler.resume(resume.seed, resume.mu)
        self.speculation: Speculation | None = None  # None: no drafts
        if request.drafter is not None:
            self.speculation = Speculation(request.drafter(self._sampler), costs)
        banned = request.sampling.banned
        self._thoughts: Thoughts | None = None
        if (plan := request.thoughts) is not None:
            is_bare = matcher is not None or any(text in plan.markers.closing for text in banned)
            self._thoughts = Thoughts(plan, tokenizer, request.prompt, is_bare=is_bare)
        # Whether a token may be given rather than drawn: of the marker that ends thoughts, or the
        # only one that the constraint allows.
        has_budget = self._thoughts is not None and self._thoughts.has_budget
        self._may_force = matcher is not None or has_budget
        self._stream = _own_stream(tokenizer, request, self._thoughts)
        self._stops = StopFilter(request.stop)
        self._banned = BannedTexts(banned, tokenizer.shown_piece) if any(banned) else None
        self._guard: RepetitionGuard | None = None
        if request.stop_loops and matcher is None and not request.sampling.ignore_end:
            self._guard = RepetitionGuard(tokenizer.shown_piece, request.begun)
        self._opening = _opening_pieces(request.opening)
        self._is_new_thought = False  # thoughts have begun, and no event has said so
        self._is_thinking = self._thoughts is not None and self._thoughts.continues_thoughts
        self._logprobs: list[TokenLogprobs] = []  # of the tokens that no event has named
        self._settled = 0  # of these, tokens that are not taken back any more
        self._candidates: Candidates | None = None  # of the token drawn last, where they are shown

    @property
    def tokens(self) -> list[int]:
        """Generated ids, without the end token."""
        return self.text[self._prompt_length :]

    @property
    def generated(self) -> int:
        """Number of generated tokens."""
        return len(self.text) - self._prompt_length

    @property
    def has_begun(self) -> bool:
        """Whether a token was sampled, even if it was taken back."""
        return self._started > 0

    @property
    def sampler_state(self) -> SamplerState:
        """State to resume this answer with, if it was interrupted."""
        sampler = self._sampler
        state = SamplerState(self.request.sampling, sampler.seed, sampler.mu)
        if (matcher := self.matcher) is None:
            return state
        return replace(state, constraint=matcher.grammar.constraint, begin=matcher.begin)

    def fork(self, index: int) -> RunningSequence:
        """Another answer to the same prompt, which shares its KV pages."""
        sequence = self.sequence.fork()
        matcher = None if self.matcher is None else self.matcher.fork()
        made = RunningSequence(self.group, self._tokenizer, sequence, self._costs, index, matcher)
        made.pending, made.is_prefilling = [], False
        made.reused_tokens, made.prefill_seconds = self.reused_tokens, self.prefill_seconds
        return made

    def restart(self, sequence: CachedSequence) -> None:
        """Begin again after a preemption: prompt and answer so far are processed once more."""
        self.sequence = sequence
        self.pending, self.is_prefilling = list(self.text), True

    def leave_device(self) -> None:
        """Release the KV pages after the device failed, and stop speculative decoding for good."""
        self.draft = ()
        with suppress(Exception):  # of the device
            self.release()
        self.speculation = None

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
        if self.speculation is not None:
            self.speculation.close()

    def propose(self, rows: int) -> None:
        """Draft tokens for the next pass, which has `rows` rows without them."""
        self.draft = ()
        if self.speculation is None or self.is_prefilling:
            return
        # The last token of a draft is accepted together with one more that the model draws.
        room = self.sequence.context - len(self.text) - 1
        if self.request.max_tokens:
            room = min(room, self.request.max_tokens - self._counted(self.generated) - 1)
        try:
            self.draft = self.speculation.propose(self.text, rows, room)
        except RuntimeError:
            # The draft model's device failed: continue without speculative decoding.
            log.exception("a draft model failed")
            with suppress(Exception):
                self.speculation.close()
            self.speculation = None
            return
        if self.draft and max(self.draft) >= (size := self._tokenizer.size):  # rows of an image
            self.shorten_draft(next(at for at, one in enumerate(self.draft) if one >= size))
        if self.matcher is not None and self.draft:
            self.shorten_draft(self.matcher.allowed(self.draft))

    @property
    def is_forced(self) -> bool:
        """Whether the constraint leaves no choice about the next token, which needs no mask."""
        return bool(self._forced)

    def shorten_draft(self, length: int) -> None:
        """Verify only so many tokens of the draft."""
        self.draft = self.draft[:length]
        if self.speculation is not None:
            self.speculation.shorten(length)

    def device_sampling(self) -> DeviceSampling | None:
        """What a device must know to draw the next token; None: the host draws it.

        That is so for drafts, whose later tokens depend on the first, for log probabilities, and
        where the constraint leaves no choice.
        """
        if self.is_prefilling or self.draft or self.request.logprobs:
            return None
        if self._may_force and self._thoughts is not None and self._thoughts.must_end:
            return None
        if (matcher := self.matcher) is not None:
            self._forced += () if self._forced else matcher.forced()
            if self._forced:
                return None
        excluded = self._banned.excluded if self._banned else ()
        allowed = None if matcher is None else matcher.mask()
        return self._sampler.device_sampling(self.text, allowed, excluded)

    def accept(self, logits: Tensor, seconds: float, drawn: int | None = None) -> None:
        """Sample the next tokens, from the logits [1 + draft, V] of a pass of so many seconds.

        The first one is `drawn` by the device, if that is given.

        A token of the draft is accepted if the model draws it too: the text is then the one that it
        would have generated without drafts, token for token. Tokens that the constraint forces are
        not drawn, nor the marker that ends thoughts; those behind the draft are processed by the
        next pass. Emits its text; sets `reason` at the end. Raises ModelFileError when logits are
        not finite, RequestError when no token is left or the constraint cannot be followed any
        further.
        """
        assert len(logits) == 1 + len(self.draft), "one row of logits for each token"
        now = time.perf_counter()
        if not self._started:
            self._started = now
            if self._thoughts is not None:
                self._thoughts.begin(now)
        if drawn is None:
            logits = logits.cpu()  # of a device that could have drawn
        text, sampler, may_force = self.text, self._sampler, self._may_force
        start, self._taken_back = len(text), None
        for at in range(len(logits)):
            row, mu = logits[at], sampler.mu
            token = self._forced_token() if may_force else None
            if token is None and drawn is not None:
                token = drawn
            elif token is None:
                allowed = None if self.matcher is None else self.matcher.mask()
                excluded = self._banned.excluded if self._banned else ()
                if self.request.sampled_logprobs:
                    token = self._draw_shown(row, allowed, excluded)
                else:
                    token = sampler.draw(row, text, allowed, excluded)
            self._append(token, mu, row)
            is_over = self.reason is not None or self._taken_back is not None
            if is_over or at == len(self.draft) or token != self.draft[at]:
                break
        emitted = len(text) - start
        if may_force:
            self._append_forced(start)
        if self.speculation is not None or self.draft:
            self._keep_draft(text[start:], emitted, seconds)
        self.pending = text[len(self.sequence.tokens) :]
        if self._taken_back is not None:
            self._take_back(self._taken_back)
        self.times.on_tokens(len(text) - self._prompt_length)

    def _draw_shown(self, logits: Tensor, allowed: Mask | None, excluded: Collection[int]) -> int:
        """A token as `Sampler.draw` draws it, whose candidates are kept to be shown."""
        sampler = self._sampler
        self._candidates = sampler.distribution(logits, self.text, allowed, excluded)
        token = sampler.pick(self._candidates, len(self.text))
        sampler.accept(self._candidates, token)
        return token

    def _named(self, logits: Tensor, token: int, most: int) -> TokenLogprobs:
        """The log probabilities of a token and of the most likely ones."""
        if not self.request.sampled_logprobs:
            return token_logprobs(logits, token, most, self._tokenizer)
        found, self._candidates = self._candidates, None
        if found is None:  # it was forced
            found = Candidates(np.array([token]), np.zeros(1, np.float32))
        return sampled_logprobs(found, token, most, self._tokenizer)

    def _append_forced(self, start: int) -> None:
        """Tokens beyond the logits of this pass, where no log probabilities are asked for."""
        most = 0 if self.request.logprobs else _MOST_FORCED
        while len(self.text) - start < most:
            if self.reason is not None or self._taken_back is not None:
                return
            if (token := self._forced_token()) is None:
                return
            self._append(token, self._sampler.mu)

    def _append(self, token: int, mu: float, logits: Tensor | None = None) -> None:
        """The text goes on with a token, drawn at this `mu` or forced, or ends."""
        thoughts, text = self._thoughts, self.text
        is_end = token in self._tokenizer.end_tokens
        if is_end and not (thoughts is not None and thoughts.is_marker(token)):
            self.reason = FinishReason.END
            return
        if (most := self.request.logprobs) and logits is not None:
            self._logprobs.append(self._named(logits, token, most))
        if self.matcher is not None:
            self.matcher.accept(token)
        text.append(token)
        generated = len(text) - self._prompt_length
        pieces: Tokens[Piece] = ()
        if thoughts is not None:
            pieces = thoughts.push(token, generated)
        settled: Tokens[int] = (token,)
        if self._banned is not None:
            self._taken_back = self._banned.push(token, mu)
            if self._taken_back is not None:
                return
            settled = self._banned.settled()
        if self._stream is not None:
            pieces = self._stream.push_all(settled)
        if self._stops.is_active:
            pieces = self._stops.push(pieces)
        self._show(pieces, self._certain_tokens(len(settled)) if self._logprobs else 0)
        if self._stops.found:
            self.reason = FinishReason.STOP
            self._logprobs.clear()  # of the tokens of the stop string
        elif self.matcher is not None and self.matcher.is_finished:
            self.reason = FinishReason.END
        elif self._guard is not None and any(map(self._guard.push, settled)):
            self.reason = FinishReason.REPETITION
        elif (
            0 < (most := self.request.max_tokens) <= generated and self._counted(generated) >= most
        ):
            self.reason = FinishReason.LENGTH
        elif len(text) > self.sequence.context:
            self.reason = FinishReason.CONTEXT

    def _certain_tokens(self, settled: int) -> int:
        """How many tokens that no event has named are before what may be a stop string.

        `settled` more of them are not taken back any more.
        """
        self._settled += settled
        count, length, held = self._settled, 0, self._stops.held
        while count and held:
            length += len(self._logprobs[count - 1].text)
            if length > held:
                break
            count -= 1
        self._settled -= count
        return count

    def _counted(self, generated: int) -> int:
        """Of so many generated tokens, those that the limit of the answer counts."""
        return generated - (self._thoughts.free_tokens(generated) if self._thoughts else 0)

    def _forced_token(self) -> int | None:
        """The next token, if thoughts have to end or the constraint leaves no choice."""
        if self._thoughts is not None and (token := self._thoughts.forced()) is not None:
            return token
        if self.matcher is None:
            return None
        if not self._forced:
            self._forced += self.matcher.forced()
        if not self._forced:
            return None
        if self._banned is not None and self._forced[0] in self._banned.excluded:
            raise RequestError(
                "The constraint leaves no choice but one of the banned texts.",
                "Change the constraint, or ban other texts.",
            )
        self._forced_tokens += 1
        return self._forced.popleft()

    def _keep_draft(self, new: Tokens[int], emitted: int, seconds: float) -> None:
        """After a pass with new tokens: keep the keys and values of the draft that was accepted.

        The pass has `emitted` of these; the constraint added the others.
        """
        accepted = common_length(new[:emitted], self.draft)
        if self.speculation is not None:
            self.speculation.learn(accepted, emitted, seconds)
        if self.draft:
            processed = len(self.pending) + len(self.draft)
            self.sequence.commit_accepted([*self.pending, *new[:accepted]], processed)
            self.draft = ()

    def finish(self, reason: FinishReason | None = None, *, is_last: bool) -> Finished:
        """Emit the remaining text; returns the final event. `reason` if it was ended from outside,
        `is_last` if no other answer to the prompt goes on.
        """
        if reason is not None:
            self.reason = reason
        assert self.reason is not None, "the answer goes on"
        thoughts, thought_tokens = self._thoughts, 0
        if thoughts is not None:
            thoughts.finish()
            thought_tokens = thoughts.tokens  # before what is held is counted
        if (rest := self._rest()) or self._logprobs:
            self._show(rest, len(self._logprobs))
        return Finished(
            self.request.number,
            self.reason,
            len(self.request.prompt),
            self.reused_tokens,
            self.generated,
            self.prefill_seconds,
            self.times.between.sum,
            len(self.sequence),
            self._sampler.seed,
            self.index,
            is_last,
            drafted_tokens=self.speculation.drafted if self.speculation else 0,
            accepted_tokens=self.speculation.accepted if self.speculation else 0,
            draft_gain=self.speculation.gain if self.speculation else 0.0,
            incomplete=self.matcher is not None and not self.matcher.is_complete,
            forced_tokens=self._forced_tokens,
            first_token_seconds=self.times.first_token_seconds,
            token_seconds_p50=self.times.quantile(0.5),
            token_seconds_p95=self.times.quantile(0.95),
            thought_tokens=thought_tokens,
            thought_seconds=thoughts.seconds if thoughts else 0.0,
            thought_budget_reached=thoughts.is_exhausted if thoughts else False,
            token_ids=tuple(self.tokens),
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
        if self.matcher is not None:
            self.matcher.rollback(taken_back.tokens)
        if self.speculation is not None:
            self.speculation.rewind(len(self.text))
        self.rewind()

    def _show(self, pieces: Tokens[Piece], tokens: int) -> None:
        """Emit pieces; the last event has the log probabilities of the first `tokens` tokens."""
        if pieces and self._opening:
            pieces, self._opening = [*self._opening, *pieces], ()
        text = ""
        for kind, more in pieces:
            is_thought = kind is Kind.THOUGHT or kind is Kind.OPENS
            if is_thought is not self._is_thinking:
                if text or self._is_new_thought:
                    self._emit(text)
                text, self._is_thinking = "", is_thought
                self._is_new_thought = is_thought
            if kind is Kind.TEXT or kind is Kind.THOUGHT:
                text += more
        self._is_new_thought = False
        if self._logprobs:
            named, self._logprobs = tuple(self._logprobs[:tokens]), self._logprobs[tokens:]
            self._emit(text, named)
        else:
            self._emit(text)

    def _emit(self, text: str, named: tuple[TokenLogprobs, ...] = ()) -> None:
        event = Thought if self._is_thinking else Text
        length = len(self.text)
        number, generated = self.request.number, length - self._prompt_length
        self.group.emit(event(number, text, generated, length, self.index, named))

    def _rest(self) -> Tokens[Piece]:
        """The pieces still buffered at the end; an incomplete character only after an end token.

        An interrupted answer may be continued, and would then have U+FFFD in the middle.
        """
        is_complete, pieces = self.reason is FinishReason.END, list[Piece]()
        if (stream := self._stream) is not None:
            held = self._banned.flush() if self._banned else ()
            pieces = stream.push_all(held)
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
    tokenizer: Tokenizer, request: AnswerRequest, thoughts: Thoughts | None
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
