"""Direction of a text, by its letters."""

from __future__ import annotations

import unicodedata


def runs_right_to_left(text: str, *, otherwise: bool = False) -> bool:
    """Whether the first strongly directional character is right-to-left, as in Arabic or Hebrew.

    `otherwise` is the answer for a text that has none, such as a number.
    """
    for letter in text[:400]:
        kind = unicodedata.bidirectional(letter)
        if kind in ("R", "AL"):
            return True
        if kind == "L":
            return False
    return otherwise


def has_right_to_left(text: str) -> bool:
    """Whether a text has letters or marks that run from right to left."""
    return not text.isascii() and any(
        unicodedata.bidirectional(letter) in ("R", "AL") for letter in text
    )
