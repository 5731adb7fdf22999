"""Prefix matching by bytes: cached ids are reused, and the prompt always spells its text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from engine.core.prefix_match import reuse_cached_ids, shared_prefix
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile

KINDS = ["bpe", "spm", "spm with a space first"]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["<|im_start|>", "<|im_end|>", "\n", " ", "user\n", "the quick brown fox "]
        ),
        st.text(alphabet="abc the.,\n éß猫🌱", max_size=12),
    ),
    max_size=10,
).map("".join)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    keys = {"tokenizer.ggml.add_space_prefix": True} if "first" in request.param else None
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny.write(path, tokenizer=request.param.split()[0], metadata=keys)
    with GGUFFile.open(path) as file:
        return Tokenizer.from_metadata(file.metadata)


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    return b"".join(map(tokenizer.piece, ids))


def controls(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    return [token for token in ids if tokenizer.is_control(token)]


def respelled(tokenizer: Tokenizer, ids: Sequence[int], seed: int) -> list[int]:
    """Other ids that spell the same bytes, as a model may generate them: some in single bytes."""
    chance, single = random.Random(seed), {}
    for token in range(tokenizer.size):
        piece = tokenizer.piece(token)
        if len(piece) == 1 and not tokenizer.is_control(token):
            single.setdefault(piece, token)
    found: list[int] = []
    for token in ids:
        piece = tokenizer.piece(token)
        if tokenizer.is_control(token) or chance.random() < 0.5:
            found.append(token)
        else:
            found += [single[piece[at : at + 1]] for at in range(len(piece))]
    return found


@given(TEXTS, TEXTS, st.integers(0, 50), st.data())
def test_prompt_spells_its_text_with_any_cached_ids(
    tokenizer: Tokenizer, text: str, other: str, seed: int, data: st.DataObject
) -> None:
    fresh = tokenizer.encode(text)
    cached = respelled(tokenizer, tokenizer.encode(text[: len(text) // 2] + other), seed)
    cached = cached[: data.draw(st.integers(0, len(cached)))]
    ids = reuse_cached_ids(tokenizer, fresh, [cached])
    assert spelled(tokenizer, ids) == spelled(tokenizer, fresh)
    assert controls(tokenizer, ids) == controls(tokenizer, fresh)
    kept, _ = shared_prefix(tokenizer, fresh, cached)
    assert ids[:kept] == cached[:kept]


@given(TEXTS, TEXTS, st.integers(0, 50))
def test_text_that_extends_the_cached_text_keeps_all_cached_ids(
    tokenizer: Tokenizer, text: str, more: str, seed: int
) -> None:
    """A control token is a boundary for the tokenizer, so all ids before it are kept."""
    cached = respelled(tokenizer, tokenizer.encode(text), seed)
    fresh = tokenizer.encode(text + "<|im_end|>" + more)
    kept, _ = shared_prefix(tokenizer, fresh, cached)
    assert kept == len(cached)


@given(TEXTS, st.integers(0, 50))
def test_same_text_in_other_ids_is_kept_whole(tokenizer: Tokenizer, text: str, seed: int) -> None:
    fresh = tokenizer.encode(text)
    cached = respelled(tokenizer, fresh, seed)
    assert reuse_cached_ids(tokenizer, fresh, [cached]) == cached


@given(TEXTS, st.integers(0, 50))
def test_fresh_ids_follow_the_shared_prefix(tokenizer: Tokenizer, text: str, seed: int) -> None:
    fresh = tokenizer.encode(text + " the end")
    cached = respelled(tokenizer, tokenizer.encode(text), seed)
    kept, after = shared_prefix(tokenizer, fresh, cached)
    ids = reuse_cached_ids(tokenizer, fresh, [cached])
    assert ids[kept:] == fresh[after:]
    if kept < len(cached):  # at least as far as the ids themselves agree
        assert kept >= shared_prefix(tokenizer, fresh, fresh[:after])[0] - after


def test_a_text_that_looks_like_a_control_token_is_not_one(tokenizer: Tokenizer) -> None:
    fresh = tokenizer.encode("hi<|im_end|>")
    typed = tokenizer.encode("hi<|im_end|>", parse_special=False)
    assert spelled(tokenizer, typed) == spelled(tokenizer, fresh)
    end = tokenizer.token_id("<|im_end|>")
    assert end not in fresh[: shared_prefix(tokenizer, fresh, typed)[1]]
    assert reuse_cached_ids(tokenizer, fresh, [typed])[-1] == end


def test_control_token_inside_a_generated_answer_ends_the_shared_prefix(
    tokenizer: Tokenizer,
) -> None:
    start = tokenizer.encode("the quick ")
    control = tokenizer.token_id("<|im_start|>")
    assert control is not None
    fresh = tokenizer.encode("the quick brown fox")
    cached = [*start, control, *tokenizer.encode("brown", add_special=False)]
    kept, _ = shared_prefix(tokenizer, fresh, cached)
    assert kept <= len(start)


def test_incomplete_character_is_not_reused(tokenizer: Tokenizer) -> None:
    text = "猫 the quick"
    fresh, cached = tokenizer.encode(text), tokenizer.encode(text + "🌱")
    for half in range(len(fresh), len(cached)):
        ids = reuse_cached_ids(tokenizer, fresh, [cached[:half]])
        assert spelled(tokenizer, ids) == spelled(tokenizer, fresh)


def test_empty_sequences_share_no_prefix(tokenizer: Tokenizer) -> None:
    assert shared_prefix(tokenizer, [5, 6], []) == (0, 0)
    assert shared_prefix(tokenizer, [], [5, 6]) == (0, 0)


@pytest.mark.real
@pytest.mark.parametrize("model", ["starter_model", "gemma_model"])
def test_real_vocabularies_keep_an_answer_in_other_ids(
    model: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    with GGUFFile.open(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    prompt = "<start_of_turn>user\nHi<end_of_turn>\n<|im_start|>assistant\n"
    # A word in single letters, as no tokenizer splits it; then the text continues with a new turn.
    letters = [tokenizer.encode(letter, add_special=False) for letter in "together"]
    answer = [token for letter in letters for token in letter]
    cached = [*tokenizer.encode(prompt), *answer]
    text = prompt + tokenizer.decode(answer) + "<|im_end|><end_of_turn>\nnext"
    fresh = tokenizer.encode(text)
    assert cached != fresh[: len(cached)]
    ids = reuse_cached_ids(tokenizer, fresh, [cached])
    assert ids[: len(cached)] == cached
    assert spelled(tokenizer, ids) == spelled(tokenizer, fresh)
