"""One request from prompt to answer: reuse, prefill, decode, stop, statistics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from engine.decode import decode
from engine.errors import Cancelled, PromptTooLong, RequestError
from engine.messages import Finished, FinishReason, PromptProgress, Sampling, Text
from engine.sampling import Sampler
from engine.session import Session
from engine.tokenizer import Tokenizer


@dataclass
class Answer:
    """What an answer has come to so far."""

    prompt_tokens: int
    reused_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    reason: FinishReason = FinishReason.LENGTH
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


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


def generate(
    session: Session,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    max_tokens: int = 0,
    stop: Sequence[str] = (),
    request: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
    answer: Answer | None = None,
) -> Iterator[PromptProgress | Text | Finished]:
    """Answer `prompt`, yielding progress, pieces of text and, last, how it ended.

    What the session already holds of the prompt is not computed again. Pass an `Answer` to read
    the token ids afterwards. Raises PromptTooLong, or RequestError for an option out of range.
    """

    def checkpoint() -> None:
        if cancelled():
            raise Cancelled

    answer = answer if answer is not None else Answer(len(prompt))
    _check(session, prompt, max_tokens)
    sampler = Sampler(sampling)
    try:
        logits = yield from _prefill(session, prompt, answer, request, checkpoint)
        yield from _decode(
            session, tokenizer, logits, sampler, answer, max_tokens, stop, request, checkpoint
        )
    except Cancelled:
        answer.reason = FinishReason.CANCELLED
    yield Finished(
        request,
        answer.reason,
        answer.prompt_tokens,
        answer.reused_tokens,
        len(answer.tokens),
        answer.prefill_seconds,
        answer.decode_seconds,
        len(session.tokens),
    )


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


def _prefill(
    session: Session,
    prompt: Sequence[int],
    answer: Answer,
    request: int,
    checkpoint: Callable[[], None],
) -> Iterator[PromptProgress]:
    """Bring the session to the end of the prompt; returns the logits [V] after it."""
    started = time.perf_counter()
    # The last token is always computed: its logits begin the answer.
    reused = min(session.common_prefix(prompt), len(prompt) - 1)
    session.trim(reused)
    answer.reused_tokens = reused
    yield PromptProgress(request, reused, len(prompt), reused)
    hidden: Tensor | None = None
    try:
        checkpoint()
        for chunk in session.read(prompt[reused:], checkpoint):
            hidden = chunk
            yield PromptProgress(request, len(session.tokens), len(prompt), reused)
            checkpoint()
    finally:
        answer.prefill_seconds = time.perf_counter() - started
    assert hidden is not None
    return session.logits(hidden[-1:])[0]


def _decode(
    session: Session,
    tokenizer: Tokenizer,
    logits: Tensor,
    sampler: Sampler,
    answer: Answer,
    max_tokens: int,
    stop: Sequence[str],
    request: int,
    checkpoint: Callable[[], None],
) -> Iterator[Text]:
    """Stream the answer; sets `answer.reason` and counts every token the model chose."""
    started = time.perf_counter()
    stream, stops = tokenizer.stream(), StopFilter(stop)
    try:
        answer.reason = FinishReason.CONTEXT
        for token in decode(session, logits, sampler, checkpoint):
            if token in tokenizer.end_tokens:
                answer.reason = FinishReason.END
                break
            answer.tokens.append(token)
            text = stops.push(stream.push(token))
            answer.decode_seconds = time.perf_counter() - started
            if text:
                yield Text(request, text, len(answer.tokens), len(session.tokens) + 1)
            if stops.stopped:
                answer.reason = FinishReason.STOP
                break
            if max_tokens and len(answer.tokens) == max_tokens:
                answer.reason = FinishReason.LENGTH
                break
    except Cancelled:
        answer.reason = FinishReason.CANCELLED
    finally:
        answer.decode_seconds = time.perf_counter() - started
    rest = stops.push(stream.flush()) + stops.flush()
    if rest:
        yield Text(request, rest, len(answer.tokens), len(session.tokens))
