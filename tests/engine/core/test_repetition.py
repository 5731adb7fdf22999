"""Repetition guard: finds loops at their first token, and stops nothing that is meant to repeat."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import SEEDED, Request, answer, answered, run_all
from drafters import verify_every_draft
from engine import Constraint, ConstraintKind, DraftKind, FinishReason, Sampling
from engine.frontend.repetition import (
    LINES_TAIL,
    LITERAL_TAIL,
    REPEATS,
    TAIL,
    RepetitionGuard,
)
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.loading.loader import LoadedModel
from engine.speculative.draft_registry import maker

PROSE = b"x"
PROMPT = [9, 8, 7, 6, 5]
QUATRAINS = (
    "Row, row, row your boat\nGently down the stream\nMerrily, merrily, merrily\nLife is a dream\n",
    "Na na na, na na na na\nNa na na na, hey you\n",
    "Hallelujah, hallelujah\nHallelujah, halleluuujah\n\n",
    "Oh, the harbour lights are burning\n(Burning, burning low)\nAnd the tide, the tide is turning\n"
    "Sailor, will you go?\n\n",
    "**Chorus**\n*Sing it once, sing it again*\n*Dance with me in the summer rain*\n\n",
    "La la la la la\n",
    "> We are the lanterns\n> We are the flame\n\n",
)
ITEMS = ("- [ ] Call the office", "* 0", "+ none", "Yes, sir!", "• milk, 1 l", "I must not be late.",
         "- A rather long item, which has as many words as a whole sentence of running text has, and "
         "then a few more of them", "0,0,0,0", "N/A")  # fmt: skip
ROWS = ("| Monday | 9:00 | open |", "|0|0|0|0|", "a | b | c", "| ✓ | – | |", "| a long cell that goes"
        " on for a good while, as a description would, until it is wider than a line | 1 | 2.50 € |")  # fmt: skip
CODE = ("0, 0, 0, 0, 0, 0, 0, 0,", "    nop", "pass  # nothing to do", "<td></td>", "}", "{},",
        '{"id": 0, "name": "", "tags": []},')  # fmt: skip
FENCES = (("```python", "```"), ("~~~", "~~~"), ("````json", "````"), ("  ```", "  ```"))


def is_loop(tokens: Sequence[int], tail: int = TAIL) -> bool:
    """The definition, tried with every length of a passage."""
    for period in range(1, len(tokens) // REPEATS + 1):
        length = max(tail, REPEATS * period)
        end = tokens[-length:]
        if len(end) == length and end[period:] == end[:-period]:
            return True
    return False


def stopped_at(
    tokens: Iterator[int] | Sequence[int], piece: Callable[[int], bytes], begun: str = ""
) -> int:
    """How many tokens the guard lets pass; 0: all."""
    guard = RepetitionGuard(piece, begun)
    return next((count for count, token in enumerate(tokens, 1) if guard.push(token)), 0)


@pytest.fixture(scope="module")
def tokenizer(starter_model: Path) -> Tokenizer:
    with GGUFFile.open(starter_model) as file:
        return Tokenizer.from_metadata(file.metadata)


@pytest.fixture
def legitimate(tokenizer: Tokenizer) -> list[str]:
    """Two hundred texts that are meant to repeat themselves, each different."""
    draw, made = random.Random(45), list[str]()

    def repeated(text: str, most: int) -> str:
        """So often that it has up to this many tokens, yet at least four times."""
        tokens = len(tokenizer.encode(text, add_special=False))
        return text * max(draw.randint(TAIL, most) // tokens, REPEATS)

    for number in range(40):  # refrains, also more than four times in a row
        verse = f"Verse {number}\nThe road goes on and I go too\n\n"
        refrain = QUATRAINS[number % len(QUATRAINS)]
        made.append(verse + repeated(refrain, 900) + draw.choice(("", verse)))
    for number in range(40):
        item = ITEMS[number % len(ITEMS)] + "\n" * (1 + number // 9 % 2)
        made.append(f"Here is list {number}:\n\n" + repeated(item, 900))
    for number in range(40):
        row = ROWS[number % len(ROWS)] + "\n"
        head = f"| a {number} | b | c |\n|---|---|---|\n"
        made.append(head + repeated(row, 3_500))
    for number in range(40):
        line = CODE[number % len(CODE)] + "\n"
        opens, ends = FENCES[number % len(FENCES)]
        body = repeated(line, 3_500)
        made.append(f"The code {number}:\n\n{opens}\n{body}{ends}\nThat is all.")
    for number in range(40):  # nearly equal: each differs in a word or a number
        words = ("apple", "pear", "plum", "fig")
        counted = range(number, number + 60)
        said = (f"{at}. I have eaten {at} {words[at % 4]}s, and then I slept. " for at in counted)
        made.append(("\n" if number % 2 else "").join(said))
    return made


def test_legitimate_texts_are_not_stopped(tokenizer: Tokenizer, legitimate: list[str]) -> None:
    assert len(set(legitimate)) == 200
    loops = 0
    for text in legitimate:
        tokens = tokenizer.encode(text, add_special=False)
        assert stopped_at(tokens, tokenizer.shown_piece) == 0, text
        loops += stopped_at(tokens, lambda token: PROSE) > 0
    assert loops > 140  # that would be loops, if they were running text


@pytest.mark.parametrize(
    ("begin", "passage", "most"),
    [
        ("", "Yay for you, buddy! ", TAIL),
        ("Sure.\n\n", "I can help you with that, and with all that you need, whatever it may be, at"
         " any time of the day that you like, be it early or late.\n\n", TAIL),
        ("", "\n", TAIL),
        ("A poem:\n", QUATRAINS[0], LINES_TAIL),
        ("", ITEMS[0] + "\n", LINES_TAIL),
        ("", "Say:\n```\nhello\n```\n", LINES_TAIL),  # code blocks, again and again
        ("| a | b |\n|---|---|\n", ROWS[0] + "\n", LITERAL_TAIL),
        ("|", " --- |", LITERAL_TAIL),
        ("```\n", CODE[0] + "\n", LITERAL_TAIL),
        ("```\nok\n```\n", "Yay for you, buddy! ", TAIL),
        ("````\n```\n", "no way out. ", LITERAL_TAIL),
    ],
)  # fmt: skip
def test_endless_repetitions_of_all_kinds_end(
    tokenizer: Tokenizer, begin: str, passage: str, most: int
) -> None:
    head = tokenizer.encode(begin, add_special=False) if begin else []
    period = tokenizer.encode(passage, add_special=False)
    stopped = stopped_at(itertools.chain(head, itertools.cycle(period)), tokenizer.shown_piece)
    # The first passage may begin with what is at the end of the text before it.
    assert most <= stopped <= len(head) + max(most, REPEATS * len(period))


def test_an_answer_that_is_continued_may_be_inside_a_code_block(tokenizer: Tokenizer) -> None:
    zeros = tokenizer.encode("0, 0, 0, 0,\n" * 60, add_special=False)
    begun = "Here:\n```python\nzeros = [\n"
    assert stopped_at(zeros, tokenizer.shown_piece, begun) == 0
    ended = begun + "]\n```\n"
    words = tokenizer.encode("Yay for you, buddy! " * 60, add_special=False)
    assert stopped_at(words, tokenizer.shown_piece, begun) == 0
    assert stopped_at(words, tokenizer.shown_piece, ended) == TAIL + 1  # the first has no space


@pytest.mark.parametrize("period", [1, 2, 19, 20, 39, 40, 41, 79, 80, 81, 160, 161, 700, 1_500])
@pytest.mark.parametrize("before", [0, 1, 333])
def test_a_loop_is_found_at_its_first_token(period: int, before: int) -> None:
    draw = random.Random(period)
    head = [draw.randrange(1 << 18) for _ in range(before)]
    passage = [draw.randrange(1 << 18) for _ in range(period)]
    found = stopped_at(itertools.chain(head, itertools.cycle(passage)), lambda token: PROSE)
    assert found == before + max(TAIL, REPEATS * period)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 90)), max_size=12), st.integers(0, 9))
def test_the_guard_is_the_definition(blocks: list[tuple[int, int]], seed: int) -> None:
    draw = random.Random(seed)
    parts = [[draw.randrange(2) for _ in range(draw.randint(1, 30))] for _ in range(4)]
    tokens = [token for part, times in blocks for token in parts[part] * times]
    guard = RepetitionGuard(lambda token: PROSE)
    for count, token in enumerate(tokens, 1):
        assert guard.push(token) == is_loop(tokens[:count])
        if is_loop(tokens[:count]):
            break


# --- answers ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def greedy(model: LoadedModel) -> Sampling:
    """Of four letters only: the tiny model repeats one of them in the end."""
    never = [token for token in range(model.tokenizer.size) if model.tokenizer.piece(token) not in
             (b"a", b"b", b"c", b"d")]  # fmt: skip
    return Sampling(temperature=0.0, logit_bias=tuple((token, -math.inf) for token in never))


def test_an_answer_that_loops_ends_and_can_go_on(model: LoadedModel, greedy: Sampling) -> None:
    free = answer(model, PROMPT, greedy, max_tokens=900, stop_loops=False).tokens
    scheduler = model.new_scheduler()
    (ticket,) = run_all(scheduler, Request(PROMPT, greedy))
    told = answered(ticket)
    assert told.finished.reason is FinishReason.REPETITION
    assert is_loop(told.tokens)
    assert not is_loop(told.tokens[:-1])
    (more,) = run_all(scheduler, Request(ticket.tokens, greedy, max_tokens=500))
    again = more.answers[0]
    assert len(again) >= TAIL  # it begins anew
    assert [*told.tokens, *again] == free[: len(told.tokens) + len(again)]


def test_drafts_and_other_answers_do_not_move_the_end(model: LoadedModel, greedy: Sampling) -> None:
    told = answer(model, PROMPT, greedy).tokens
    scheduler = model.new_scheduler()
    verify_every_draft(scheduler)
    drafted = Request(PROMPT, greedy, drafter=maker(DraftKind.LOOKUP, None))
    others = Request([7, *PROMPT], SEEDED, count=3, max_tokens=300)
    one, other = run_all(scheduler, drafted, others)
    assert one.answers[0] == told
    assert answered(one).finished.accepted_tokens > 0
    ends = {answered(other, number).finished.reason for number in range(3)}
    assert FinishReason.REPETITION not in ends  # of random texts


def test_a_loop_is_found_behind_tokens_that_are_taken_back(
    model: LoadedModel, greedy: Sampling
) -> None:
    free = answer(model, PROMPT, greedy, max_tokens=900, stop_loops=False)
    end = free.text[-1]
    other = replace(greedy, banned=(f"{free.text[0]}{end}",))
    told = answer(model, PROMPT, other, max_tokens=900)
    unguarded = answer(model, PROMPT, other, max_tokens=900, stop_loops=False)
    assert told.finished.reason is FinishReason.REPETITION
    assert told.tokens == unguarded.tokens[: len(told.tokens)] != free.tokens[: len(told.tokens)]
    assert is_loop(told.tokens)


@pytest.mark.parametrize("how", ["allowed", "ignored end", "constraint"])
def test_the_guard_is_off(model: LoadedModel, greedy: Sampling, how: str) -> None:
    request = Request(PROMPT, greedy, max_tokens=400)
    if how == "allowed":
        request.stop_loops = False
    elif how == "ignored end":
        request.sampling = replace(greedy, ignore_end=True)
    else:
        request.constraint = Constraint(ConstraintKind.REGEX, "(ab){900}")
    (ticket,) = run_all(model.new_scheduler(), request)
    assert is_loop(ticket.answers[0][:350])
    assert answered(ticket).finished.reason is FinishReason.LENGTH
