"""LoRA stacks: effect on logits, keys, strengths, and unchanged base weights."""

from __future__ import annotations

import gc
import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import forward_pass
import merged
import tiny
import tiny_lora
from chosen_backend import ops
from engine import AdapterError, RequestError
from engine.adapters.stack import NO_ADAPTERS, Adapter, Stack, load_adapter
from engine.models.layers import Decoder
from sessions import open_decoder

ARCHITECTURES = ["llama", "qwen3", "gemma3"]
TOKENS = [5, 17, 200, 3, 99, 42, 7, 250, 1, 60, 61, 62, 63, 64, 12, 13]
ALL = (*tiny_lora.EVERY, "token_embd", "output")


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    """Use the reference backend; native kernels have separate gates."""
    with ops.only("reference"):
        yield


def model(folder: Path, architecture: str = "llama", format: str = "F32") -> tuple[Path, Decoder]:
    path = tiny.write(
        folder / f"{architecture}-{format}.gguf", architecture=architecture, format=format
    )
    return path, open_decoder(path)


def run(
    decoder: Decoder,
    stack: Stack = NO_ADAPTERS,
    tokens: Sequence[int] = TOKENS,
    pieces: Sequence[int] = (),
) -> torch.Tensor:
    """Logits [T, V] after each of `tokens`, prefilled in chunks of the given lengths."""
    return forward_pass.logits(decoder, tokens, stack, pieces)


def adapter(
    folder: Path, path: Path, decoder: Decoder, *, seed: int = 0, rank: int = 4, alpha: float = 8.0,
    targets: Sequence[str] = tiny_lora.EVERY,
) -> tuple[Adapter, tiny_lora.Pairs]:  # fmt: skip
    """A random adapter, read from its file, and the pairs it was written from."""
    file = folder / f"adapter-{seed}-{rank}-{alpha}.gguf"
    tiny_lora.write(file, path, rank=rank, alpha=alpha, seed=seed, targets=targets)
    pairs = tiny_lora.pairs_for(path, rank=rank, alpha=alpha, seed=seed, targets=targets)
    return load_adapter(file, decoder.base), pairs


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_strength_zero_and_none_agree_bit_for_bit(architecture: str, tmp_path: Path) -> None:
    path, decoder = model(tmp_path, architecture)
    one, _ = adapter(tmp_path, path, decoder, targets=ALL)
    none = run(decoder)
    for stack in (Stack(), Stack([(one, 0.0)]), Stack([(one, -0.0)]), Stack([(one, 2), (one, -2)])):
        assert stack.key == ""
        assert torch.equal(run(decoder, stack), none)
    assert not torch.equal(run(decoder, Stack([(one, 0.01)])), none)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("strength", [1.0, -2.0, 0.35])
def test_an_adapter_equals_merged_weights(
    architecture: str, strength: float, tmp_path: Path
) -> None:
    """On all kinds of matrices at once, including the embedding and an untied head."""
    path, decoder = model(tmp_path, architecture)
    one, pairs = adapter(tmp_path, path, decoder, rank=4, alpha=8.0, targets=ALL)
    by_hand = merged.merge(decoder, merged.change((pairs, strength * 8.0 / 4)))
    expected, found = run(by_hand), run(decoder, Stack([(one, strength)]))
    assert float((found - expected).abs().max()) <= 1e-4
    assert float((found - run(decoder)).abs().max()) >= 0.5  # the adapter has a large effect


def test_an_adapter_of_a_tied_head_does_not_change_the_embedding(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture="qwen3", tied=True)
    decoder = open_decoder(path)
    random = np.random.default_rng(1)
    a = random.standard_normal((3, 64), np.float32)
    b = random.standard_normal((decoder.head.weight.shape[0], 3), np.float32)
    pairs = {"output.weight": (a, b)}
    file = tiny_lora.write_gguf(
        tmp_path / "a.gguf", tiny_lora.stored(pairs), architecture="qwen3",
        metadata={"adapter.lora.alpha": 0.3},
    )  # fmt: skip
    expected = run(merged.merge(decoder, merged.change((pairs, 0.3 / 3))))
    found = run(decoder, Stack([(load_adapter(file, decoder.base), 1.0)]))
    assert float((found - expected).abs().max()) <= 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_stack_equals_the_sum_of_its_adapters(architecture: str, tmp_path: Path) -> None:
    """Three adapters of different ranks and alphas, on overlapping sets of matrices."""
    path, decoder = model(tmp_path, architecture)
    first, one = adapter(tmp_path, path, decoder, seed=1, rank=4, alpha=8.0)
    second, two = adapter(tmp_path, path, decoder, seed=2, rank=16, alpha=16.0, targets=("attn_q",))
    third, three = adapter(
        tmp_path, path, decoder, seed=3, rank=1, alpha=1.0, targets=("ffn_up", "token_embd")
    )
    stack = Stack([(first, 1.0), (second, -0.5), (third, 2.0)])
    total = merged.change((one, 1.0 * 2), (two, -0.5 * 1), (three, 2.0 * 1))
    expected = run(merged.merge(decoder, total))
    assert float((run(decoder, stack) - expected).abs().max()) <= 1e-4


def test_chunked_prefill_with_adapters_equals_one_prefill(tmp_path: Path) -> None:
    path, decoder = model(tmp_path, "gemma3")
    stack = Stack([(adapter(tmp_path, path, decoder, targets=ALL)[0], 1.0)])
    whole = run(decoder, stack)
    assert float((run(decoder, stack, pieces=[1] * 16) - whole).abs().max()) <= 1e-4
    assert float((run(decoder, stack, pieces=[1, 7, 8]) - whole).abs().max()) <= 1e-4


def test_order_and_splitting_change_no_bit_and_no_key(tmp_path: Path) -> None:
    """Reordering adapters in the panel must not invalidate the KV cache."""
    path, decoder = model(tmp_path)
    one, two, three = (
        adapter(tmp_path, path, decoder, seed=seed, rank=seed + 2)[0] for seed in range(3)
    )
    stack = Stack([(one, 1.0), (two, 0.5), (three, -1.5)])
    expected = run(decoder, stack)
    for entries in (
        [(three, -1.5), (one, 1.0), (two, 0.5)],
        [(two, 0.25), (three, -1.5), (two, 0.25), (one, 1.0)],
        [(one, 1.0), (two, 0.5), (three, -1.5), (one, 0.0)],
    ):
        other = Stack(entries)
        assert other.key == stack.key
        assert torch.equal(run(decoder, other), expected)


def test_keys_differ_for_different_effects(tmp_path: Path) -> None:
    path, decoder = model(tmp_path)
    one, two = (adapter(tmp_path, path, decoder, seed=seed)[0] for seed in range(2))
    stacks = [
        Stack(),
        Stack([(one, 1.0)]),
        Stack([(one, 1.0000001)]),
        Stack([(one, -1.0)]),
        Stack([(two, 1.0)]),
        Stack([(one, 1.0), (two, 1.0)]),
        Stack([(one, 1.0), (two, 0.5)]),
        Stack([(one, 0.5), (two, 1.0)]),
    ]
    keys = [stack.key for stack in stacks]
    assert len(set(keys)) == len(keys)
    answers = [run(decoder, stack) for stack in stacks]
    for index, answer in enumerate(answers):
        assert not any(torch.equal(answer, other) for other in answers[:index])


def test_a_key_is_the_same_for_another_copy_of_the_file(tmp_path: Path) -> None:
    """A snapshot then matches its stack after a restart, even if the file was moved."""
    path, decoder = model(tmp_path)
    file = tiny_lora.write(tmp_path / "one.gguf", path)
    copy = tmp_path / "elsewhere.gguf"
    copy.write_bytes(file.read_bytes())
    here, there = (load_adapter(place, decoder.base) for place in (file, copy))
    assert here.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert Stack([(here, 0.5)]).key == Stack([(there, 0.5)]).key
    together = Stack([(here, 0.5), (there, -0.5)])
    assert together.key == ""


def test_a_key_depends_on_the_scale_in_the_folders_configuration(tmp_path: Path) -> None:
    path, decoder = model(tmp_path)
    pairs = tiny_lora.pairs_for(path)
    folders = [
        tiny_lora.write_peft(tmp_path / f"{alpha}", pairs, alpha=alpha, heads=(4, 2))
        for alpha in (8.0, 16.0)
    ]
    weak, strong = (load_adapter(folder, decoder.base) for folder in folders)
    assert weak.sha256 == strong.sha256
    assert Stack([(weak, 1.0)]).key != Stack([(strong, 1.0)]).key


def test_an_alpha_of_zero_in_a_folder_changes_nothing(tmp_path: Path) -> None:
    path, decoder = model(tmp_path)
    folder = tiny_lora.write_peft(
        tmp_path / "none", tiny_lora.pairs_for(path), alpha=0.0, heads=(4, 2)
    )
    stack = Stack([(load_adapter(folder, decoder.base), 1.0)])
    assert stack.key == ""
    assert torch.equal(run(decoder, stack), run(decoder))


@pytest.mark.parametrize("strength", [2.001, -3.0, math.inf, -math.inf, math.nan])
def test_a_strength_outside_the_range_is_refused(strength: float, tmp_path: Path) -> None:
    path, decoder = model(tmp_path)
    one, _ = adapter(tmp_path, path, decoder)
    with pytest.raises(RequestError, match="strength") as refused:
        Stack([(one, strength)])
    assert "-2 to 2" in refused.value.remedy


@pytest.mark.parametrize("format", ["F16", "Q4_0", "Q8_0", "Q4_K"])
def test_base_weights_are_not_modified_in_any_format(format: str, tmp_path: Path) -> None:
    path, decoder = model(tmp_path, format=format)

    def digest() -> str:
        weights = [product.weight for block in decoder.blocks for product in block.projections]
        data = [weight.data.numpy().tobytes() for weight in (*weights, decoder.embedding)]
        return hashlib.sha256(b"".join(data)).hexdigest()

    before, plain = digest(), run(decoder)
    one, pairs = adapter(tmp_path, path, decoder)
    changed = run(decoder, Stack([(one, 1.5)]))
    by_hand = merged.merge(decoder, merged.change((pairs, 1.5 * 2)))
    assert float((changed - run(by_hand)).abs().max()) <= 1e-3
    assert digest() == before
    assert torch.equal(run(decoder), plain)


def test_fifty_loads_and_toggles_leak_no_tensors(tmp_path: Path) -> None:
    path, decoder = model(tmp_path)
    files = [tiny_lora.write(tmp_path / f"{seed}.gguf", path, seed=seed) for seed in range(2)]

    def toggle(count: int) -> None:
        for index in range(count):
            loaded = [load_adapter(file, decoder.base) for file in files]
            run(decoder, Stack([(each, 0.1 * (index % 20)) for each in loaded]))

    def tensors() -> int:
        gc.collect()
        return sum(type(found) is torch.Tensor for found in gc.get_objects())

    toggle(1)
    before = tensors()
    toggle(50)
    assert tensors() == before


def test_a_single_adapter_is_not_copied_and_the_stack_reports_its_size(tmp_path: Path) -> None:
    path, decoder = model(tmp_path)
    one, two = (adapter(tmp_path, path, decoder, seed=seed)[0] for seed in range(2))
    assert Stack().size_bytes == 0
    assert Stack([(one, 1.0)]).size_bytes == one.size_bytes
    assert Stack([(one, 1.0), (one, 0.5)]).size_bytes == one.size_bytes
    assert Stack([(one, 1.0), (two, 0.5)]).size_bytes == 2 * (one.size_bytes + two.size_bytes)
    assert one.size_bytes == 4 * sum(a.size + b.size for a, b in tiny_lora.pairs_for(path).values())


def test_loading_can_be_cancelled(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    path, decoder = model(tmp_path)
    file = tiny_lora.write(tmp_path / "a.gguf", path)
    folder = tiny_lora.write_peft(tmp_path / "peft", tiny_lora.pairs_for(path))
    for place in (file, folder):
        with pytest.raises(Stop):
            load_adapter(place, decoder.base, stop)


@pytest.mark.sweep
@pytest.mark.real
def test_strength_one_equals_merged_weights_of_the_starter_model(
    starter_model: Path, tmp_path: Path
) -> None:
    decoder = open_decoder(starter_model)
    one, pairs = adapter(tmp_path, starter_model, decoder, rank=16, alpha=32.0)
    by_hand = merged.merge(decoder, merged.change((pairs, 2.0)))
    tokens = [504, 3575, 282, 4649, 314, 7042, 30, 198]
    expected, found = run(by_hand, tokens=tokens), run(decoder, Stack([(one, 1.0)]), tokens=tokens)
    assert float((found - expected).abs().max()) <= 1e-3
    assert torch.equal(
        run(decoder, Stack([(one, 0.0)]), tokens=tokens), run(decoder, tokens=tokens)
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_adapter_of_another_architecture_is_refused(architecture: str, tmp_path: Path) -> None:
    path, decoder = model(tmp_path, architecture)
    other = "llama" if architecture != "llama" else "qwen3"
    file = tiny_lora.write_gguf(
        tmp_path / "a.gguf", tiny_lora.stored(tiny_lora.pairs_for(path)), architecture=other
    )
    with pytest.raises(AdapterError, match=f"'{other}'.*'{architecture}'") as refused:
        load_adapter(file, decoder.base)
    assert refused.value.remedy
