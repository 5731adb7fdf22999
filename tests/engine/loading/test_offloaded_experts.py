"""Memory limits of mixtures: what is left is a cache of experts, and only what is used is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import architecture_files
import tiny
from architecture_files import Skeleton
from engine import Failed, Load, ModelLoaded
from engine.cli.client import offloading_words
from engine.gguf.reader import GGUFFile
from engine.loading.loader import LoadedModel, load
from engine.loading.memory import MemoryPlan, Offloading
from engine.loading.offloading import ExpertBytes, expert_bytes, layer_bytes, with_offloading
from engine.loading.placement import place, predict
from engine.loading.preflight import identify
from engine.messages import CacheType, SlowReason
from engine.models.expert_streamer import ExpertStreamer
from engine_bench import Bench, answer_text
from kernels.backends import BACKENDS

LAYERS, WIDTH, INNER, EXPERTS, CHOSEN, CONTEXT = 6, 256, 256, 8, 2, 128
pytestmark = pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture whose experts take most of its memory: 0.8 MB each."""
    words = tiny.bpe("qwen3")
    keys = {
        "block_count": LAYERS,
        "context_length": 1_024,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER,
        "expert_feed_forward_length": INNER,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "expert_count": EXPERTS,
        "expert_used_count": CHOSEN,
    }
    metadata = {f"qwen3moe.{key}": ("UINT32", value) for key, value in keys.items()}
    metadata["general.architecture"] = "STRING", "qwen3moe"
    metadata["qwen3moe.attention.layer_norm_rms_epsilon"] = "FLOAT32", 1e-6
    vocabulary = len(words["tokenizer.ggml.tokens"])
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    layer = {
        "attn_norm": (WIDTH,),
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (128, WIDTH),
        "attn_v": (128, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "attn_q_norm": (64,),
        "attn_k_norm": (64,),
        "ffn_norm": (WIDTH,),
        "ffn_gate_inp": (EXPERTS, WIDTH),
        "ffn_gate_exps": (EXPERTS, INNER, WIDTH),
        "ffn_up_exps": (EXPERTS, INNER, WIDTH),
        "ffn_down_exps": (EXPERTS, WIDTH, INNER),
    }
    for index in range(LAYERS):
        tensors |= {f"blk.{index}.{name}.weight": shape for name, shape in layer.items()}
    file = tmp_path_factory.mktemp("experts") / "m.gguf"
    return architecture_files.write(Skeleton("qwen3moe", metadata, tensors), file, words)


def planned(
    path: Path, context: int = CONTEXT, *, limit: int = 0, free: int = 10**10
) -> MemoryPlan:
    with GGUFFile.open(path) as file:
        _, config = identify(file)
        operands = file, config, place(config.layers), context, CacheType.F32
        return predict(*operands, available=free, limit=limit)[0]


def offloading_of(path: Path, *, limit: int) -> Offloading:
    found = planned(path, limit=limit)
    assert found.fits
    assert found.total_bytes <= limit
    assert found.offloading is not None
    return found.offloading


def sizes(path: Path) -> ExpertBytes:
    with GGUFFile.open(path) as file:
        found = expert_bytes(file, place(LAYERS), {}, CHOSEN)
    assert found is not None
    return found


def logits(model: LoadedModel) -> Tensor:
    session = model.new_session()
    (hidden,) = session.prefill(list(range(5, 45)))
    return torch.cat([session.logits(hidden), session.step(9)[None]])


def test_experts_are_what_the_file_has(path: Path) -> None:
    found = sizes(path)
    assert found.layers == tuple(range(LAYERS))
    assert found.count == LAYERS * EXPERTS
    assert found.stored == LAYERS * EXPERTS * 3 * 4 * WIDTH * INNER
    assert found.token * EXPERTS == found.stored * CHOSEN
    assert found.slot * found.count >= found.saved >= found.stored


def test_a_mixture_has_as_many_experts_in_memory_as_fit(path: Path) -> None:
    whole, one = planned(path), sizes(path)
    assert whole.offloading is None
    counts: list[int] = []
    for missing in (1, 8, 20, 40):
        limit = whole.total_bytes - missing * one.slot
        found = planned(path, limit=limit)
        assert found.fits
        assert found.total_bytes <= limit < found.total_bytes + one.slot
        assert found.offloading is not None
        assert found.offloading.layers == one.layers
        counts.append(found.offloading.expert_slots)
    assert counts == sorted(counts, reverse=True)
    assert one.count > counts[0] > counts[-1] >= CHOSEN


def test_a_token_reads_the_share_of_its_experts_that_is_not_in_memory(path: Path) -> None:
    one = sizes(path)
    found = offloading_of(path, limit=planned(path).total_bytes - 24 * one.slot)
    missing = one.count - found.expert_slots
    assert found.token_bytes == one.token * missing // one.count
    assert found.chunk_bytes == one.stored
    assert found.disk_speed == 0 or found.token_seconds == found.token_bytes / found.disk_speed


def test_the_least_memory_is_that_of_a_token_in_one_layer(path: Path) -> None:
    least = planned(path, limit=1).least_bytes
    assert offloading_of(path, limit=least).expert_slots == CHOSEN
    assert planned(path, limit=least - 1).offloading is None


def test_layers_are_offloaded_where_they_take_less_than_the_rest_of_a_mixture(path: Path) -> None:
    with GGUFFile.open(path) as file:
        layers = layer_bytes(file, place(LAYERS), {})
    found = sizes(path)
    small = replace(found, saved=0)  # as if the experts were few beside the dense matrices
    whole = planned(path).total_bytes
    limit = whole - 2 * layers[0][0]

    def made(offloading: Offloading) -> MemoryPlan:
        total = whole + offloading.held_bytes - offloading.saved_bytes
        return MemoryPlan(total, 0, 0, total, 10**10, CONTEXT, CONTEXT, (), limit, offloading)

    by_layer, by_expert = with_offloading(small, layers, made), with_offloading(found, layers, made)
    assert by_layer is not None
    assert by_layer.offloading is not None
    assert by_expert is not None
    assert by_expert.offloading is not None
    assert (by_layer.offloading.expert_slots, by_expert.offloading.expert_slots > 0) == (0, True)


def test_free_memory_is_left_to_other_programs(path: Path) -> None:
    whole, one = planned(path), sizes(path)
    found = planned(path, free=int(whole.total_bytes / 0.9) - one.slot)
    assert found.offloading is not None
    assert found.total_bytes <= 0.8 * whole.total_bytes


def test_a_mixture_larger_than_its_memory_gives_the_same_bits(path: Path) -> None:
    whole = load(path, context=CONTEXT, backend="cpu")
    wanted, one = logits(whole), sizes(path)
    limit = whole.plan.total_bytes - 30 * one.slot
    told: list[MemoryPlan] = []
    offloaded = load(path, context=CONTEXT, backend="cpu", memory_bytes=limit, planned=told.append)
    assert told == [offloaded.plan]
    assert offloaded.plan.total_bytes <= limit
    offloading, streamer = offloaded.plan.offloading, offloaded.decoder.streamer
    assert offloading is not None
    assert isinstance(streamer, ExpertStreamer)
    assert offloaded.slow[-1].reason is SlowReason.OFFLOADED
    assert offloaded.slow[-1].part == f"experts of {LAYERS} layers"
    assert torch.equal(logits(offloaded), wanted)
    before = streamer.read_bytes
    offloaded.new_session().step(3)
    assert streamer.read_bytes - before <= one.token


def test_the_engine_answers_with_offloaded_experts(bench: Bench, path: Path) -> None:
    bench.send(1, Load(path, CONTEXT))
    assert isinstance(bench.until(ModelLoaded, Failed)[-1], ModelLoaded)
    wanted = answer_text(bench.generate(2, "hello", max_tokens=8))
    limit = planned(path).total_bytes - 30 * sizes(path).slot
    bench.send(3, Load(path, CONTEXT, memory_bytes=limit))
    offloaded = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(offloaded, ModelLoaded), offloaded
    assert offloaded.offloaded_layers == LAYERS
    assert f"of {LAYERS} layers the experts that are used" in offloading_words(offloaded)
    assert 0 < offloaded.offloaded_bytes < sizes(path).token
    assert answer_text(bench.generate(4, "hello", max_tokens=8)) == wanted
