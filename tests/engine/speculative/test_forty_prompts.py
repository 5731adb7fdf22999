"""Forty real prompts: greedy and seeded answers with every kind of drafts are those without, token for
token, on every cache type, with adapters and with a grammar.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_lora
from answers import Request, answered
from drafters import verify_every_draft
from engine.adapters.stack import NO_ADAPTERS, Stack, load_adapter
from engine.frontend.template import prompt_ids
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Constraint, ConstraintKind, DraftKind, Role, Sampling, Turn
from engine.speculative.draft_model import DraftModel
from engine.speculative.draft_registry import maker
from engine.speculative.vocabulary import VocabularyMap

pytestmark = pytest.mark.slow

TOKENS = 32
CONTEXT = 700
CACHED_BYTES = 150_000_000  # of KV pages in each scheduler
TOPICS = (
    "bread", "a lighthouse", "tides", "bicycles", "the moon", "chess", "coffee", "bees", "winter", "maps",
)  # fmt: skip
ASKED = (
    "Explain {} in three sentences.",
    "Write a list of five facts about {}.",
    "Repeat this word for word, twice: I like {} very much, and {} likes me.",
    "Write a Python function about {} with comments.",
)
PROMPTS = [asked.format(topic, topic) for asked in ASKED for topic in TOPICS]
SAMPLINGS = (
    Sampling(temperature=0),
    Sampling(temperature=0.8, top_k=40, top_p=0.9, repeat_penalty=1.1, seed=11),
)
GRAMMAR = Constraint(
    ConstraintKind.GBNF,
    'root ::= line line line*\nline ::= ("- " | "* ") [A-Z] [a-z ,\']* [.!?] "\\n"\n',
)


@pytest.fixture(scope="module", params=list(CacheType), ids=lambda one: one.value)
def model(request: pytest.FixtureRequest, starter_model: Path) -> LoadedModel:
    return load(starter_model, cache=request.param, context=CONTEXT)


@pytest.fixture(scope="module")
def other(starter_model: Path) -> LoadedModel:
    """The model drafts for itself with an f32 cache, and without adapters: often right, not always."""
    return load(starter_model, cache=CacheType.F32, context=CONTEXT, threads=None)


@pytest.fixture
def drafts(model: LoadedModel, other: LoadedModel) -> DraftModel:
    vocabulary = VocabularyMap(model.tokenizer, other.tokenizer)
    return DraftModel(other.new_runner(), CONTEXT, vocabulary)


@pytest.fixture(scope="module")
def adapters(
    model: LoadedModel, starter_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Stack:
    path = tmp_path_factory.mktemp("adapter") / "one.gguf"
    tiny_lora.write(path, starter_model, size=0.05)
    return Stack([(load_adapter(path, model.decoder.base), 0.7)])


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "seeded"])
@pytest.mark.parametrize("kind", [DraftKind.LOOKUP, DraftKind.MODEL])
@pytest.mark.parametrize("how", ["plain", "adapters", "grammar"])
def test_answers_are_those_without_drafts(
    model: LoadedModel,
    drafts: DraftModel,
    adapters: Stack,
    sampling: Sampling,
    kind: DraftKind,
    how: str,
) -> None:
    scheduler, plain = model.new_scheduler(CACHED_BYTES), model.new_scheduler(CACHED_BYTES)
    verify_every_draft(scheduler)
    drafted = accepted = 0
    for asked in PROMPTS:
        text = model.template.render((Turn(Role.USER, asked),))
        request = Request(
            prompt_ids(model.tokenizer, text),
            sampling,
            max_tokens=TOKENS,
            stack=adapters if how == "adapters" else NO_ADAPTERS,
            constraint=GRAMMAR if how == "grammar" else None,
        )
        wanted = answered(plain.run(replace(request)))
        found = answered(scheduler.run(replace(request, drafter=maker(kind, drafts))))
        assert (found.tokens, found.text) == (wanted.tokens, wanted.text), asked
        assert found.finished.reason is wanted.finished.reason
        drafted += found.finished.drafted_tokens
        accepted += found.finished.accepted_tokens
    assert 0 < accepted <= drafted
