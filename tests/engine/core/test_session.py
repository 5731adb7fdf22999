"""Session: trim to any position and continue; changed adapters discard the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
import tiny_lora
from engine import CacheType, Cancelled
from engine.adapters.stack import Stack, load_adapter
from engine.core.runner import chunk_size
from engine.core.session import Session
from kernels.backends import BACKENDS
from sessions import empty_like, open_session, session_over

# Largest difference of logits of about one when the same tokens were prefilled in other chunks.
APART = {CacheType.F32: 1e-4, CacheType.F16: 1e-2, CacheType.Q8_0: 0.2}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=700)


@pytest.fixture(scope="module")
def base(path: Path) -> Session:
    return open_session(path, 700)


def fresh(base: Session, type: CacheType = CacheType.F32) -> Session:
    """An empty session over the same weights."""
    return session_over(base.runner.model, 700, type)


def common_prefix(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("type", list(CacheType))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 300), st.lists(st.integers(3, 200), min_size=1, max_size=180)),
        min_size=1,
        max_size=6,
    )
)
def test_trim_then_append_equals_fresh(
    base: Session, type: CacheType, steps: list[tuple[int, list[int]]]
) -> None:
    session, tokens = fresh(base, type), []
    for back, new in steps:
        tokens = tokens[: max(len(tokens) - back, 0)][-500:]
        session.rewind(common_prefix(tokens, session.tokens))
        logits = session.read([*tokens, *new][len(session.tokens) :])
        tokens = [*tokens, *new]
        assert session.tokens == tokens
    expected = fresh(base, type).read(tokens)
    torch.testing.assert_close(logits, expected, rtol=0, atol=APART[type])


def test_every_position_can_be_trimmed_to(base: Session) -> None:
    tokens = list(range(5, 45)) * 7
    expected = fresh(base).read(tokens)
    for length in (*range(40), 255, 256, 257, 279):
        session = fresh(base)
        session.read(tokens)
        session.rewind(length)
        assert session.tokens == tokens[:length]
        logits = session.read(tokens[length:])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_a_full_context_can_be_trimmed_and_filled_again(base: Session) -> None:
    session = fresh(base)
    tokens = [token % 90 + 5 for token in range(700)]
    session.read(tokens)
    with pytest.raises(AssertionError, match="700 \\+ 1 tokens in 700"):
        session.step(5)
    assert session.tokens == tokens
    session.rewind(699)
    session.step(tokens[-1])
    assert session.tokens == tokens


def test_cancelled_prefill_leaves_the_session_unchanged(base: Session) -> None:
    session = fresh(base)
    expected = session.read([5, 6, 7]).clone()
    session.rewind(2)
    calls = iter((False, True))

    def cancel_in_the_second_layer() -> None:
        if next(calls):
            raise Cancelled

    with pytest.raises(Cancelled):
        list(session.prefill([11, 12], cancel_in_the_second_layer))
    assert session.tokens == [5, 6]
    torch.testing.assert_close(session.step(7), expected, rtol=0, atol=1e-4)


# --- adapters -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapters(path: Path, base: Session) -> list[Path]:
    return [tiny_lora.write(path.with_name(f"{seed}.gguf"), path, seed=seed) for seed in (1, 2)]


def stack(base: Session, *entries: tuple[Path, float]) -> Stack:
    model = base.runner.model
    return Stack((load_adapter(path, model.base), strength) for path, strength in entries)


def test_stack_with_another_effect_discards_cached_tokens(
    base: Session, adapters: list[Path]
) -> None:
    one, two = adapters
    session, tokens = fresh(base), [5, 6, 7, 8]
    plain = session.read(tokens).clone()
    assert session.set_stack(stack(base, (one, 0.0), (two, 0.0))) == 0
    assert session.tokens == tokens
    assert session.set_stack(stack(base, (one, 1.0))) == 4
    assert session.tokens == []
    assert session.pool.used_bytes == 0
    changed = session.read(tokens).clone()
    assert (changed - plain).abs().max() > 0.01
    assert session.set_stack(stack(base, (one, 1.0), (two, 0.0))) == 0
    assert session.set_stack(stack(base, (two, 0.5), (one, 1.0))) == 4
    session.read(tokens)
    assert session.set_stack(stack(base, (one, 1.0), (two, 0.5))) == 0  # order has no effect
    assert session.set_stack(stack(base, (one, 1.0), (two, 0.25))) == 4
    assert session.set_stack(stack(base)) == 0  # nothing was cached
    assert torch.equal(session.read(tokens), plain)


def test_stack_with_strength_0_gives_the_same_bits(base: Session, adapters: list[Path]) -> None:
    one, other = fresh(base), fresh(base)
    other.set_stack(stack(base, (adapters[0], 0.0)))
    assert torch.equal(one.read([5, 6, 7]), other.read([5, 6, 7]))
    assert torch.equal(one.step(9), other.step(9))


def test_adapter_of_the_output_head_changes_logits(path: Path, base: Session) -> None:
    head = tiny_lora.write(path.with_name("head.gguf"), path, targets=("output",))
    session, plain = fresh(base), fresh(base).read([5, 6, 7])
    session.set_stack(stack(base, (head, 1.0)))
    assert (session.read([5, 6, 7]) - plain).abs().max() > 0.01


@pytest.mark.parametrize(("weights", "tokens"), [(0, 512), (5_000_000, 256), (10**9, 16)])
def test_chunk_size_follows_the_weights_of_a_layer(weights: int, tokens: int) -> None:
    assert chunk_size(weights, BACKENDS["reference"]) == tokens


def test_equal_prompts_give_equal_bits(base: Session) -> None:
    model = base.runner.model
    small = session_over(model.of_layers([0]))
    one, other = empty_like(small), empty_like(small)
    assert torch.equal(one.read(list(range(5, 90))), other.read(list(range(5, 90))))
