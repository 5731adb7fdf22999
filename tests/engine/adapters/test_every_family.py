"""Adapters of every tensor they can change, in every family: as a file with the changes merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import architecture_files as files
import forward_pass
import tiny_lora
from chosen_backend import ops
from engine.adapters.stack import EMBEDDING, HEAD, Stack, load_adapter
from engine.errors import AdapterError, FaultKind
from engine.models import ARCHITECTURES
from sessions import open_decoder, session_over

MODELS = {
    name: skeleton.without_scales().without_ranking()
    for name, skeleton in files.recorded().items()
    if skeleton.architecture in ARCHITECTURES
}
# One of each kind of layer, the others are a sweep.
EACH_KIND = {
    "qwen3moe-moe": "experts",
    "llama4-moe": "experts, whose shares scale their input",
    "gemma4-moe": "gates and ups of experts in one tensor",
    "deepseek2-moe": "heads of latent attention",
    "mistral4-moe": "heads of latent attention",
    "lfm2-dense": "short convolutions",
    "qwen35moe-moe": "delta nets",
    "granitehybrid-dense": "state spaces",
    "phi3-dense": "queries, keys and values in one tensor",
}
assert EACH_KIND.keys() <= MODELS.keys()
TOKENS = 12
ALPHA, RANK = 6.0, 3


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    with ops.only("reference"):
        yield


Pair = tuple[files.Rows, files.Rows]


def pair(name: str, shape: Sequence[int]) -> Pair:
    """Random factors for a tensor [out, in] or [E, out, in]."""
    random = np.random.default_rng([len(name), *map(ord, name)])
    *experts, rows, columns = shape
    a = random.standard_normal((*experts, RANK, columns), np.float32) / np.float32(columns**0.5)
    return a, random.standard_normal((*experts, rows, RANK), np.float32) * np.float32(0.1)


def values(changed: dict[str, Pair]) -> Callable[[str, Sequence[int]], files.Rows]:
    """The weights of a file, with the deltas of these pairs merged."""

    def weights(name: str, shape: Sequence[int]) -> files.Rows:
        found = files.weights(name, shape)
        if name in changed:
            a, b = changed[name]
            found = found + np.float32(ALPHA / RANK) * (b @ a)
        return found

    return weights


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EACH_KIND else pytest.mark.sweep) for name in MODELS],
)
def test_an_adapter_of_every_tensor_equals_the_merged_file(name: str, tmp_path: Path) -> None:
    skeleton = MODELS[name]
    decoder = open_decoder(files.write(skeleton, tmp_path / "plain.gguf", values=values({})))
    changed = {
        tensor: pair(tensor, shape)
        for tensor, shape in decoder.base.shapes.items()
        # A tied embedding is merged into the head too, which an adapter of it does not change.
        if tensor in skeleton.tensors and (tensor != EMBEDDING or HEAD in skeleton.tensors)
    }
    file = tiny_lora.write_gguf(
        tmp_path / "adapter.gguf",
        tiny_lora.stored(changed),
        architecture=skeleton.architecture,
        metadata={"adapter.lora.alpha": ALPHA},
    )
    stack = Stack([(load_adapter(file, decoder.base), 1.0)])
    merged = open_decoder(files.write(skeleton, tmp_path / "merged.gguf", values=values(changed)))
    tokens = skeleton.tokens[:TOKENS]
    plain, found = (forward_pass.logits(decoder, tokens, one).numpy() for one in (Stack(), stack))
    expected = forward_pass.logits(merged, tokens).numpy()
    assert files.nmse(found, expected) < 1e-5
    assert files.nmse(plain, expected) > 1e-3


@pytest.mark.skipif("cpu" not in ops.BACKENDS, reason="no native kernels here")
@pytest.mark.parametrize("name", ["qwen3moe-moe", "deepseek2-moe"])
def test_native_kernels_leave_what_they_cannot_do_to_the_definition(
    name: str, tmp_path: Path
) -> None:
    """A recorded program has no deltas of experts and heads: dropping them would be silent."""
    skeleton = MODELS[name]
    tokens = skeleton.tokens[:TOKENS]
    with ops.only("cpu"):
        decoder = open_decoder(files.write(skeleton, tmp_path / "plain.gguf", values=values({})))
        shapes = {one: shape for one, shape in decoder.base.shapes.items() if len(shape) == 3}
        changed = {one: pair(one, shape) for one, shape in shapes.items()}
        stored = tiny_lora.stored(changed)
        keys = {"adapter.lora.alpha": ALPHA}
        file = tiny_lora.write_gguf(
            tmp_path / "a.gguf", stored, architecture=skeleton.architecture, metadata=keys
        )
        merged = files.write(skeleton, tmp_path / "merged.gguf", values=values(changed))
        found, expected = session_over(decoder), session_over(open_decoder(merged))
        found.set_stack(Stack([(load_adapter(file, decoder.base), 1.0)]))
        one, other = (files.run(session, tokens, (5, 1, 1)) for session in (found, expected))
    assert files.nmse(one, other) < 1e-5


def test_a_tensor_that_no_adapter_can_change_is_not_said_to_be_missing(tmp_path: Path) -> None:
    skeleton = MODELS["mamba2-dense"]
    decoder = open_decoder(files.write(skeleton, tmp_path / "m.gguf"))
    name = "blk.0.ssm_conv1d.weight"
    stored = tiny_lora.stored({name: pair(name, skeleton.tensors[name])})
    file = tiny_lora.write_gguf(tmp_path / "a.gguf", stored, architecture="mamba2")
    with pytest.raises(AdapterError, match=r"ssm_conv1d.* not one that adapters can change") as no:
        load_adapter(file, decoder.base)
    assert no.value.fault.kind is FaultKind.ADAPTER


def test_halves_of_another_number_of_experts_are_refused(tmp_path: Path) -> None:
    skeleton = MODELS["qwen3moe-moe"]
    decoder = open_decoder(files.write(skeleton, tmp_path / "m.gguf"))
    name = "blk.0.ffn_up_exps.weight"
    experts, *shape = skeleton.tensors[name]
    for other, words in (((experts + 1, *shape), "has the shape"), (shape, "three dimensions")):
        stored = tiny_lora.stored({name: pair(name, other)})
        file = tiny_lora.write_gguf(tmp_path / "a.gguf", stored, architecture="qwen3moe")
        with pytest.raises(AdapterError, match=words):
            load_adapter(file, decoder.base)
