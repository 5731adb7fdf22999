"""Step costs: how long a decode pass takes by its number of rows, measured as passes run."""

from __future__ import annotations

_WEIGHT = 0.15  # of a new measurement
_ROW_COST = 0.1  # of each row after the first, where nothing is measured yet
_STALE_PASSES = 32


class StepCosts:
    """Running means of the seconds of a pass; those of other numbers of rows are estimated."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._measured: dict[int, int] = {}  # number of the last pass
        self._counts: dict[int, int] = {}  # of passes
        self._passes = 0

    def learn(self, rows: int, seconds: float) -> None:
        """Add a measured pass."""
        self._passes += 1
        self._measured[rows] = self._passes
        self._counts[rows] = self._counts.get(rows, 0) + 1
        known = self._seconds.get(rows)
        # A pass that was interrupted by other programs counts as twice as long at most.
        self._seconds[rows] = (
            seconds if known is None else known + _WEIGHT * (min(seconds, 2 * known) - known)
        )

    def count(self, rows: int) -> int:
        """How many passes of so many rows were measured."""
        return self._counts.get(rows, 0)

    def seconds(self, rows: int) -> float:
        """Estimated seconds of a pass; 0 before the first one."""
        known = self._seconds.get(rows)
        if known is not None or not self._seconds:
            return known or 0.0
        nearest = min(self._seconds, key=lambda one: abs(one - rows))
        return self._seconds[nearest] * _expected(rows) / _expected(nearest)

    def ratio(self, rows: int, base: int) -> float:
        """Cost of a pass of `rows` rows relative to one of `base` rows."""
        known = self.seconds(base)
        return self.seconds(rows) / known if known else _expected(rows) / _expected(base)

    def is_stale(self, rows: int) -> bool:
        """Whether the cost of so many rows was not measured for a long time."""
        return self._passes - self._measured.get(rows, 0) > _STALE_PASSES


def _expected(rows: int) -> float:
    return 1 + _ROW_COST * (rows - 1)
