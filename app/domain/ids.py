"""Ids of conversations and messages, made by the app before anything is stored.

An id is positive, exact as a JSON number, and larger than every id made before it, so that the
order of the ids is the order in which rows were made. Stores of earlier versions counted from 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

LIMIT = 1 << 53  # every id is below: JSON readers that use doubles are exact up to here
_EPOCH = 1_577_836_800_000  # 2020-01-01, in milliseconds since 1970
_PER_MILLISECOND = 12  # bits: ids of one millisecond; more of them take those of the next ones
_FIRST = 1 << 32  # for a clock set before 2020: more than any store has counted to
_LATEST = 1 << 52  # from 2054 on, ids are counted and no longer follow the clock


class Ids:
    """Makes ids; may be used on any thread."""

    def __init__(self, milliseconds: Callable[[], int] = lambda: time.time_ns() // 1_000_000):
        """`milliseconds` is the time since 1970."""
        self._milliseconds = milliseconds
        self._last = _FIRST
        self._lock = Lock()

    def new(self) -> int:
        """An id larger than every one made or seen so far."""
        now = min((self._milliseconds() - _EPOCH) << _PER_MILLISECOND, _LATEST)
        with self._lock:
            self._last = max(self._last + 1, now)
            return self._last

    def seen(self, id: int) -> None:
        """Make the next ids larger than a stored one: the clock may have been set back since."""
        with self._lock:
            if id < LIMIT - (1 << 40):  # else it is of a damaged row, and would leave no ids
                self._last = max(self._last, id)


_IDS = Ids()
new_id = _IDS.new
id_seen = _IDS.seen
