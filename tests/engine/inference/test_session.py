"""Session: trim to any position and continue; changed adapters discard the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import tiny
import tiny_lora
from engine import CacheType, Cancelled, Sampling
from engine.inference.session import SamplerState, Session, chunk_size
from engine.lora.stack import Stack, load_adapter
from engine.state.kv_cache import Cache
from kernels.backends import BACKENDS
from sessions import open_session

# Largest difference of logits of about one when the same tokens were prefilled in other chunks.
APART = {CacheType.F32: 1e-4, CacheType.F16: 1e-2, CacheType.Q8_0: 0.2}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def base(path: Path) -> Session:
    return open_session(path)


def fresh(base: Session, type: CacheType = CacheType.F32) -> Session:
    """An empty session over the same weights."""
    return Session(base.model, Cache(2, 2, 16, 256, type))


def read(session: Session, tokens: list[int]) -> Tensor:
    """Logits after the last of `tokens`, appended."""
    (*_, hidden) = session.prefill(tokens)
    return session.logits_after(hidden)


@pytest.mark.parametrize("type", list(CacheType))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 80), st.lists(st.integers(3, 200), min_size=1, max_size=40)),
        min_size=1,
        max_size=6,
    )
)
def test_trim_then_append_equals_fresh(
    base: Session, type: CacheType, steps: list[tuple[int, list[int]]]
) -> None:
    session, tokens = fresh(base, type), []
    for back, new in steps:
        tokens = tokens[: max(len(tokens) - back, 0)][-200:]
        session.trim(session.common_prefix(tokens))
        logits = read(session, [*tokens, *new][len(session.tokens) :])
        tokens = [*tokens, *new]
        assert session.tokens == tokens
        assert session.cache.length == len(tokens)
    expected = read(fresh(base, type), tokens)
    torch.testing.assert_close(logits, expected, rtol=0, atol=APART[type])


def test_every_position_can_be_trimmed_to(base: Session) -> None:
    tokens = list(range(5, 45))
    for length in range(len(tokens)):
        session = fresh(base)
        read(session, tokens)
        session.trim(length)
        assert session.tokens == tokens[:length]
        logits = read(session, tokens[length:])
        torch.testing.assert_close(logits, read(fresh(base), tokens), rtol=0, atol=1e-4)


def test_logits_are_known_until_something_changes(base: Session) -> None:
    session = fresh(base)
    assert session.last_logits is None
    logits = read(session, [5, 6, 7])
    assert session.last_logits is logits
    session.trim(3)
    assert session.last_logits is logits
    for _ in session.prefill([8]):
        assert session.last_logits is None
    session.step(9)
    assert session.last_logits is not None
    session.trim(2)
    assert session.last_logits is None


def test_trim_drops_the_pending_token(base: Session) -> None:
    session = fresh(base)
    read(session, [5, 6])
    session.pending = [9]
    session.sampler_state = SamplerState(Sampling(), torch.Generator().get_state())
    assert session.all_tokens == [5, 6, 9]
    session.trim(2)
    assert session.all_tokens == [5, 6]
    assert session.sampler_state is None


def test_cancelled_prefill_leaves_the_session_unchanged(base: Session) -> None:
    session = fresh(base)
    expected = read(session, [5, 6, 7]).clone()
    session.trim(2)
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
    return Stack((load_adapter(path, base.model.base), strength) for path, strength in entries)


def test_stack_with_another_effect_discards_cached_tokens(
    base: Session, adapters: list[Path]
) -> None:
    one, two = adapters
    session, tokens = fresh(base), [5, 6, 7, 8]
    plain = read(session, tokens).clone()
    assert session.set_stack(stack(base, (one, 0.0), (two, 0.0))) == 0
    assert session.tokens == tokens
    assert session.set_stack(stack(base, (one, 1.0))) == 4
    assert session.tokens == []
    assert session.cache.length == 0
    changed = read(session, tokens).clone()
    assert (changed - plain).abs().max() > 0.01
    assert session.set_stack(stack(base, (one, 1.0), (two, 0.0))) == 0
    assert session.set_stack(stack(base, (two, 0.5), (one, 1.0))) == 4
    read(session, tokens)
    assert session.set_stack(stack(base, (one, 1.0), (two, 0.5))) == 0  # order has no effect
    assert session.set_stack(stack(base, (one, 1.0), (two, 0.25))) == 4
    assert session.set_stack(stack(base)) == 0  # nothing was cached
    assert torch.equal(read(session, tokens), plain)


def test_changing_adapters_of_an_empty_session_drops_the_pending_token(
    base: Session, adapters: list[Path]
) -> None:
    session = fresh(base)
    session.pending = [4]
    session.set_stack(stack(base, (adapters[0], 1.0)))
    assert session.all_tokens == []


def test_stack_with_strength_0_gives_the_same_bits(base: Session, adapters: list[Path]) -> None:
    one, other = fresh(base), fresh(base)
    other.set_stack(stack(base, (adapters[0], 0.0)))
    assert torch.equal(read(one, [5, 6, 7]), read(other, [5, 6, 7]))
    assert torch.equal(one.step(9), other.step(9))


def test_adapter_of_the_output_head_changes_logits(path: Path, base: Session) -> None:
    head = tiny_lora.write(path.with_name("head.gguf"), path, targets=("output",))
    session, plain = fresh(base), read(fresh(base), [5, 6, 7])
    session.set_stack(stack(base, (head, 1.0)))
    assert (read(session, [5, 6, 7]) - plain).abs().max() > 0.01


@pytest.mark.parametrize(("weights", "tokens"), [(0, 512), (5_000_000, 256), (10**9, 16)])
def test_chunk_size_follows_the_weights_of_a_layer(weights: int, tokens: int) -> None:
    assert chunk_size(weights, BACKENDS["reference"]) == tokens


def test_equal_prompts_give_equal_bits(base: Session) -> None:
    small = replace(base.model, blocks=base.model.blocks[:1])
    one, other = (Session(small, Cache(1, 2, 16, 256)) for _ in range(2))
    assert torch.equal(read(one, list(range(5, 90))), read(other, list(range(5, 90))))
