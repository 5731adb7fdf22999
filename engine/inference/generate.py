"""Answer: one generation request, from prefix reuse and prefill to decoding and stop strings."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence

from torch import Tensor

from engine.errors import Cancelled, Fault, FaultKind, PromptTooLong, RequestError
from engine.inference.decode import decode
from engine.inference.sampling import Sampler
from engine.inference.session import SamplerState, Session
from engine.messages import Finished, FinishReason, PromptProgress, Sampling, Text
from engine.tokenizer.tokenizer import Tokenizer

_CHARACTER_BYTES = 4  # at most, in UTF-8


class StopFilter:
    """Cuts streamed text at the first stop string; buffers a possible beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._buffer = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Append `text`; returns the buffered text that cannot be part of a stop string."""
        self._buffer += text
        found = [at for stop in self._stops if (at := self._buffer.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._buffer) - self._partial_stop_length())

    def flush(self) -> str:
        """The buffered text at the end of the stream; empty after a stop string."""
        return "" if self.stopped else self._release(len(self._buffer))

    def _release(self, length: int) -> str:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        return text

    def _partial_stop_length(self) -> int:
        """Length of the longest suffix of the buffer that is a prefix of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._buffer)), 0, -1):
            end = self._buffer[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class Answer:
    """One generation request: iterate over `events` once; the fields hold the result so far."""

    def __init__(
        self,
        session: Session,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        max_tokens: int = 0,
        stop: Sequence[str] = (),
        opening: str = "",
        request: int = 0,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """An answer to the token ids `prompt`; max_tokens 0 sets no limit.

        `opening` is text at the end of the prompt that belongs to the answer; it is prepended to
        the first text event. Raises PromptTooLong, or RequestError for an option out of range.
        """
        _check(session, prompt, max_tokens)
        self.tokens: list[int] = []  # generated ids, without the end token
        self.reason = FinishReason.CONTEXT
        self.reused_tokens = 0
        self.prefill_seconds = 0.0
        self.decode_seconds = 0.0
        self._session = session
        self._prompt = prompt
        self._request = request
        self._max_tokens = max_tokens
        self._end_tokens = tokenizer.end_tokens
        self._sampler = Sampler(sampling)
        self._stream = tokenizer.stream()
        for token in _last_character_tokens(tokenizer, prompt):
            self._stream.push(token)
        self._stops = StopFilter(stop)
        self._opening = opening
        self._cancelled = cancelled

    def events(self) -> Iterator[PromptProgress | Text | Finished]:
        """Yield prefill progress, a text event for each token and, last, a Finished event.

        The cached prefix of the prompt is not computed again. If the prompt equals the tokens of
        the session, an interrupted answer resumes bit for bit, including the random numbers when
        the sampling parameters are the same. Raises ModelFileError when logits are not finite.
        """
        try:
            logits = yield from self._prefill()
            yield from self._decode(logits)
        except Cancelled:
            self.reason = FinishReason.CANCELLED
        finally:
            self._store_sampler_state()
        yield Finished(
            self._request,
            self.reason,
            len(self._prompt),
            self.reused_tokens,
            len(self.tokens),
            self.prefill_seconds,
            self.decode_seconds,
            len(self._session.tokens),
            self._sampler.seed,
        )

    def _checkpoint(self) -> None:
        if self._cancelled():
            raise Cancelled

    def _prefill(self) -> Generator[PromptProgress, None, Tensor]:
        """Process the prompt beyond the cached prefix; returns the logits [V] after it."""
        session, prompt = self._session, self._prompt
        started = time.perf_counter()
        continued = session.all_tokens == list(prompt)
        pending = session.pending if continued else []
        if continued:
            self._resume_sampler()
        reused = session.common_prefix(prompt)
        logits = session.last_logits if reused == len(session.tokens) == len(prompt) else None
        if logits is None:
            # The last token is always computed: its logits give the first token of the answer.
            reused = min(reused, len(prompt) - 1)
        session.trim(reused)
        self.reused_tokens = reused
        yield PromptProgress(self._request, reused, len(prompt), reused)
        try:
            self._checkpoint()
            if pending:
                # `step`, not `prefill`: the uninterrupted answer would have used it too, and the
                # two round differently.
                (token,) = pending  # at most one token is pending
                logits = session.step(token, self._checkpoint)
                yield PromptProgress(self._request, len(prompt), len(prompt), reused)
            for hidden in session.prefill(prompt[len(session.tokens) :], self._checkpoint):
                if len(session.tokens) == len(prompt):
                    logits = session.logits_after(hidden)
                yield PromptProgress(self._request, len(session.tokens), len(prompt), reused)
                self._checkpoint()
        finally:
            self.prefill_seconds = time.perf_counter() - started
        assert logits is not None
        return logits

    def _resume_sampler(self) -> None:
        """Restore the random state of an interrupted answer with the same sampling parameters."""
        sampler_state = self._session.sampler_state
        if sampler_state is not None and sampler_state.sampling == self._sampler.sampling:
            self._sampler.resume(sampler_state.random)

    def _store_sampler_state(self) -> None:
        """Store in the session the state needed to resume an interrupted answer."""
        if self.reason in (FinishReason.END, FinishReason.STOP):
            return
        pending = [*self._prompt, *self.tokens][len(self._session.tokens) :]
        if len(pending) <= 1:  # otherwise the prefill was not completed
            self._session.pending = pending
            self._session.sampler_state = SamplerState(self._sampler.sampling, self._sampler.state)

    def _decode(self, logits: Tensor) -> Iterator[Text]:
        """Stream the answer; sets `reason` and collects the generated tokens."""
        started = time.perf_counter()
        used = self._session.tokens
        try:
            for token in decode(self._session, logits, self._sampler, self._checkpoint):
                if token in self._end_tokens:
                    self.reason = FinishReason.END
                    break
                self.tokens.append(token)
                yield self._text(self._stops.push(self._stream.push(token)), len(used) + 1)
                if self._stops.stopped:
                    self.reason = FinishReason.STOP
                    break
                if len(self.tokens) == self._max_tokens:
                    self.reason = FinishReason.LENGTH
                    break
        except Cancelled:
            self.reason = FinishReason.CANCELLED
        finally:
            self.decode_seconds = time.perf_counter() - started
        if rest := self._remaining_text():
            yield self._text(rest, len(used))

    def _text(self, text: str, used: int) -> Text:
        if text:
            text, self._opening = self._opening + text, ""
        return Text(self._request, text, len(self.tokens), used)

    def _remaining_text(self) -> str:
        """Text still buffered at the end; an incomplete character only after an end token.

        An interrupted answer may be continued, and would then have U+FFFD in the middle.
        """
        partial = self._stream.flush() if self.reason is FinishReason.END else ""
        return self._stops.push(partial) + self._stops.flush()


def _last_character_tokens(tokenizer: Tokenizer, prompt: Sequence[int]) -> list[int]:
    """Tokens at the end of a prompt that may hold the first bytes of an incomplete character."""
    tail = list(prompt[-_CHARACTER_BYTES:])
    ends = [at for at, token in enumerate(tail) if tokenizer.is_control(token)]
    return tail[ends[-1] + 1 :] if ends else tail


def _check(session: Session, prompt: Sequence[int], max_tokens: int) -> None:
    if not prompt:
        raise RequestError("The prompt is empty.", "Type something first.")
    if max_tokens < 0:
        raise RequestError(
            f"The number of tokens to generate is {max_tokens}.", "Give 0 for no limit, or more."
        )
    if len(prompt) >= session.context:
        raise PromptTooLong(
            f"This chat is full: it has {len(prompt):,} tokens, and the model can take in "
            f"{session.context:,}.",
            "Start a new chat, or choose a longer context in the model's settings.",
            Fault(FaultKind.CHAT_FULL, context=len(prompt), most_context=session.context),
        )
