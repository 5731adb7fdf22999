"""The llguidance library for one vocabulary: its tokenizer, and calls that cannot panic.

The library is written in Rust. A panic reaches Python as a `BaseException`, which
`except Exception` does not catch, so all calls go through `guarded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llguidance import LLParserLimits, LLTokenizer

from engine.errors import EngineError, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer

_PASSED_ON = (KeyboardInterrupt, SystemExit, MemoryError, EngineError)

# A step that reaches a limit ends in an error, after some 20 ms at most; so does a compilation.
LIMITS = LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=2_000_000,
    step_lexer_fuel=200_000,
    step_max_items=20_000,
    max_lexer_states=50_000,  # of 1 to 2 kB each
    max_grammar_size=500_000,
    verbose_errors=False,
)


@contextmanager
def guarded() -> Iterator[None]:
    """Raise RequestError for a panic of the library."""
    try:
        yield
    except _PASSED_ON:
        raise
    except BaseException as error:
        raise RequestError(
            f"The library that follows grammars failed ({' '.join(str(error).split())[:200]}).",
            "Simplify the grammar, or ask for an answer without it.",
        ) from error


class _Vocabulary:
    """A tokenizer as the library wants it."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, ends: list[int], length: int) -> None:
        size = range(tokenizer.size)
        self.eos_token_id = ends[0]
        self.tokens = [tokenizer.piece(token) for token in range(length)]
        # Text is never made of these.
        self.special_token_ids = [token for token in size if tokenizer.is_control(token)]
        self.special_token_ids += [end for end in ends if end < tokenizer.size]
        self._tokenizer = tokenizer
        self.library: LLTokenizer | None = None  # of this vocabulary

    def __call__(self, text: str) -> list[int]:
        """Ids of text that continues other text."""
        ids = self._tokenizer.encode_within(text)
        if b"".join(map(self._tokenizer.piece, ids)) == text.encode("utf-8"):
            return ids
        # A vocabulary that changes its text, as by adding a space: the longest tokens.
        return [] if self.library is None else self.library.greedy_tokenize(text)


def library_tokenizer(tokenizer: Tokenizer, vocabulary: int) -> LLTokenizer:
    """The library's form of a tokenizer, for logits [V]; takes 0.2 s for 152,000 tokens.

    A vocabulary without end tokens gets one behind its last token, which no logits have.
    """
    ends = sorted(tokenizer.end_tokens)
    wrapped = _Vocabulary(tokenizer, ends or [vocabulary], vocabulary + (not ends))
    with guarded():
        wrapped.library = LLTokenizer(
            wrapped,  # pyright: ignore[reportArgumentType]  # as its TokenizerWrapper
            eos_token=ends or [vocabulary],
        )
    return wrapped.library
