"""Drafter: proposes the next tokens of a text, which the model then verifies in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens."""

    tokens: Sequence[int] = ()
    evidence: int = 0  # the class of drafts whose acceptance is measured together
    is_behind: bool = False  # the drafter still processes the text before


NO_DRAFT = Draft()


class Drafter(Protocol):
    """Proposes tokens for one text; used by the engine thread only."""

    @property
    def costs_nothing(self) -> bool:
        """Whether drafts take no noticeable time: some may then be made to be measured only."""
        ...

    @property
    def priors(self) -> Sequence[float]:
        """Expected acceptance of a token of each class of evidence."""
        ...

    def draft(self, text: Sequence[int], most: int) -> Draft:
        """The next tokens after `text`, at most `most`.

        `text` is the text of the call before with tokens appended, unless `rewind` was called.
        """
        ...

    def rewind(self, length: int) -> None:
        """Forget the tokens of the text from position `length` on."""
        ...

    def close(self) -> None:
        """Free what the drafter holds; it is not used again."""
        ...
