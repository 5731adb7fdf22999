"""Subword encoders of the `tokenizers` library, with all its errors raised as ModelFileError.

The library is written in Rust and panics on some files and texts. A panic reaches Python as a
`BaseException`, which `except Exception` does not catch, so no other module may call the library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, cast

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from engine.errors import ModelFileError
from engine.machine.rust_panics import without_panic_reports

# A batch of one text needs no pool of threads, and a panic is raised on the thread that called.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_PASSED_ON = (KeyboardInterrupt, SystemExit, MemoryError)
_MOST_CHARACTERS = 100  # of a word of a WordPiece vocabulary; longer ones are unknown
_MAX_REASON_LENGTH = 200  # characters of the library's message


class SubwordEncoder:
    """Text to token ids, without special tokens."""

    def __init__(
        self, library: LibraryTokenizer, name: str, remedy: str, *, may_panic: bool = False
    ) -> None:
        """Use one of the methods below.

        may_panic: texts are encoded by steps that the file describes, which may panic on some.
        """
        self._library = library
        self._name = name
        self._remedy = remedy
        self._may_panic = may_panic

    @classmethod
    def from_json(cls, text: str, name: str) -> SubwordEncoder:
        """An encoder from the text of the `tokenizer.json` `name`; raises ModelFileError."""
        remedy = "Get the tokenizer.json that belongs to the model."
        what = f"{name} is not a vocabulary the tokenizers library can load"
        with _faults_as(what, remedy):
            library = LibraryTokenizer.from_str(text)
            # Some damaged tables only fail when a text is encoded.
            with suppress(Exception):  # a character without a token is no damage
                library.encode("a", add_special_tokens=False)
        return cls(library, name, remedy, may_panic=True)

    @classmethod
    def from_merges(
        cls,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        patterns: Sequence[str],
        *,
        unknown: str | None,
        whole_words: bool,
        composes: bool,
        remedy: str,
    ) -> SubwordEncoder:
        """A byte-level BPE encoder: `patterns` split text in sequence, `merges` join its bytes.

        unknown: the token for bytes without one. whole_words: a word that is a token is not merged
        (`ignore_merges`). composes: characters are composed first (NFC). Raises ModelFileError.
        """
        name = "The vocabulary of the file"
        with _faults_as(f"{name} is not one the tokenizers library can load", remedy):
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
            if composes:
                library.normalizer = normalizers.NFC()
        return cls(library, name, remedy)

    @classmethod
    def from_character_merges(
        cls,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        *,
        space: str,
        unknown: str | None,
        remedy: str,
    ) -> SubwordEncoder:
        """A BPE encoder of characters, as Gemma 4 has: `merges` join those of a whole line.

        A space is the character `space`; a character without a token is its bytes "<0xAB>", or else
        the token `unknown`. Raises ModelFileError.
        """
        name = "The vocabulary of the file"
        with _faults_as(f"{name} is not one the tokenizers library can load", remedy):
            library = LibraryTokenizer(
                models.BPE(
                    dict(vocabulary),
                    list(merges),
                    unk_token=unknown,
                    byte_fallback=True,
                    fuse_unk=True,
                )
            )
            library.normalizer = normalizers.Replace(" ", space)
            library.pre_tokenizer = pre_tokenizers.Split(Regex("\\n+"), "isolated")
        return cls(library, name, remedy)

    @classmethod
    def from_pieces(
        cls,
        vocabulary: Mapping[str, int],
        *,
        unknown: str,
        lowercase: bool,
        strip_accents: bool,
        remedy: str,
    ) -> SubwordEncoder:
        """A WordPiece encoder, with the normalization and the words of BERT.

        Pieces inside a word begin with "##"; unknown: the token for words without pieces. Raises
        ModelFileError.
        """
        name = "The vocabulary of the file"
        with _faults_as(f"{name} is not one the tokenizers library can load", remedy):
            library = LibraryTokenizer(
                models.WordPiece(
                    dict(vocabulary), unk_token=unknown, max_input_chars_per_word=_MOST_CHARACTERS
                )
            )
            library.normalizer = normalizers.BertNormalizer(
                lowercase=lowercase, strip_accents=strip_accents
            )
            library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return cls(library, name, remedy)

    @classmethod
    def from_scores(
        cls, pieces: Sequence[tuple[str, float]], *, unknown: int, remedy: str
    ) -> SubwordEncoder:
        """A unigram encoder: the pieces with the highest sum of scores, of a whole text.

        unknown: the index of the piece for characters without one. Raises ModelFileError.
        """
        name = "The vocabulary of the file"
        with _faults_as(f"{name} is not one the tokenizers library can load", remedy):
            library = LibraryTokenizer(models.Unigram(list(pieces), unknown, byte_fallback=False))
        return cls(library, name, remedy)

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`; raises ModelFileError."""
        what = f"{self._name} makes the tokenizers library fail"
        with _faults_as(what, self._remedy, may_panic=self._may_panic):
            # Of a batch, which other threads do not wait for: the library's `encode` keeps them
            # waiting, for seconds with a text of some megabytes.
            found = self._library.encode_batch_fast([text], add_special_tokens=False)
            return cast("list[int]", found[0].ids)


@contextmanager
def _faults_as(what: str, remedy: str, *, may_panic: bool = True) -> Iterator[None]:
    """Convert all exceptions of the library, panics included, to ModelFileError."""
    try:
        with without_panic_reports() if may_panic else nullcontext():
            yield
    except _PASSED_ON:
        raise
    except BaseException as fault:  # noqa: BLE001  a panic is not an Exception
        reason = " ".join(str(fault).split())[:_MAX_REASON_LENGTH]
        raise ModelFileError(f"{what}: {reason}.", remedy) from None
