"""Budgets of thoughts in the scheduler: the same ids with drafts, together, and after a preemption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from answers import Request, prompt
from drafters import PartlyRight, verify_every_draft
from engine import Finished, Sampling
from engine.core.request import SequenceGroup
from engine.core.scheduler import Scheduler
from engine.frontend.reasoning_budget import ThoughtPlan
from engine.loading.loader import LoadedModel
from engine.messages.reasoning_markers import ThoughtMarkers

SEEDED = Sampling(temperature=1.2, top_k=0, top_p=0.95, min_p=0.0, seed=5, ignore_end=True)
BUDGET, ANSWER = 25, 12  # tokens
MARKERS = ThoughtMarkers()  # which the tiny model's vocabulary spells with several tokens
BEGUN = "<think>"


def request(model: LoadedModel, number: int = 0, **options: object) -> Request:
    opened = model.tokenizer.encode(BEGUN, add_special=False)
    plan = ThoughtPlan(MARKERS, BUDGET, BEGUN)
    made = Request([*prompt(30 + number), *opened], SEEDED, max_tokens=ANSWER, thoughts=plan)
    return replace(made, **options)  # type: ignore[arg-type]


def check(model: LoadedModel, ticket: SequenceGroup, answer: int = 0) -> list[int]:
    """The ids of an answer: thoughts, the marker, and as many tokens as are asked for."""
    ids = ticket.answers[answer]
    closing = model.tokenizer.encode_within(MARKERS.closing)
    assert ids[BUDGET:-ANSWER] == closing
    finished = [one for one in ticket.request.events if isinstance(one, Finished)]
    end = next(one for one in finished if one.answer == answer)
    assert (end.thought_tokens, end.thought_budget_reached) == (BUDGET, True)
    assert end.generated_tokens == BUDGET + len(closing) + ANSWER
    return ids


@pytest.mark.parametrize("logprobs", [0, 2])
def test_drafts_that_are_partly_right_change_nothing(model: LoadedModel, logprobs: int) -> None:
    plain = model.new_scheduler().run(request(model, count=3, logprobs=logprobs))
    whole = [check(model, plain, number) for number in range(3)]
    assert len(set(map(tuple, whole))) == 3
    for seed in range(4):
        scheduler = model.new_scheduler()
        verify_every_draft(scheduler)
        asked = request(model, count=3, logprobs=logprobs)
        texts = [[*asked.prompt, *ids] for ids in whole]
        asked.drafter = lambda _, texts=texts, seed=seed: PartlyRight(
            texts, model.config.vocabulary, seed
        )
        drafted = scheduler.run(asked)
        assert [check(model, drafted, number) for number in range(3)] == whole


def test_answers_that_run_together_and_are_preempted(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    alone = [check(model, model.new_scheduler().run(request(model, at))) for at in range(3)]
    tickets = [scheduler.submit(request(model, at)) for at in range(3)]
    for step in range(300):
        scheduler.step()
        if step in (8, BUDGET, BUDGET + 6) and scheduler.running > 1:
            scheduler._preempt()
    assert [check(model, one) for one in tickets] == alone


def test_the_answer_is_the_one_behind_thoughts_that_the_model_had_ended(
    model: LoadedModel,
) -> None:
    greedy = replace(SEEDED, temperature=0)
    asked = request(model, sampling=greedy)
    ids = check(model, model.new_scheduler().run(asked))
    written = [*asked.prompt, *ids[:-ANSWER]]
    plain = model.new_scheduler().run(Request(written, greedy, max_tokens=ANSWER))
    assert plain.answers[0] == ids[-ANSWER:]
