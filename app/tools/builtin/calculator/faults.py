"""Why something cannot be calculated, and the limits of numbers."""

from __future__ import annotations

MOST_BITS = 35_000  # of an exact integer: some 10,500 digits
MOST_EXPONENT = 1_000_000  # of ten, of an inexact number


class CalculationError(Exception):
    """A fault of an expression: `str(error)` is a sentence; `at` is its first character, or -1."""

    def __init__(self, what: str, at: int = -1) -> None:
        super().__init__(what)
        self.at = at


def too_large() -> CalculationError:
    """The error of a number beyond the limits."""
    return CalculationError("a number becomes too large for this calculator")
