"""Draft models: answers stay what they are; prompts in parts, other vocabularies, little memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import tiny
from answers import Request, answered, check_nothing_leaked, prompt, run_all
from drafters import verify_every_draft
from engine.core.runner import Rows
from engine.core.scheduler import Scheduler
from engine.errors import RequestError
from engine.loading.loader import LoadedModel, load
from engine.messages import Sampling
from engine.speculative import draft_model
from engine.speculative.draft_model import DraftModel
from engine.speculative.vocabulary import VocabularyMap

CONTEXT = 600
GREEDY = Sampling(temperature=0, seed=0)
SEEDED = Sampling(temperature=0.3, top_k=0, top_p=1.0, min_p=0.0, seed=3)


@pytest.fixture(autouse=True)
def draft_unlikely_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of a tiny model is likely."""
    monkeypatch.setattr(draft_model, "_LEAST_PROBABILITY", 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(tiny.write(folder / "target.gguf", context=CONTEXT))


@pytest.fixture
def scheduler(model: LoadedModel) -> Scheduler:
    made = model.new_scheduler()
    verify_every_draft(made)
    return made


def beside(target: LoadedModel, model: LoadedModel, context: int = CONTEXT) -> DraftModel:
    vocabulary = VocabularyMap(target.tokenizer, model.tokenizer)
    return DraftModel(model.new_runner(), context, vocabulary)


def check(
    model: LoadedModel,
    scheduler: Scheduler,
    drafts: DraftModel,
    requests: Sequence[Request],
) -> int:
    """Compare answers with those without drafts; returns how many tokens were accepted."""
    plain = [model.new_scheduler().run(dataclasses.replace(one)).answers for one in requests]
    for one in requests:
        one.drafter = drafts.drafter
    tickets = run_all(scheduler, *requests)
    assert [ticket.answers for ticket in tickets] == plain
    check_nothing_leaked(scheduler)
    drafts.tree.clear()
    assert drafts.pool.used_bytes == 0
    return sum(answered(one, at).finished.accepted_tokens for one in tickets for at in one.answers)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_model_that_drafts_for_itself_is_right(
    model: LoadedModel, scheduler: Scheduler, sampling: Sampling
) -> None:
    requests = [
        Request(prompt(length, at), sampling, number=at, max_tokens=40, count=1 + at % 2)
        for at, length in enumerate((1, 30, 255, 256, 300))
    ]
    assert check(model, scheduler, beside(model, model), requests) > (
        50 if sampling is GREEDY else 0
    )


def test_another_model_of_the_family_drafts(
    folder: Path, model: LoadedModel, scheduler: Scheduler
) -> None:
    other = load(tiny.write(folder / "other.gguf", context=CONTEXT, layers=1, seed=0))
    requests = [Request(prompt(300, at), GREEDY, max_tokens=60) for at in range(2)]
    check(model, scheduler, beside(model, other), requests)


def test_a_text_longer_than_the_context_of_its_draft_model_gets_no_drafts(
    model: LoadedModel, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    drafts = beside(model, model, context=64)
    request = Request(prompt(20, 1), GREEDY, max_tokens=100)
    assert check(model, scheduler, drafts, [request]) > 0
    assert not caplog.records


def test_a_draft_model_continues_a_conversation(model: LoadedModel, scheduler: Scheduler) -> None:
    """Its keys and values of the first turn are used again."""
    drafts = beside(model, model)
    first = Request(prompt(300), GREEDY, max_tokens=30, drafter=drafts.drafter)
    text = scheduler.run(first).tokens
    rows, read = list[int](), drafts.runner.hidden

    def counted(batch: Sequence[Rows], *arguments: object) -> object:
        rows.append(sum(len(one.tokens) for one in batch))
        return read(batch, *arguments)  # pyright: ignore[reportArgumentType]

    drafts.runner.hidden = counted  # pyright: ignore[reportAttributeAccessIssue]
    second = Request([*text, *prompt(20, 3)], GREEDY, max_tokens=10, drafter=drafts.drafter)
    scheduler.run(second)
    assert max(rows) < 64


def test_a_full_context_of_the_draft_model_ends_the_drafts(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    requests = [Request(prompt(100), GREEDY, max_tokens=100)]
    accepted = check(model, scheduler, beside(model, model, 130), requests)
    assert 0 < accepted < 60


def test_answers_go_on_when_the_draft_model_has_no_memory(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    drafts = beside(model, model)
    drafts.pool.budget_bytes = 2 * drafts.pool.layout.bytes_per_page
    requests = [Request(prompt(240, at), GREEDY, max_tokens=40) for at in range(4)]
    check(model, scheduler, drafts, requests)


def test_an_answer_goes_on_when_its_drafter_fails(
    model: LoadedModel,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    drafts = beside(model, model)
    step, calls = drafts.runner.step, 0

    def broken(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise MemoryError("no memory")
        return step(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(drafts.runner, "step", broken)
    check(model, scheduler, drafts, [Request(prompt(20), GREEDY, max_tokens=40)])
    assert calls == 6
    assert "switched off" in caplog.text


# --- vocabularies -------------------------------------------------------------------------------


def test_equal_vocabularies_need_no_translation(model: LoadedModel) -> None:
    found = VocabularyMap(model.tokenizer, model.tokenizer)
    assert found.is_identity
    assert found.to_draft([5, 6, 7]) == [5, 6, 7]
    logits = torch.arange(model.tokenizer.size + 3.0)
    assert torch.equal(found.to_target_logits(logits), logits[:-3])


def test_another_vocabulary_is_translated_where_texts_agree(
    folder: Path, model: LoadedModel, scheduler: Scheduler
) -> None:
    path = tiny.write(folder / "spm.gguf", architecture="gemma3", context=CONTEXT)
    other = load(path)
    try:
        found = VocabularyMap(model.tokenizer, other.tokenizer)
    except RequestError:
        pytest.fail("the vocabularies have most bytes in common")
    assert not found.is_identity
    text = model.tokenizer.encode("a cat sat on the mat, zürich", add_special=False)
    spelled = b"".join(map(other.tokenizer.piece, found.to_draft(text)))
    assert spelled == b"".join(map(model.tokenizer.piece, text))
    row = found.to_target_logits(torch.arange(0.0, other.tokenizer.size))
    assert len(row) == model.tokenizer.size
    for token, theirs in enumerate(row.tolist()):
        if theirs >= 0:
            assert model.tokenizer.piece(token) == other.tokenizer.piece(int(theirs))
    assert (row >= 0).sum() > 200
    requests = [Request(text, GREEDY, max_tokens=40)]
    check(model, scheduler, beside(model, other), requests)


def test_a_foreign_vocabulary_is_refused(model: LoadedModel) -> None:
    class Foreign:
        size = 100
        end_tokens = suppressed = frozenset[int]()

        def piece(self, token: int) -> bytes:
            return b"foreign %d" % token

        def is_control(self, token: int) -> bool:
            return False

    with pytest.raises(RequestError, match="vocabulary is too different"):
        VocabularyMap(model.tokenizer, Foreign())  # pyright: ignore[reportArgumentType]
