"""Subword encoders of the `tokenizers` library, whose every fault is a ModelFileError.

The library is written in Rust and panics at some files and texts. A panic reaches Python as a
`BaseException` that no `except Exception` stops, so nothing else may call the library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from engine.errors import ModelFileError

_NOT_OURS = (KeyboardInterrupt, SystemExit, MemoryError)
_MOST_LETTERS = 200  # of the library's own words in a sentence


class SubwordEncoder:
    """Text to token ids, without special tokens."""

    def __init__(self, library: LibraryTokenizer, name: str, remedy: str) -> None:
        """Use `from_json` or `from_merges`."""
        self._library = library
        self._name = name
        self._remedy = remedy

    @classmethod
    def from_json(cls, text: str, name: str) -> SubwordEncoder:
        """An encoder from the text of a `tokenizer.json` called `name`. Raises ModelFileError."""
        remedy = "Get the tokenizer.json that belongs to the model."
        what = f"{name} is not a vocabulary the tokenizers library reads"
        with _faults_as(what, remedy):
            library = LibraryTokenizer.from_str(text)
            # Some tables are first used, and found to be damaged, when a text is encoded.
            with suppress(Exception):  # a letter that has no token is no damage
                library.encode("a", add_special_tokens=False)
        return cls(library, name, remedy)

    @classmethod
    def from_merges(
        cls,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        patterns: Sequence[str],
        *,
        unknown: str | None,
        whole_words: bool,
        remedy: str,
    ) -> SubwordEncoder:
        """A byte-level encoder: `patterns` cut text one after the other, `merges` join its bytes.

        unknown: the token of a byte that has none. whole_words: a word that is a token is not
        merged. Raises ModelFileError.
        """
        name = "The vocabulary of the file"
        with _faults_as(f"{name} is not one the tokenizers library reads", remedy):
            library = LibraryTokenizer(
                models.BPE(
                    dict(vocabulary), list(merges), unk_token=unknown, ignore_merges=whole_words
                )
            )
            steps: list[Any] = [
                pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns
            ]
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
            library.pre_tokenizer = pre_tokenizers.Sequence(steps)
        return cls(library, name, remedy)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`. Raises ModelFileError."""
        with _faults_as(f"{self._name} makes the tokenizers library fail", self._remedy):
            return cast("list[int]", self._library.encode(text, add_special_tokens=False).ids)


@contextmanager
def _faults_as(what: str, remedy: str) -> Iterator[None]:
    """Raise ModelFileError for whatever the library raises, panics included."""
    try:
        yield
    except _NOT_OURS:
        raise
    except BaseException as fault:  # noqa: BLE001  a panic is no Exception
        words = " ".join(str(fault).split())[:_MOST_LETTERS]
        raise ModelFileError(f"{what}: {words}.", remedy) from None
