"""Which turns are left out when a conversation outgrows the context."""

from __future__ import annotations

import random

import pytest

from engine import Role, Turn
from engine.frontend.context_window import answer_room, dropped_turns, fits, next_start, without

SYSTEM = Turn(Role.SYSTEM, "Be brief.")


def conversation(questions: int, *, system: bool = True) -> list[Turn]:
    """Questions with answers, ending with a question."""
    turns = [SYSTEM] if system else []
    for _ in range(questions - 1):
        turns += [Turn(Role.USER, "?"), Turn(Role.ASSISTANT, "!")]
    return [*turns, Turn(Role.USER, "?")]


def test_nothing_is_dropped_while_all_fits() -> None:
    turns = conversation(5)
    assert dropped_turns(turns, [10] * len(turns), 1000) == 0


def test_dropping_leaves_half_the_context_and_begins_with_a_question() -> None:
    turns = conversation(40)
    dropped = dropped_turns(turns, [10] * len(turns), 400)
    kept = without(turns, dropped)
    assert kept[0] is SYSTEM
    assert kept[1].role is Role.USER
    assert fits(10 * len(kept), 400)


@pytest.mark.parametrize("seed", range(40))
def test_first_kept_turn_is_stable_and_the_prompt_fits(seed: int) -> None:
    pick = random.Random(seed)
    context = pick.choice([256, 512, 4096])
    turns = conversation(pick.randrange(2, 120), system=pick.random() < 0.5)
    lengths = [pick.randrange(1, context // 8) for _ in turns]
    head = int(turns[0] is SYSTEM)
    found = []
    for end in range(head + 1, len(turns) + 1, 2):
        dropped = dropped_turns(turns[:end], lengths[:end], context)
        kept = sum(lengths[:head]) + sum(lengths[head + dropped : end])
        assert fits(kept, context)
        assert dropped < end - head  # the last question is always read
        assert turns[head + dropped].role is Role.USER
        found.append(dropped)
    assert found == sorted(found)  # never goes back to an earlier turn
    moves = len(set(found)) - 1
    total = sum(lengths)
    assert moves <= 2 + total / (context // 2 - context // 8 - answer_room(context))


def test_last_question_is_kept_even_if_it_is_too_long() -> None:
    turns = conversation(4)
    lengths = [5, 10, 10, 10, 10, 10, 10, 900]
    dropped = dropped_turns(turns, lengths, 400)
    assert without(turns, dropped) == (SYSTEM, turns[-1])
    assert next_start(turns, dropped) is None


def test_continued_answer_counts_as_part_of_the_prompt() -> None:
    turns = [*conversation(10), Turn(Role.ASSISTANT, "half an answer")]
    lengths = [10] * (len(turns) - 1) + [150]
    dropped = dropped_turns(turns, lengths, 400)
    assert dropped > 0
    assert fits(10 + sum(lengths[1 + dropped :]), 400)


def test_next_start_goes_to_the_following_question() -> None:
    turns = conversation(3)
    assert next_start(turns, 0) == 2
    assert next_start(turns, 2) == 4
    assert next_start(turns, 4) is None
