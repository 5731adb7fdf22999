"""Embeddings: as transformers computes them, alone as in a batch, beside answers, and refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import oracle
import tiny
from answers import prompt
from engine import Embed, Embedded, Failed, Generate, Pooling, UnsupportedModel
from engine.errors import ModelFileError, OutOfMemory, RequestError
from engine.gguf.reader import GGUFFile
from engine.inference import embedding
from engine.inference.embedding import Embedder
from engine.inference.runner import Runner
from engine.loading.loader import LoadedModel, load
from engine.loading.preflight import identify
from engine.messages import CacheType, Cancel, Finished, Text
from engine.models.weights import Weights
from engine.state.prefix_tree import PrefixTree
from engine_bench import GREEDY, Bench, turns_of

CONTEXT = 1_500
# The hidden states follow from recorded logits where the head has no bias and no soft cap. Two cases
# were recorded with another context than the file's.
CASES = [
    name
    for name, case in oracle.CASES.items()
    if "final_logit_softcapping" not in case.more
    and name not in ("phi2", "llama-dynamic", "phi3-short")
]
HEADS = ("lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=CONTEXT)


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path)


def embedder(model: LoadedModel, budget: int = 1 << 62) -> Embedder:
    runner = model.new_runner()
    pool = runner.new_pool(budget)
    return Embedder(runner, pool, PrefixTree(pool), model.plan.context)


def embed(
    made: Embedder, texts: Sequence[Sequence[int]], pooling: Pooling = Pooling.LAST
) -> list[list[float]]:
    work = made.embed(texts, pooling)
    while True:
        try:
            next(work)
        except StopIteration as done:
            assert made._pool.used_bytes == 0
            return done.value


@pytest.mark.parametrize("pooling", list(Pooling))
@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_transformers(name: str, pooling: Pooling, tmp_path: Path) -> None:
    """Recorded logits and the recorded head give the hidden states that transformers computed."""
    state = oracle.recorded(name)
    tokens, logits = state.pop("tokens"), state.pop("logits")
    path = oracle.write_gguf(oracle.CASES[name], dict(state), tmp_path / "model.gguf")
    head = next(state[key] for key in HEADS if key in state).astype(np.float64)
    hidden, *_ = np.linalg.lstsq(head, logits.astype(np.float64).T, rcond=None)
    rows = {
        Pooling.MEAN: hidden.mean(1),
        Pooling.CLS: hidden[:, 0],
        Pooling.LAST: hidden[:, -1],
    }
    wanted = rows[pooling]
    with GGUFFile.open(path) as file:
        build, config = identify(file)
        runner = Runner(build(file, Weights(file), config.context), CacheType.F32)
    pool = runner.new_pool()
    (vector,) = embed(Embedder(runner, pool, PrefixTree(pool), 512), [tokens.tolist()], pooling)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)
    assert np.dot(vector, wanted) / np.linalg.norm(wanted) >= 0.9999


@pytest.mark.parametrize("pooling", list(Pooling))
def test_a_batch_gives_the_bits_of_single_texts(model: LoadedModel, pooling: Pooling) -> None:
    texts = [prompt(length, at) for at, length in enumerate((1, 7, 300, 2, 600, 30, 256, 1, 1, 5))]
    texts += [prompt(3, at) for at in range(20)]
    wanted = [embed(embedder(model), [text], pooling)[0] for text in texts]
    assert embed(embedder(model), texts, pooling) == wanted
    assert embed(embedder(model), texts[::-1], pooling) == wanted[::-1]


@pytest.mark.parametrize("pooling", list(Pooling))
def test_the_cut_into_passes_changes_no_bit(model: LoadedModel, pooling: Pooling) -> None:
    """Chunks shrink and grow while answers run beside, also between two passes over some texts."""
    texts = [prompt(length, at) for at, length in enumerate((1, 7, 300, 2, 600, 30))]
    wanted = [embed(embedder(model), [text], pooling)[0] for text in texts]
    for seed in range(4):
        made = embedder(model)
        draw = random.Random(seed)
        made._chunk = partial(draw.choice, (1, 16, 37, 512))
        assert embed(made, texts, pooling) == wanted


def test_texts_without_tokens_or_too_many_are_refused(model: LoadedModel) -> None:
    with pytest.raises(RequestError, match="Text 2 is empty"):
        embed(embedder(model), [[5], []])
    with pytest.raises(RequestError, match="Text 1 has 1,501 tokens"):
        embed(embedder(model), [[5] * (CONTEXT + 1)])
    assert embed(embedder(model), []) == []


def test_without_memory_nothing_is_kept(model: LoadedModel) -> None:
    page = model.new_runner().layout.bytes_per_page
    made = embedder(model, 2 * page)
    assert len(embed(made, [prompt(300)])) == 1
    with pytest.raises(OutOfMemory, match="no memory for the context"):
        embed(made, [prompt(900)])
    assert made._pool.used_bytes == 0


def test_vectors_that_are_not_numbers_are_refused(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (float("nan"), 0.0):
        monkeypatch.setattr(
            embedding, "_normed", lambda *rows, value=value: torch.full_like(rows[2], value)
        )
        with pytest.raises(ModelFileError, match="no direction"):
            embed(embedder(model), [prompt(4)])


# --- through the engine -------------------------------------------------------------------------


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    made = Bench()
    made.load(path)
    yield made
    made.engine.stop()


def test_the_engine_embeds_beside_an_answer(bench: Bench) -> None:
    texts = tuple("text " * (1 + at) for at in range(40))
    alone = bench.expect(Embed(2, texts), Embedded)
    assert (len(alone.vectors), alone.pooling) == (40, Pooling.LAST)
    bench.engine.send(Generate(3, turns_of("hello"), sampling=GREEDY, max_tokens=200))
    bench.until(Text)
    bench.engine.send(Embed(4, texts))
    seen = [*bench.until(Embedded, Failed), *bench.until(Finished, Failed)]
    beside = next(event for event in seen if isinstance(event, Embedded))
    assert beside.vectors == alone.vectors
    assert beside.tokens == alone.tokens > 40


def test_bad_texts_are_refused_and_the_engine_goes_on(bench: Bench) -> None:
    bench.engine.send(Embed(2, ("good", "")))
    (failed,) = bench.until(Failed, Embedded)
    assert isinstance(failed, Failed)
    assert failed.message == "Text 2 is empty."
    bench.engine.send(Embed(3, ("long " * 2_000,)))
    (failed,) = bench.until(Failed, Embedded)
    assert isinstance(failed, Failed)
    assert "tokens, and the model can take in 1,500" in failed.message
    assert bench.expect(Embed(4, ()), Embedded).vectors == ()


def test_cancelled_embeddings_end_without_vectors(bench: Bench) -> None:
    bench.engine.send(Embed(2, tuple(f"text {at} " * 100 for at in range(400))))
    bench.engine.send(Cancel(2))
    (event,) = bench.until(Embedded, Failed)
    assert event == Embedded(2, ())
    assert len(bench.expect(Embed(3, ("again",)), Embedded).vectors) == 1


@pytest.mark.parametrize(("number", "pooling"), [(1, "mean"), (2, "cls"), (3, "last"), (0, "last")])
def test_the_files_key_names_the_pooling(
    path: Path, tmp_path: Path, number: int, pooling: str
) -> None:
    changed = tiny.rewrite(path, tmp_path / "pooled.gguf", {"llama.pooling_type": number})
    bench = Bench()
    bench.load(changed)
    found = bench.expect(Embed(2, ("some words",)), Embedded)
    given = bench.expect(Embed(3, ("some words",), Pooling(pooling)), Embedded)
    bench.engine.stop()
    assert found.pooling is Pooling(pooling)
    assert found.vectors == given.vectors


def test_attention_in_both_directions_is_refused(path: Path, tmp_path: Path) -> None:
    changed = tiny.rewrite(path, tmp_path / "both.gguf", {"llama.attention.causal": False})
    with pytest.raises(UnsupportedModel, match="attention in both directions"):
        load(changed)
