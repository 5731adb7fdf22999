"""Thinking through the engine: with models of many families that never stop by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import thinkers
from engine import (
    THOUGHT_ENDS,
    THOUGHT_OPENS,
    Chat,
    Constraint,
    ConstraintKind,
    DraftKind,
    Event,
    Failed,
    Finished,
    FinishReason,
    Text,
    Thought,
)
from engine_bench import GREEDY, SEEDED, Bench, answer_text, finished, turns_of
from thinkers import FAMILIES, WORD

BUDGET, ANSWER = 23, 9  # tokens
QWEN = "Qwen3"


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: thinkers.write(folder / f"{at}.gguf", one)
        for at, (name, one) in enumerate(FAMILIES.items())
    }


@pytest.fixture(scope="module")
def shared() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.engine.stop()


def split(text: str) -> tuple[str, str]:
    """The thoughts and the answer."""
    assert text.startswith(THOUGHT_OPENS), text
    thoughts, ends, answer = text.removeprefix(THOUGHT_OPENS).partition(THOUGHT_ENDS)
    assert ends, text
    return thoughts, answer


def thought_text(thoughts: str) -> str:
    """Thoughts without the white space of the markers."""
    return thoughts.strip("\n")


def test_a_budget_holds_and_the_answer_follows(
    shared: Bench, models: dict[str, Path], family: str
) -> None:
    loaded = shared.load(models[family])
    assert loaded.can_think
    for number, budget in enumerate((1, BUDGET, 200), 10):
        events = shared.generate(
            number, "hello", thinking_budget=budget, max_tokens=ANSWER, stop_loops=False
        )
        thoughts, answer = split(answer_text(events))
        assert thought_text(thoughts) == WORD * budget
        assert answer.strip() == WORD * ANSWER
        end = finished(events)
        assert (end.thought_tokens, end.thought_budget_reached) == (budget, True)
        assert end.thought_seconds > 0
        assert end.reason is FinishReason.LENGTH
        assert end.generated_tokens >= budget + 1 + ANSWER  # with the marker


def test_without_a_budget_thoughts_take_all_tokens(
    shared: Bench, models: dict[str, Path], family: str
) -> None:
    shared.load(models[family])
    events = shared.generate(20, "hello", thinking=True, max_tokens=60)
    assert THOUGHT_ENDS not in answer_text(events)
    end = finished(events)
    assert not end.thought_budget_reached
    assert 50 < end.thought_tokens <= 60


def test_without_thinking_the_answer_comes_at_once(
    shared: Bench, models: dict[str, Path], family: str
) -> None:
    shared.load(models[family])
    for number, options in enumerate(({"thinking": False}, {"thinking_budget": 0}), 30):
        events = shared.generate(number, "hello", max_tokens=ANSWER, **options)
        assert answer_text(events).strip() == WORD * ANSWER
        assert finished(events).thought_tokens == 0


def test_an_answer_stopped_in_its_thoughts_has_the_rest_of_its_budget(
    shared: Bench, models: dict[str, Path], family: str
) -> None:
    shared.load(models[family])
    shared.react = stop_after(shared, 40, 10)
    first = shared.generate(40, "hello", thinking_budget=BUDGET)
    shared.react = lambda event: None
    begun, end = answer_text(first), finished(first)
    assert end.reason is FinishReason.CANCELLED
    assert not end.thought_budget_reached
    events = shared.generate(41, "hello", begun, thinking_budget=BUDGET, max_tokens=ANSWER)
    written = begun + answer_text(events, is_thinking=True)
    thoughts, answer = split(written)
    assert thought_text(thoughts) == WORD * BUDGET
    assert answer.strip() == WORD * ANSWER
    # Stopped in the answer, it is only continued there.
    cut = written[:-4]
    more = shared.generate(42, "hello", cut, thinking_budget=BUDGET, max_tokens=5)
    assert answer_text(more) == WORD * 5
    assert finished(more).reused_tokens == finished(more).prompt_tokens - 1
    assert not finished(more).thought_budget_reached


def stop_after(bench: Bench, request: int, tokens: int) -> Callable[[Event], None]:
    def react(event: Event) -> None:
        is_of_answer = isinstance(event, Text | Thought) and event.request == request
        if is_of_answer and event.generated_tokens == tokens:
            bench.cancel(request)

    return react


def test_thoughts_are_not_fed_back(shared: Bench, models: dict[str, Path], family: str) -> None:
    shared.load(models[family])
    events = shared.generate(50, "hello", thinking_budget=BUDGET, max_tokens=ANSWER)
    first = answer_text(events)
    longer = first.replace(WORD * BUDGET, WORD * (BUDGET + 100))
    known, more = (
        finished(shared.generate(number, "hello", text, "again", max_tokens=1)).prompt_tokens
        for number, text in enumerate((first, longer), 51)
    )
    keeps = family in ("Mistral", "Seed-OSS")  # whose templates show earlier thoughts
    assert more - known == 100 * keeps


@pytest.mark.parametrize("name", [QWEN, "tags as text"])
def test_thoughts_that_repeat_themselves_end_the_answer(
    shared: Bench, models: dict[str, Path], name: str
) -> None:
    shared.load(models[name])
    events = shared.generate(70, "hello", thinking_budget=300, max_tokens=40)
    assert finished(events).reason is FinishReason.REPETITION
    assert thought_text(answer_text(events).removeprefix(THOUGHT_OPENS)) == WORD * 160


@pytest.mark.parametrize("drafts", [DraftKind.LOOKUP, DraftKind.NONE])
@pytest.mark.parametrize("name", [QWEN, "gpt-oss", "tags as text"])
def test_drafts_do_not_exceed_the_budget(
    shared: Bench, models: dict[str, Path], name: str, drafts: DraftKind
) -> None:
    shared.load(models[name])
    texts = [
        answer_text(
            shared.generate(
                number,
                "hello",
                thinking_budget=300,
                max_tokens=40,
                drafts=kind,
                sampling=sampling,
                stop_loops=False,
            )
        )
        for number, kind in enumerate((drafts, DraftKind.NONE), 60)
        for sampling in (GREEDY, replace(SEEDED, temperature=0.05))
    ]
    for text in texts:
        assert thought_text(split(text)[0]) == WORD * 300
        assert split(text)[1].strip() == WORD * 40


def test_every_one_of_several_answers_has_its_budget(
    shared: Bench, models: dict[str, Path]
) -> None:
    shared.load(models["gpt-oss"])
    shared.send(70, Chat(turns_of("hello"), GREEDY, ANSWER, thinking_budget=BUDGET, answers=3))
    events: list[Event] = []
    while not (isinstance(last := (events or [None])[-1], Finished) and last.last):
        events += shared.until(Finished, Failed)
        assert not isinstance(events[-1], Failed)
    for answer in range(3):
        text = answer_text([one for one in events if getattr(one, "answer", None) == answer])
        assert thought_text(split(text)[0]) == WORD * BUDGET


def test_a_constraint_begins_behind_the_budget(
    shared: Bench, models: dict[str, Path], family: str
) -> None:
    shared.load(models[family])
    wanted = Constraint(ConstraintKind.REGEX, "(yes|no)!")
    events = shared.generate(
        80, "hello", thinking_budget=BUDGET, constraint=wanted, max_tokens=ANSWER
    )
    _, text = split(answer_text(events))
    assert finished(events).thought_tokens == BUDGET
    assert text in ("yes!", "no!")
    assert finished(events).reason is FinishReason.END
    alone = shared.generate(81, "hello", thinking=False, constraint=wanted, max_tokens=ANSWER)
    assert answer_text(alone).strip() in ("yes!", "no!")


def test_a_banned_text_across_the_end_of_thoughts(shared: Bench, models: dict[str, Path]) -> None:
    shared.load(models[QWEN])
    for number, banned in enumerate(("\n\n", "\n</thi", "nothing", "x\n"), 90):
        sampling = replace(GREEDY, banned=(banned,))
        events = shared.generate(
            number, "hello", sampling=sampling, thinking_budget=BUDGET, max_tokens=ANSWER
        )
        assert banned not in answer_text(events)
        # Of the last text, the word before the marker is taken back, and the model has no other.
        assert finished(events).thought_tokens == BUDGET - (banned == "x\n")


def test_a_budget_below_zero_is_refused(shared: Bench, models: dict[str, Path]) -> None:
    shared.load(models[QWEN])
    events = shared.generate(99, "hello", thinking_budget=-1)
    assert isinstance(events[-1], Failed)
    assert "budget" in events[-1].message
