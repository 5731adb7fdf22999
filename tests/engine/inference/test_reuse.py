"""Prefix reuse with real models: answers are bit-identical wherever the reused prefix ends.

The tests compare the stored KV cache besides the ids of the answer, since two greedy answers may be
equal by chance. The starter model attends to all tokens, gemma-3 in most of its layers only to the
last 512.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from chosen_backend import ops
from engine.inference.generate import Answer
from engine.inference.session import Session
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Finished, FinishReason, Sampling
from kernels.cpu import library

pytestmark = pytest.mark.real

GREEDY = Sampling(temperature=0)
ANSWER = 8  # tokens
LENGTHS = (2, 3, 4, 5, 6, 9, 17, 33, 64, 65, 129, 200, 257, 300, 400, 513, 514, 700)
SOME = (3, 513)  # the last is a chunk and one token
OTHER = [3, 4, 5]  # tokens after the shared prefix that are trimmed
CACHES = pytest.mark.parametrize("type", list(CacheType), ids=lambda type: type.value)


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    if not library.available():
        pytest.skip(library.reason())
    with ops.only("cpu"):
        yield


@cache
def model(path: Path, type: CacheType) -> LoadedModel:
    with ops.only("cpu"):
        return load(path, context=2048, cache=type)


@cache
def ids(path: Path, text: Path) -> list[int]:
    return model(path, CacheType.F16).tokenizer.encode(text.read_text(encoding="utf-8"))


def prompt(path: Path, golden: Path, length: int) -> list[int]:
    start = length % 13  # so that prompts are no prefixes of each other
    found = ids(path, golden / "ppl_text.txt")[start : start + length]
    assert len(found) == length
    return found


def answer(
    loaded: LoadedModel, session: Session, tokens: list[int], most: int = ANSWER
) -> list[int]:
    made = Answer(session, loaded.tokenizer, tokens, GREEDY, max_tokens=most)
    list(made.events())
    return made.tokens


def cached_state(session: Session) -> list[torch.Tensor]:
    """Every key and value as stored, and the logits after the last token."""
    assert session.last_logits is not None
    parts = [part.clone() for part in session.cache.tensors(len(session.tokens))]
    return [*parts, session.last_logits]


def assert_same_bits(one: Session, other: Session) -> None:
    assert one.tokens == other.tokens
    assert all(map(torch.equal, cached_state(one), cached_state(other)))


def prefixes(length: int) -> list[int]:
    """Lengths of the cached prefix: all of a prompt, all but a few tokens, half."""
    return sorted({length, length - 1, length - 3, length // 2} & set(range(1, length + 1)))


def check_cuts(path: Path, golden: Path, type: CacheType, length: int) -> None:
    """Compare the answer after each reused prefix with that of an empty session."""
    loaded, tokens = model(path, type), prompt(path, golden, length)
    fresh = loaded.new_session()
    wanted = answer(loaded, fresh, tokens)
    for prefix in prefixes(length):
        session = loaded.new_session()
        answer(loaded, session, [*tokens[:prefix], *OTHER], 2)
        assert answer(loaded, session, tokens) == wanted, f"{prefix} of {length} tokens reused"
        assert_same_bits(session, fresh)


@CACHES
@pytest.mark.parametrize("length", SOME)
def test_an_answer_does_not_depend_on_which_prefix_was_reused(
    starter_model: Path, golden: Path, type: CacheType, length: int
) -> None:
    check_cuts(starter_model, golden, type, length)


@pytest.mark.slow
@CACHES
@pytest.mark.parametrize("length", [length for length in LENGTHS if length not in SOME])
def test_an_answer_does_not_depend_on_which_prefix_was_reused_at_any_length(
    starter_model: Path, golden: Path, type: CacheType, length: int
) -> None:
    check_cuts(starter_model, golden, type, length)


@pytest.mark.parametrize(
    "type",
    [
        CacheType.Q8_0,
        pytest.param(CacheType.F16, marks=pytest.mark.slow),
        pytest.param(CacheType.F32, marks=pytest.mark.slow),
    ],
    ids=lambda type: type.value,
)
def test_an_answer_of_a_sliding_window_model_does_not_depend_on_which_prefix_was_reused(
    gemma_model: Path, golden: Path, type: CacheType
) -> None:
    check_cuts(gemma_model, golden, type, 600)


@CACHES
def test_the_same_prompt_again_gives_the_same_answer(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 129)
    session = loaded.new_session()
    first = answer(loaded, session, tokens, 24)
    for _ in range(2):
        assert answer(loaded, session, tokens, 24) == first


@CACHES
def test_cancelled_prefill_does_not_change_a_later_answer(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 700)
    fresh, session = loaded.new_session(), loaded.new_session()
    wanted = answer(loaded, fresh, tokens)
    cut = Answer(
        session, loaded.tokenizer, tokens, GREEDY, cancelled=lambda: len(session.tokens) > 0
    )
    (*_, finished) = cut.events()
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.CANCELLED
    assert 0 < len(session.tokens) < len(tokens)
    assert answer(loaded, session, tokens) == wanted
    assert_same_bits(session, fresh)


@CACHES
def test_interrupted_answer_continues_with_the_same_bits(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 65)
    whole, session = loaded.new_session(), loaded.new_session()
    wanted = answer(loaded, whole, tokens, 24)
    made = answer(loaded, session, tokens, 9)
    for most in (1, 6, 8):
        made += answer(loaded, session, [*tokens, *made], most)
    assert made == wanted
    assert_same_bits(session, whole)


@CACHES
def test_next_answer_does_not_depend_on_tokens_trimmed_before(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    """The next turn reuses the cache of the generated answer, here of 24 tokens."""
    loaded, first = model(starter_model, type), prompt(starter_model, golden, 300)
    session = loaded.new_session()
    chat = [*first, *answer(loaded, session, first, 24)]
    question = [*chat, *prompt(starter_model, golden, 33)]
    wanted = answer(loaded, session, question)
    state = cached_state(session)
    answer(loaded, session, [*chat, *OTHER])
    again = Answer(session, loaded.tokenizer, question, GREEDY, max_tokens=ANSWER)
    list(again.events())
    assert again.tokens == wanted
    assert all(map(torch.equal, cached_state(session), state))
    assert again.reused_tokens == len(chat)
