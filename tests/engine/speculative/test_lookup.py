"""Lookup drafts against a plain definition, over random texts that grow and are cut."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine.speculative.lookup import LookupDrafter

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def longest_match(text: Sequence[int]) -> tuple[int, int]:
    """Where the end of a text occurred before, as the place after it and the length; or 0, 0.

    Of the last 16 places with the same two tokens the longest match, up to 32; of equals the last.
    """
    end, found = len(text), [(0, 0)]
    places = [at for at in range(2, end) if list(text[at - 2 : at]) == list(text[end - 2 :])]
    for place in places[-16:]:
        length = 0
        while length < min(32, place) and text[place - 1 - length] == text[end - 1 - length]:
            length += 1
        found.append((length, place))
    length, place = max(found)
    return place, length


@given(TEXTS, st.integers(1, 8))
def test_the_draft_follows_the_longest_match(text: list[int], most: int) -> None:
    draft = LookupDrafter().draft(text, most)
    place, length = longest_match(text)
    if not length:
        assert not draft.tokens
        return
    wanted = list(text)
    for at in range(most):
        wanted.append(wanted[place + at])
    assert draft.tokens == wanted[len(text) :]
    assert draft.evidence == sum(length >= least for least in (3, 4, 6, 10, 18))


@given(TEXTS, st.lists(st.tuples(st.integers(0, 12), TEXTS), max_size=6))
def test_a_text_that_was_cut_gives_the_same_drafts(
    text: list[int], changes: list[tuple[int, list[int]]]
) -> None:
    drafter, text = LookupDrafter(), list(text)
    for cut, more in changes:
        drafter.draft(text, 4)
        length = max(len(text) - cut, 0)
        drafter.rewind(length)
        text = [*text[:length], *more]
        assert drafter.draft(text, 4) == LookupDrafter().draft(text, 4)


def test_a_text_that_repeats_itself_goes_on() -> None:
    assert LookupDrafter().draft([7, 1, 2, 1, 2], 5).tokens == [1, 2, 1, 2, 1]


def test_nothing_is_drafted_without_room_or_match() -> None:
    assert not LookupDrafter().draft([1, 2, 1, 2], 0).tokens
    assert not LookupDrafter().draft([1, 2, 3, 4], 4).tokens
    assert not LookupDrafter().draft([1], 4).tokens
    assert not LookupDrafter().draft([], 4).tokens
