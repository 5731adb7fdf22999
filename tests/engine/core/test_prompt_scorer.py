"""Log probabilities of a given text: the model's own, also for cached texts and beside answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tiny
from answers import Request, prompt
from engine.core.handle import RequestHandle
from engine.core.prompt_scorer import PromptScorer
from engine.core.scheduler import Scheduler
from engine.errors import Cancelled, PromptTooLong, RequestError
from engine.loading.loader import LoadedModel, load
from engine.messages import Sampling, Score, TokenLogprobs
from sessions import finish

TEXT = prompt(300)


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return load(tiny.write(path, architecture=request.param, context=512))


def scored(
    model: LoadedModel, scheduler: Scheduler, ids: list[int], most: int = 2
) -> list[TokenLogprobs]:
    return finish(PromptScorer(scheduler, model.tokenizer).score(ids, most), scheduler)


def check(model: LoadedModel, found: list[TokenLogprobs], ids: list[int], most: int = 2) -> None:
    assert [one.token for one in found] == ids
    assert (found[0].logprob, found[0].top) == (0.0, ())
    session = model.new_session()
    hidden = torch.cat(list(session.prefill(ids)))
    rows = torch.log_softmax(session.logits(hidden).double(), 1)
    for row, token, one in zip(rows, ids[1:], found[1:], strict=False):
        assert one.logprob == float(row[token])
        assert [top.logprob for top in one.top] == row.topk(most).values.tolist()


def test_they_are_those_of_the_models_logits(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    check(model, scored(model, scheduler, TEXT), TEXT)
    check(model, scored(model, scheduler, TEXT[:1]), TEXT[:1])


def test_a_cached_text_is_scored_again_with_the_same_bits(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    first = scored(model, scheduler, TEXT)
    assert scored(model, scheduler, TEXT) == first
    assert scheduler.tree.match("", TEXT).length >= len(TEXT) - 1


def test_beside_an_answer_both_are_as_alone(model: LoadedModel) -> None:
    sampling = Sampling(temperature=0, ignore_end=True)
    alone, beside = model.new_scheduler(), model.new_scheduler()
    request = Request(prompt(20), sampling, max_tokens=40, stop_loops=False)
    expected = alone.submit(request)
    while not expected.done:
        alone.step()
    ticket = beside.submit(Request(prompt(20), sampling, max_tokens=40, stop_loops=False))
    check(model, scored(model, beside, TEXT), TEXT)
    while not ticket.done:
        beside.step()
    assert ticket.answers == expected.answers


def test_cancelling_frees_its_pages(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    handle = RequestHandle(Score(TEXT), print)
    scheduler.between_layers = lambda answering: handle.cancel()
    with pytest.raises(Cancelled):
        finish(PromptScorer(scheduler, model.tokenizer).score(TEXT, 1, handle=handle), scheduler)
    assert scheduler.pool.used_bytes == 0


def test_texts_that_cannot_be_scored_are_refused(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    with pytest.raises(RequestError, match="empty"):
        scored(model, scheduler, [])
    for bad in (-1, model.tokenizer.size):
        with pytest.raises(RequestError, match="vocabulary"):
            scored(model, scheduler, [1, bad])
    with pytest.raises(PromptTooLong, match="512"):
        scored(model, scheduler, [1] * 513)
