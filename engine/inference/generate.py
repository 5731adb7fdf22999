"""Generation: one answer in progress, from its prompt to the end token or a stop string.

It holds everything that differs between the answers that run together: tokens and KV pages, the
sampler, the text decoder and the stop strings. The scheduler runs the model and passes the logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from engine.errors import Fault, FaultKind, PromptTooLong, RequestError
from engine.inference.sampling import Sampler
from engine.lora.stack import NO_ADAPTERS, Stack
from engine.messages import Finished, FinishReason, Sampling, Text
from engine.state.sequence import Sequence as CachedSequence
from engine.tokenizer.tokenizer import Tokenizer

MOST_ANSWERS = 16  # to one prompt
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


@dataclass(frozen=True, slots=True)
class SamplerState:
    """State needed to resume an interrupted answer: sampling parameters and random numbers."""

    sampling: Sampling
    random: Tensor  # state of the generator, u8


@dataclass(slots=True)
class Request:
    """What to generate: a prompt of token ids and how to continue it."""

    prompt: Sequence[int]
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen
    number: int = 0  # id of the request in its events
    max_tokens: int = 0  # 0: no limit
    stop: Sequence[str] = ()
    opening: str = ""  # text at the end of the prompt that belongs to the answer
    count: int = 1  # answers to the one prompt
    stack: Stack = NO_ADAPTERS
    background: bool = False  # yields to requests that are not
    resume: SamplerState | None = None  # of the interrupted answer that the prompt ends with
    cancelled: Callable[[], bool] = field(default=lambda: False)


class Generation:
    """One answer: `pending` are the tokens to process next; the fields hold the result so far."""

    def __init__(
        self, request: Request, tokenizer: Tokenizer, sequence: CachedSequence, index: int = 0
    ) -> None:
        """`index` numbers the answers to one prompt. Raises RequestError for a bad option."""
        self.request = request
        self.sequence = sequence
        self.index = index
        self.tokens: list[int] = []  # generated ids, without the end token
        self.pending: list[int] = list(request.prompt)
        self.reason: FinishReason | None = None  # None: it goes on
        self.reused_tokens = 0
        self.prefill_seconds = 0.0
        self.decode_seconds = 0.0
        self.served = 0  # number of the last pass of its prompt, for fairness
        self._started = 0.0  # of decoding
        self._tokenizer = tokenizer
        self._sampler = Sampler(_numbered(request.sampling, index))
        resume = request.resume if index == 0 else None  # others draw other random numbers
        if resume is not None and resume.sampling == request.sampling:
            self._sampler.resume(resume.random)
        self._stream = tokenizer.stream()
        for token in _last_character_tokens(tokenizer, request.prompt):
            self._stream.push(token)
        self._stops = StopFilter(request.stop)
        self._opening = request.opening

    @property
    def is_prefilling(self) -> bool:
        """Whether the prompt is not processed yet; also after a preemption."""
        return len(self.pending) > 1 or not self.tokens

    @property
    def all_tokens(self) -> list[int]:
        """Prompt and answer."""
        return [*self.request.prompt, *self.tokens]

    @property
    def sampler_state(self) -> SamplerState:
        """State to resume this answer with, if it was interrupted."""
        return SamplerState(self.request.sampling, self._sampler.state)

    def fork(self, index: int) -> Generation:
        """Another answer to the same prompt, which shares its KV pages."""
        made = Generation(self.request, self._tokenizer, self.sequence.fork(), index)
        made.pending = []
        made.reused_tokens, made.prefill_seconds = self.reused_tokens, self.prefill_seconds
        return made

    def restart(self, sequence: CachedSequence) -> None:
        """Begin again after a preemption: prompt and answer so far are processed once more."""
        self.sequence = sequence
        self.pending = self.all_tokens

    def rewind(self) -> None:
        """After a pass that failed: process again what is not in the pages, or whose logits are lost.

        A pass may fail after it has stored keys and values, before the next token is sampled.
        """
        text = self.all_tokens
        length = self.sequence.rewind(min(len(self.sequence), len(text) - 1))
        self.pending = text[length:]

    def accept(self, logits: Tensor) -> Iterator[Text]:
        """Sample the next token from logits [V]; yields its text; sets `reason` at the end.

        Raises ModelFileError when logits are not finite.
        """
        now = time.perf_counter()
        self._started = self._started or now
        token = self._sampler.draw(logits, self.sequence.tokens)
        self.pending = [token]
        if token in self._tokenizer.end_tokens:
            self.reason = FinishReason.END
        else:
            self.tokens.append(token)
            yield self._text(self._stops.push(self._stream.push(token)))
            if self._stops.stopped:
                self.reason = FinishReason.STOP
            elif len(self.tokens) == self.request.max_tokens:
                self.reason = FinishReason.LENGTH
            elif len(self.sequence) == self.sequence.context:
                self.reason = FinishReason.CONTEXT

    def finish(self, reason: FinishReason | None = None) -> Iterator[Text | Finished]:
        """The remaining text and the final event; `reason` if it was ended from outside."""
        if reason is not None:
            self.reason = reason
        assert self.reason is not None, "the answer goes on"
        if self._started:
            self.decode_seconds = time.perf_counter() - self._started
        if rest := self._remaining_text():
            yield self._text(rest)
        yield Finished(
            self.request.number,
            self.reason,
            len(self.request.prompt),
            self.reused_tokens,
            len(self.tokens),
            self.prefill_seconds,
            self.decode_seconds,
            len(self.sequence),
            self._sampler.seed,
            self.index,
        )

    def _text(self, text: str) -> Text:
        if text:
            text, self._opening = self._opening + text, ""
        used = len(self.request.prompt) + len(self.tokens)
        return Text(self.request.number, text, len(self.tokens), used, self.index)

    def _remaining_text(self) -> str:
        """Text still buffered at the end; an incomplete character only after an end token.

        An interrupted answer may be continued, and would then have U+FFFD in the middle.
        """
        partial = self._stream.flush() if self.reason is FinishReason.END else ""
        return self._stops.push(partial) + self._stops.flush()


def _numbered(sampling: Sampling, index: int) -> Sampling:
    """The sampling of one of several answers: each draws other random numbers."""
    if not index or sampling.seed < 0:
        return sampling
    return replace(sampling, seed=sampling.seed + index)


def _last_character_tokens(tokenizer: Tokenizer, prompt: Sequence[int]) -> list[int]:
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
