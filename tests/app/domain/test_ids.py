"""Ids: larger than all before, ordered by time, exact as a double, whatever the clock says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.domain.ids import LIMIT, Ids, new_id

NOW = 1_795_744_920_000  # milliseconds since 1970, in 2026
COUNTED = 1 << 31  # more than any store with AUTOINCREMENT has counted to


def test_ids_are_larger_than_counted_ones_and_exact_as_a_double() -> None:
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert made[0] > COUNTED
    assert made[-1] < LIMIT
    assert json.loads(json.dumps(made), parse_int=float) == made


def test_ids_increase_with_time() -> None:
    clock = [NOW]
    ids = Ids(lambda: clock[0])
    first = ids.new()
    clock[0] += 1
    assert first + 4000 < ids.new() == Ids(lambda: NOW + 1).new()


@given(st.lists(st.integers(-(1 << 45), 1 << 45), min_size=1, max_size=50))
def test_no_clock_breaks_the_order(times: list[int]) -> None:
    left = iter(times)
    ids = Ids(lambda: next(left))
    made = [ids.new() for _ in times]
    assert all(one < other for one, other in pairwise(made))
    assert made[0] > COUNTED
    assert made[-1] < LIMIT


def test_ids_follow_stored_ones_when_the_clock_was_set_back() -> None:
    earlier = Ids(lambda: NOW)
    stored = [earlier.new() for _ in range(3)]
    later = Ids(lambda: NOW - 86_400_000)
    later.seen(stored[-1])
    later.seen(stored[0])
    assert later.new() == stored[-1] + 1


def test_id_of_a_damaged_row_leaves_room_for_more() -> None:
    ids = Ids(lambda: NOW)
    ids.seen((1 << 63) - 1)
    assert ids.new() < LIMIT


def test_threads_get_different_ids() -> None:
    ids = Ids(lambda: NOW)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [ids.new() for _ in range(2000)], range(8)))
    assert all(each == sorted(each) for each in made)
    assert len({number for each in made for number in each}) == 16_000
