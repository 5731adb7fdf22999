"""Decoders with several kinds of layer state: layouts, memory, self-check, and what is slow."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS
from engine.core.prefill_calibration import calibrate
from engine.core.runner import Runner
from engine.core.session import Session
from engine.loading.memory import Needs, plan_memory
from engine.loading.placement import slow_parts
from engine.loading.selfcheck import find_faults
from engine.messages import CacheType, SlowPart, SlowReason
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.models.mixers import Attention
from engine.state.pages import STATE_PAGES, bytes_for
from hybrids import EXACT, HYBRIDS, WINDOW
from kernels import cpu
from kernels.backend import reference
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.backends import BACKENDS
from kernels.states.kv_pages import KVLayout
from kernels.states.layer_state import AT_END, ConvState, LayerShape, RecurrentState, SharedState

V = 40


def test_each_block_has_its_states() -> None:
    mixed = HYBRIDS["mixed"](V)
    kinds = [type(state) for state in mixed.layer_states]
    delta_net = [ConvState, ConvState, ConvState, RecurrentState]
    shared = [SharedState, SharedState]
    assert kinds == [LayerShape, *delta_net, LayerShape, ConvState, *shared]
    assert mixed.first_states == (0, 1, 5, 6, 7, 8)
    assert mixed.layer_states[-2:] == (SharedState(0), SharedState(5))
    assert KVLayout(mixed.layer_states, torch.float32).windows == (WINDOW, AT_END, 0)
    assert {state.place for state in mixed.layer_states[:-2]} == {EXACT.name}
    assert mixed.state_ops == {EXACT.name: ("short_conv", "recurrence")}
    assert HYBRIDS["shared"](V).state_ops == {}


def test_some_layers_are_taken_with_those_they_read() -> None:
    mixed = HYBRIDS["mixed"](V)
    part = mixed.of_layers([1, 5])
    assert [type(block.attention) for block in part.blocks] == [
        type(mixed.blocks[at].attention) for at in (1, 2, 5)
    ]
    last = part.blocks[-1].attention
    assert isinstance(last, Attention)
    assert last.shared == 1
    forward_program(part, KVLayout(part.layer_states, torch.float32))


@pytest.mark.parametrize("name", HYBRIDS)
def test_programs_of_weights_that_are_not_packed_run_op_by_op(name: str) -> None:
    decoder = HYBRIDS[name](V)
    assert not Runner(decoder).is_recorded


@pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels")
@pytest.mark.parametrize("name", HYBRIDS)
def test_native_kernels_run_these_programs_recorded(name: str) -> None:
    """Prefill in pieces and tokens one by one have the bits of the ops, and their meaning."""
    decoder, exact = HYBRIDS[name](V, BACKENDS["cpu"]), HYBRIDS[name](V)
    runner = Runner(decoder)
    assert runner.is_recorded
    tokens = [at * 7 % V for at in range(330)]
    session, ops = (Session(one, one.new_pool(), 400) for one in (runner, op_by_op(decoder)))
    plain = Runner(exact)
    wanted = Session(plain, plain.new_pool(), 400)
    found: list[Tensor] = []
    for each in (session, ops, wanted):
        for part in (tokens[:100], tokens[100:101], tokens[101:300]):
            last = each.read(part)
        found.append(torch.stack([last, *(each.step(token).clone() for token in tokens[300:])]))
    assert torch.equal(found[0], found[1])
    error = (found[0] - found[2]).square().sum() / found[2].square().sum()
    assert error < 1e-8


def op_by_op(decoder: Decoder) -> Runner:
    """A runner whose backend records nothing."""
    kernels = {key: kernel for key, kernel in cpu.KERNELS.items() if key[0] != "record"}
    return Runner(
        replace(decoder, placement=Placement.on(Backend("cpu", kernels), len(decoder.blocks)))
    )


def test_an_op_that_only_the_reference_has_is_reported_as_slow() -> None:
    state_ops = HYBRIDS["mixed"](V).state_ops[EXACT.name]
    kernels = {key: one for key, one in cpu.KERNELS.items() if key[0] not in state_ops}
    backend = Backend("cpu", kernels)
    used = {"cpu": backend.in_use(["F32"], state_ops)}
    assert slow_parts(used, {}) == tuple(SlowPart(SlowReason.NO_KERNEL, op) for op in state_ops)
    assert slow_parts({"cpu": backend.in_use(["F32"])}, {}) == ()
    whole = Backend("cpu", cpu.KERNELS)
    assert slow_parts({"cpu": whole.in_use(["F32"], state_ops)}, {}) == ()


@pytest.mark.parametrize("op", ["short_conv", "recurrence"])
def test_the_self_check_finds_a_wrong_kernel(op: str, caplog: pytest.LogCaptureFixture) -> None:
    def wrong(*operands: Any) -> tuple[Tensor, Tensor]:
        y, state = getattr(reference, op)(*operands)
        return y, state * 1.1

    decoder = HYBRIDS["mixed"](V)
    weights: Any = SimpleNamespace(stored_rows=lambda weight, rows: None)
    config: Any = SimpleNamespace(vocabulary=V)
    assert not find_faults(config, decoder, weights).errors
    backend = Backend("wrong", reference.KERNELS | {(op, "F32"): wrong})
    broken = replace(decoder, placement=Placement.on(backend, len(decoder.blocks)))
    assert set(find_faults(config, broken, weights).errors) == {("wrong", op, "F32")}
    assert f"wrong: the kernel of {op} on F32 is wrong" in caplog.text


@pytest.mark.parametrize("name", HYBRIDS)
def test_prefill_is_calibrated(name: str) -> None:
    costs = calibrate(HYBRIDS[name](V), CacheType.F32, 200, NO_ADAPTERS)
    assert costs.token > 0


# --- memory -------------------------------------------------------------------------------------


def test_states_of_fixed_size_do_not_grow_with_the_context() -> None:
    layout = KVLayout(HYBRIDS["recurrent"](V).layer_states, torch.float16)
    state, page = layout.state_bytes, layout.kv_bytes_per_page
    assert state == 4 * 2 * (3 * (12 + 12 + 40) + 4 * 6 * 10)
    assert bytes_for(layout, 0) == 0
    assert bytes_for(layout, 256) == page + 2 * state
    assert bytes_for(layout, 100_000) == -(-100_000 // 256) * page + STATE_PAGES * state


def test_a_plan_counts_states_once() -> None:
    needs = Needs(1_000, 10, lambda context: 5, state_bytes=400)
    plan = plan_memory(needs, context_wanted=0, context_model=4_096, available=10_000_000)
    assert plan.cache_bytes == 10 * 4_096 + 400
    assert plan.total_bytes == 1_000 + plan.cache_bytes + 5
    small = plan_memory(needs, context_wanted=0, context_model=4_096, available=20_000)
    assert small.most_context == (18_000 - 1_405) // 10


def test_states_are_grouped_by_the_backend_of_their_layer() -> None:
    decoder = HYBRIDS["recurrent"](V)
    other = Backend("other", reference.KERNELS)
    split = replace(decoder, placement=Placement.split([(EXACT, 1), (other, 2)]))
    layout = KVLayout(split.layer_states, torch.float32)
    assert layout.windows == (AT_END, AT_END, 0)
    assert layout.places == (EXACT.name, other.name, other.name)
    assert layout.state_bytes == KVLayout(decoder.layer_states, torch.float32).state_bytes
    ops = ("short_conv", "recurrence")
    assert split.state_ops == {EXACT.name: ops, other.name: ops}


def test_a_layer_cannot_read_the_keys_of_one_on_another_backend() -> None:
    decoder = HYBRIDS["shared"](V)
    parts = [(EXACT, 2), (Backend("other", reference.KERNELS), 2)]
    split = replace(decoder, placement=Placement.split(parts))
    with pytest.raises(ValueError, match="Layer 2 on other reads the keys of layer 0 on exact"):
        _ = split.layer_states


def test_a_split_hybrid_gives_the_logits_of_one_backend() -> None:
    decoder = HYBRIDS["recurrent"](V)
    other = Backend("other", EXACT.kernels)
    split = replace(decoder, placement=Placement.split([(EXACT, 1), (other, 2)]))
    found: list[Tensor] = []
    for one in (decoder, split):
        runner = Runner(one)
        session = Session(runner, runner.new_pool(), 400)
        session.read([at * 7 % V for at in range(300)])
        assert session.rewind(270) == 256
        found.append(session.read([3, 5, 8]))
        found.append(session.step(4).clone())
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])
