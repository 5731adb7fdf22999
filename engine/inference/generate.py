"""One request from prompt to answer: reuse, prefill, decode, stop, statistics."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence

from torch import Tensor

from engine.errors import Cancelled, PromptTooLong, RequestError
from engine.inference.decode import decode
from engine.inference.sampling import Sampler
from engine.inference.session import SamplerState, Session
from engine.messages import Finished, FinishReason, PromptProgress, Sampling, Text
from engine.tokenizer.tokenizer import Tokenizer

_CHARACTER_BYTES = 4  # at most, in UTF-8


class StopFilter:
    """Holds back text that may be the beginning of a stop string, and cuts at the first one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The part of everything pushed that is certain to belong to the answer."""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._held) - self._undecided())

    def flush(self) -> str:
        """What was held back, once nothing more will come."""
        return "" if self.stopped else self._release(len(self._held))

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _undecided(self) -> int:
        """The longest end of the held text that some stop string begins with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class Answer:
    """One answer in the making: run through `events` once; the fields say what it has come to."""

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

        `opening` are words of the prompt that belong to the answer, and are told with its first.
        Raises PromptTooLong, or RequestError for an option out of range.
        """
        _check(session, prompt, max_tokens)
        self.tokens: list[int] = []  # ids the model chose, without the one that ended the answer
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
        for token in _unfinished(tokenizer, prompt):
            self._stream.push(token)
        self._stops = StopFilter(stop)
        self._opening = opening
        self._cancelled = cancelled

    def events(self) -> Iterator[PromptProgress | Text | Finished]:
        """Progress, a piece of text for each token and, last, how it ended.

        What the session already holds of the prompt is not computed again. A prompt that is all
        it holds goes on as if it had never stopped, random numbers included, when it is drawn in
        the same way. Raises ModelFileError when the model computes nonsense.
        """
        try:
            logits = yield from self._prefill()
            yield from self._decode(logits)
        except Cancelled:
            self.reason = FinishReason.CANCELLED
        finally:
            self._leave()
        yield Finished(
            self._request,
            self.reason,
            len(self._prompt),
            self.reused_tokens,
            len(self.tokens),
            self.prefill_seconds,
            self.decode_seconds,
            len(self._session.tokens),
        )

    def _checkpoint(self) -> None:
        if self._cancelled():
            raise Cancelled

    def _prefill(self) -> Generator[PromptProgress, None, Tensor]:
        """Bring the session to the end of the prompt; returns the logits [V] after it."""
        session, prompt = self._session, self._prompt
        started = time.perf_counter()
        continued = session.all_tokens == list(prompt)
        chosen = session.pending if continued else []
        if continued:
            self._resume()
        reused = session.common_prefix(prompt)
        logits = session.last_logits if reused == len(session.tokens) == len(prompt) else None
        if logits is None:
            # The last token is computed in any case: its logits begin the answer.
            reused = min(reused, len(prompt) - 1)
        session.trim(reused)
        self.reused_tokens = reused
        yield PromptProgress(self._request, reused, len(prompt), reused)
        try:
            self._checkpoint()
            if chosen:
                # The bits it would have had if the answer had not been cut.
                (token,) = chosen  # at most one token was chosen and not yet read
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

    def _resume(self) -> None:
        """Take up the random numbers of an answer that was cut, where it is drawn in the same way."""
        sampler_state = self._session.sampler_state
        if sampler_state is not None and sampler_state.sampling == self._sampler.sampling:
            self._sampler.resume(sampler_state.random)

    def _leave(self) -> None:
        """Note in the session how to go on with an answer that was cut."""
        if self.reason in (FinishReason.END, FinishReason.STOP):
            return
        rest = [*self._prompt, *self.tokens][len(self._session.tokens) :]
        if len(rest) <= 1:  # else the prompt was not read to its end
            self._session.pending = rest
            self._session.sampler_state = SamplerState(self._sampler.sampling, self._sampler.state)

    def _decode(self, logits: Tensor) -> Iterator[Text]:
        """Stream the answer; sets `reason` and counts every token the model chose."""
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
        if rest := self._rest():
            yield self._text(rest, len(used))

    def _text(self, text: str, used: int) -> Text:
        if text:
            text, self._opening = self._opening + text, ""
        return Text(self._request, text, len(self.tokens), used)

    def _rest(self) -> str:
        """Text held back until the end; half a character only where the model meant it to be all.

        An answer that was cut off may be continued, and then U+FFFD would stand in its middle.
        """
        half = self._stream.flush() if self.reason is FinishReason.END else ""
        return self._stops.push(half) + self._stops.flush()


def _unfinished(tokenizer: Tokenizer, prompt: Sequence[int]) -> list[int]:
    """Tokens at the end of a prompt that may hold the first bytes of a character."""
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
            f"The conversation takes {len(prompt):,} tokens, but this model's context holds "
            f"{session.context:,}.",
            "Shorten it, start a new conversation, or load the model with a larger context.",
        )
