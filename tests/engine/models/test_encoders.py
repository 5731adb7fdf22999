"""Encoders: bert and nomic-bert against a plain definition, facts about them, damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGUFReader

import plain_states
import tiny_encoders
from engine.errors import EngineError, FaultKind, ModelFileError, RequestError, UnsupportedModel
from engine.loading.inspect import inspect_model
from engine.loading.loader import LoadedModel, load
from engine.messages import Pooling, SlowPart, SlowReason
from kernels import backends
from sessions import finish

pytestmark = pytest.mark.sweep

TEXTS = ["hello", "The quick, brown fox jumped!", "how are you today? " * 6, ""]
ARCHITECTURES = ["bert", "nomic-bert"]


def vectors(model: LoadedModel, texts: list[str], pooling: Pooling) -> list[tuple[float, ...]]:
    made = model.new_embedder()
    return finish(made.vectors(made.tokens(texts), pooling), made.scheduler)


@pytest.mark.parametrize("types", [0, 1, 2])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_vector_is_as_defined(architecture: str, types: int, tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "model.gguf", architecture, types=types)
    model, file = load(path, embeddings=True), plain_states.File(path)
    for pooling in set(Pooling) - {Pooling.NONE}:
        for text, found in zip(TEXTS, vectors(model, TEXTS, pooling), strict=True):
            ids = model.tokenizer.encode(text)
            assert (ids[0], ids[-1]) == (2, 3)
            states = plain_states.bert(file, ids)
            expected = plain_states.vector(states, pooling.value)
            assert float(torch.tensor(found) @ expected) >= 0.99999


@pytest.mark.parametrize("dense", [0, 1, 2])
def test_a_vector_of_embedding_gemma_is_as_defined(dense: int, tmp_path: Path) -> None:
    path = tiny_encoders.gemma(tmp_path / "model.gguf", dense=dense)
    model, file = load(path, embeddings=True), plain_states.File(path)
    assert model.pooling is Pooling.MEAN
    for pooling in set(Pooling) - {Pooling.NONE}:
        for text, found in zip(TEXTS, vectors(model, TEXTS, pooling), strict=True):
            ids = model.tokenizer.encode(text)
            assert (ids[0], ids[-1]) == (1, 2)
            states = plain_states.gemma_embedding(file, ids)
            expected = plain_states.vector(states, pooling.value)
            assert len(found) == len(expected) == (96 if dense == 1 else 64)
            assert float(torch.tensor(found) @ expected) >= 0.99999


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_text_has_the_same_bits_alone_and_in_a_batch(architecture: str, tmp_path: Path) -> None:
    model = load(tiny_encoders.write(tmp_path / "m.gguf", architecture), embeddings=True)
    batch = vectors(model, [*TEXTS, *TEXTS[::-1]], Pooling.MEAN)
    assert batch == [vectors(model, [text], Pooling.MEAN)[0] for text in [*TEXTS, *TEXTS[::-1]]]


def test_short_texts_are_read_together_and_have_the_bits_that_they_have_alone(
    tmp_path: Path,
) -> None:
    model = load(tiny_encoders.gemma(tmp_path / "m.gguf"), embeddings=True)
    texts = ["a", "hello there", "b c d", "the quick brown fox jumps", "e"] * 5
    made = model.new_embedder()
    ids = made.tokens(texts)
    finish(made.vectors(ids, Pooling.MEAN), made.scheduler)
    passes = made.scheduler.metrics.passes
    assert passes <= -(-sum(map(len, ids)) // (model.plan.context - max(map(len, ids)))) + 1
    batch = vectors(model, texts, Pooling.MEAN)
    assert batch == [vectors(model, [text], Pooling.MEAN)[0] for text in texts]
    for count in (1, 2, 3, 7):  # whatever the torch threads
        assert vectors(model, texts[:count], Pooling.MEAN) == batch[:count]


def test_the_pooling_of_an_encoder_without_one_is_the_mean(tmp_path: Path) -> None:
    model = load(tiny_encoders.write(tmp_path / "m.gguf", pooling=None), embeddings=True)
    assert model.pooling is Pooling.MEAN
    assert load(tiny_encoders.write(tmp_path / "c.gguf", pooling=2), embeddings=True).pooling is (
        Pooling.CLS
    )


def test_native_kernels_run_an_encoder_as_one_program(tmp_path: Path) -> None:
    model = load(tiny_encoders.write(tmp_path / "m.gguf"), embeddings=True)
    part = SlowPart(SlowReason.NO_KERNEL, "full_attention")
    is_native = backends.choose().name == "cpu"
    assert (model.kernels["full_attention"] != "reference") == is_native
    assert (part in model.slow) == (backends.choose().records_programs() and not is_native)
    assert model.new_runner().is_recorded == is_native


def test_nothing_is_cached_and_the_plan_says_so(tmp_path: Path) -> None:
    model = load(tiny_encoders.write(tmp_path / "m.gguf"), embeddings=True)
    assert model.plan.cache_bytes == 0
    assert model.new_runner().layout.groups == 0


@pytest.mark.parametrize("ranks", [False, True])
def test_a_file_that_cannot_chat_says_so(ranks: bool, tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", ranks=ranks)
    with pytest.raises(UnsupportedModel, match="it cannot chat") as caught:
        load(path)
    assert caught.value.fault.kind is FaultKind.OTHER_TYPE
    facts = inspect_model(path)
    assert facts.problem == str(caught.value)


def test_a_text_longer_than_the_positions_is_refused(tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", context=8)
    model = load(path, embeddings=True)
    with pytest.raises(RequestError, match="11 tokens, and the context of this model is 8"):
        model.new_embedder().tokens(["a b c d e f g h i"])
    with pytest.raises(RequestError, match="learned positions"):
        load(path, embeddings=True, context=9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bert.attention.causal", True),
        ("bert.attention.causal", 7),
        ("bert.attention.layer_norm_epsilon", None),
        ("bert.attention.head_count", 5),
        ("bert.attention.head_count", 0),
        ("bert.context_length", 63),
        ("bert.pooling_type", 9),
        ("bert.block_count", 4),
        ("tokenizer.ggml.seperator_token_id", -1),
        ("tokenizer.ggml.seperator_token_id", "x"),
        ("tokenizer.ggml.cls_token_id", 1e9),
        ("tokenizer.ggml.unknown_token_id", "x"),
        ("tokenizer.ggml.tokens", ["[CLS]"]),
        ("tokenizer.ggml.model", "rwkv"),
        ("tokenizer.ggml.normalizer.lowercase", "yes"),
        ("tokenizer.chat_template.rerank", "{query}"),
    ],
)
def test_a_damaged_key_is_refused(key: str, value: object, tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", metadata={key: value})
    with pytest.raises(ModelFileError):
        load(path, embeddings=True)


@pytest.mark.parametrize(
    "tensor",
    ["token_embd.weight", "position_embd.weight", "blk.1.attn_q.weight",
     "blk.2.layer_output_norm.weight", "token_embd_norm.weight"],
)  # fmt: skip
def test_a_missing_tensor_is_named(tensor: str, tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", without=tensor)
    with pytest.raises(ModelFileError, match=tensor.replace(".", r"\.")):
        load(path, embeddings=True)


def test_a_split_model_computes_the_same(tmp_path: Path) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf")
    whole = load(path, backend="reference", embeddings=True)
    split = load(path, parts=[("reference", 1), ("torch:cpu", 0)], embeddings=True)
    for one, other in zip(
        vectors(whole, TEXTS, Pooling.CLS), vectors(split, TEXTS, Pooling.CLS), strict=True
    ):
        assert torch.tensor(one) @ torch.tensor(other) == pytest.approx(1, abs=1e-5)


FAULTS: dict[str, object] = {
    "missing": None, "text": "text", "list": [1, 2], "zero": 0, "negative": -1, "huge": 1 << 31,
    "half": 0.5, "not a number": float("nan"), "true": True,
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_with_any_key_damaged_it_works_or_fails_with_one_sentence(
    architecture: str, fault: str, tmp_path: Path
) -> None:
    path = tiny_encoders.write(tmp_path / "m.gguf", architecture, ranks=True)
    keys = [key for key in GGUFReader(path).fields if "." in key and not key.startswith("GGUF.")]
    assert len(keys) >= 15
    errors: dict[str, EngineError] = {}
    for key in keys:
        path = tiny_encoders.write(
            tmp_path / "m.gguf", architecture, ranks=True, metadata={key: FAULTS[fault]}
        )
        try:
            model = load(path, embeddings=True)
            vectors(model, ["the old tree", "a"], Pooling.MEAN)
            made = model.new_ranker()
            work = made.scores(made.pairs("a", ["hello"], model.rank_template))
            finish(work, made.scheduler)
        except EngineError as error:
            errors[key] = error
    assert errors or fault == "true"  # some keys are not read, and some are true
    assert all(str(error).endswith(".") and error.remedy for error in errors.values()), errors
