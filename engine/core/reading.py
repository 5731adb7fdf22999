"""TextReading: given texts whose hidden states are wanted, read in chunks between those of prompts.

A text has its own sequence, whose KV pages are freed when it is read, unless `keep` takes them.
Several texts share a pass, and passes are shorter beside other requests, only where a token has the
same bits in any batch: so the hidden states of a text do not depend on what runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.cancellation import Awaited
from engine.core.handle import RequestHandle
from engine.core.runner import MOST_TEXTS, Rows, Runner
from engine.messages import Priority
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS

BLOCK = 16  # tokens; texts are cut at multiples of it, so that sums of its states have equal bits
_UNKNOWN_SECONDS = 1e-3  # per token at least, before the first pass was measured

Checkpoint = Callable[[], None]


def _nothing(sequence: Sequence) -> None:
    """Nobody keeps the pages of a text."""


@dataclass(frozen=True, slots=True)
class States:
    """Hidden states [T, D] of the next tokens of a text; a text that is read again begins at 0."""

    text: int  # its index
    start: int  # position of the first of them
    hidden: Tensor


# May call the checkpoint, which raises to cancel.
Take = Callable[[States, Checkpoint], None]
# Whether a sequence got pages for so many tokens, of so many that follow.
Reserve = Callable[[Sequence, int, int], bool]


class TextReading(Awaited):
    """Texts in the order given, and how far they are read; used by the engine thread only."""

    def __init__(
        self,
        runner: Runner,
        context: int,
        texts: Tokens[Tokens[int]],
        take: Take,
        stack: Stack = NO_ADAPTERS,
        *,
        equal_bits: bool = False,
        handle: RequestHandle | None = None,
        keep: Callable[[Sequence], None] = _nothing,
    ) -> None:
        """`take` is given the states of all texts. With `equal_bits` a token has the same ones in any
        batch, even where the program does not say so. `keep` is given each sequence that is read.
        """
        super().__init__()
        self.priority = Priority.NORMAL if handle is None else handle.priority
        self._handle = handle
        self.served = 0  # number of its last pass, for fairness
        self.token_seconds = _UNKNOWN_SECONDS  # running mean
        self.error: BaseException | None = None
        self._runner, self._texts, self._take, self._stack = runner, texts, take, stack
        self._equal_bits = equal_bits or runner.has_equal_bits(stack)
        self._keep, self._context = keep, context
        self._at = 0  # index of the first text that is not read
        self._sequences: list[Sequence] = []  # of the texts from there on, of those that are begun

    @property
    def is_cancelled(self) -> bool:
        """Whether who asked for it does not want it any more."""
        return self._handle is not None and self._handle.is_cancelled

    def tokens_at_once(self, seconds: float) -> int:
        """Tokens of a pass that takes so long; where cuts change bits as many as fit in any."""
        most = self._context if self._runner.model.is_encoder else self._runner.chunk
        if not self._equal_bits:
            return most
        fitting = int(min(seconds / self.token_seconds, most)) // BLOCK * BLOCK
        return min(max(fitting, BLOCK), most)

    def read(
        self,
        most: int,
        new: Callable[[], Sequence],
        reserve: Reserve,
        checkpoint: Checkpoint,
    ) -> list[int]:
        """Run a pass over `most` tokens; returns how many of each text, none without pages.

        Raises what `checkpoint` and `take` raise.
        """
        parts = self._parts(most)
        if self._runner.model.is_encoder:
            found = self._runner.read_texts(parts, self._stack, checkpoint)
        else:
            batch: list[Rows] = []
            for number, tokens in enumerate(parts):
                if number == len(self._sequences):
                    self._sequences.append(new())
                sequence = self._sequences[number]
                left = len(self._texts[self._at + number]) - len(sequence)
                if not reserve(sequence, len(tokens), left):
                    break
                batch.append(Rows(sequence, tokens, self._stack))
            parts = parts[: len(batch)]
            found = self._runner.hidden(batch, checkpoint) if batch else []
        for tokens, hidden in zip(parts, found, strict=True):
            text = self._texts[self._at]
            end = len(self._sequences[0]) if self._sequences else len(text)
            self._take(States(self._at, end - len(tokens), hidden), checkpoint)
            if end == len(text):
                if self._sequences:
                    self._keep(self._sequences[0])
                    self._sequences.pop(0).release()
                self._at += 1
        self.done = self._at == len(self._texts)
        return [len(tokens) for tokens in parts]

    def _parts(self, most: int) -> list[Tokens[int]]:
        """The next tokens of some texts; an encoder reads whole ones."""
        is_encoder = self._runner.model.is_encoder
        pages = MOST_TEXTS if is_encoder else max(self._context // PAGE_TOKENS, 1)
        count = min(pages, MOST_TEXTS) if self._equal_bits else 1
        parts: list[Tokens[int]] = []
        for text in self._texts[self._at : self._at + count]:
            begun = len(self._sequences[0]) if self._sequences and not parts else 0
            left = text[begun:]
            if len(left) > most and not (is_encoder and not parts):
                if not is_encoder and most >= BLOCK:
                    parts.append(left[: most // BLOCK * BLOCK])
                break
            parts.append(left)
            most -= len(left)
        return parts

    def restart(self) -> bool:
        """Give the pages up, if it has any; the text that is read in part is read again."""
        had_pages = any(sequence.pages for sequence in self._sequences)
        for sequence in self._sequences:
            sequence.release()
        self._sequences.clear()
        return had_pages

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self.error, self.done = self.error or error, True
        with suppress(Exception):  # of a device that failed
            self.restart()
