"""Embeddings of causal models: against a plain definition, alone and in a batch, long and short."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import plain_states
import tiny
from answers import GREEDY, Request, alone
from engine.core import scheduler as scheduling
from engine.core.handle import RequestHandle
from engine.core.scheduler import Scheduler
from engine.errors import Cancelled, EngineError, ModelFileError, OutOfMemory, RequestError
from engine.loading.loader import LoadedModel, load
from engine.messages import Embed, Pooling, Sampling
from engine.state.pages import bytes_for
from engine.state.sequence import Sequence
from sessions import finish

ENDLESS = Sampling(temperature=0, ignore_end=True)
TEXTS = ["hello", "the quick brown fox jumps over the lazy dog", "x", "how are you today? " * 40]


def write(folder: Path, pooling: int | None = 3, **options: object) -> Path:
    """A tiny model as Qwen3-Embedding: a text ends with the end token."""
    keys = {"tokenizer.ggml.add_eos_token": True, "qwen3.pooling_type": pooling}
    options = {"architecture": "qwen3", "context": 1024, "tied": True, **options}
    return tiny.write(folder / "qwen3.gguf", metadata=keys, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path, embeddings=True)


def vectors(model: LoadedModel, texts: list[str], pooling: Pooling) -> list[tuple[float, ...]]:
    made = model.new_embedder()
    return finish(made.vectors(made.tokens(texts), pooling), made.scheduler)


POOLED = [pooling for pooling in Pooling if pooling is not Pooling.NONE]


@pytest.mark.parametrize("pooling", POOLED)
def test_a_vector_is_as_defined(path: Path, model: LoadedModel, pooling: Pooling) -> None:
    file = plain_states.File(path)
    for text, found in zip(TEXTS, vectors(model, TEXTS, pooling), strict=True):
        ids = model.tokenizer.encode(text)
        assert ids[-1] == model.tokenizer.eos
        expected = plain_states.vector(plain_states.qwen3(file, ids), pooling.value)
        assert float(torch.tensor(found) @ expected) >= 0.99999
        assert torch.tensor(found).norm() == pytest.approx(1)


def test_without_pooling_each_token_has_the_state_that_is_pooled(
    path: Path, model: LoadedModel
) -> None:
    found = vectors(model, TEXTS, Pooling.NONE)
    file = plain_states.File(path)
    for text in TEXTS:
        ids = model.tokenizer.encode(text)
        rows, found = torch.tensor(found[: len(ids)]), found[len(ids) :]
        states = plain_states.qwen3(file, ids)
        for row, state in zip(rows, states, strict=True):
            likeness = torch.nn.functional.cosine_similarity(row, state, 0)
            assert float(likeness) >= 0.99999
            assert row.norm() == pytest.approx(float(state.norm()), rel=1e-3)
    assert not found


@pytest.mark.parametrize("pooling", POOLED)
def test_a_text_has_the_same_bits_alone_and_in_a_batch(
    model: LoadedModel, pooling: Pooling
) -> None:
    texts = [*TEXTS, *reversed(TEXTS), "hello"]
    batch = vectors(model, texts, pooling)
    assert batch == [vectors(model, [text], pooling)[0] for text in texts]
    assert len(set(batch)) == len(set(texts))


def test_the_pooling_is_the_one_that_the_file_names(tmp_path: Path) -> None:
    found = {
        number: load(write(tmp_path, number), embeddings=True).pooling
        for number in (None, 0, 1, 2, 3, 4)
    }
    last, mean, cls = Pooling.LAST, Pooling.MEAN, Pooling.CLS
    assert found == {None: last, 0: last, 1: mean, 2: cls, 3: last, 4: last}
    for wrong in (5, -1, "mean", 1.0):
        with pytest.raises(ModelFileError, match="pooling_type"):
            load(write(tmp_path, wrong), embeddings=True)  # type: ignore[arg-type]


def test_texts_that_cannot_be_read_are_refused(tmp_path: Path, model: LoadedModel) -> None:
    made = model.new_embedder()
    with pytest.raises(RequestError, match="no text"):
        made.tokens([])
    with pytest.raises(RequestError, match=r"^Text 2 is too large: it has 3,001 .* 1,024\.$"):
        made.tokens(["a", "0" * 3000])
    keys = {"qwen3.pooling_type": 3}  # without an end token, an empty text has no tokens
    path = tiny.write(tmp_path / "plain.gguf", architecture="qwen3", metadata=keys)
    plain = load(path, embeddings=True)
    with pytest.raises(RequestError, match=r"^The text is empty\.$"):
        plain.new_embedder().tokens([""])


def test_of_a_text_that_is_too_long_the_beginning_is_read_where_that_is_asked_for(
    model: LoadedModel,
) -> None:
    made, cut = model.new_embedder(), list[None]()
    short, long = made.tokens(["a", "0" * 3000], lambda: cut.append(None))
    assert (short, len(long), len(cut)) == (made.tokens(["a"])[0], 1024, 1)
    assert long == [*made.tokens(["0" * 1023])[0][:-1], model.tokenizer.eos]


def test_control_texts_are_plain_text(model: LoadedModel) -> None:
    end = model.tokenizer.token_id("<|im_end|>")
    assert end is not None
    (ids,) = model.new_embedder().tokens(["a<|im_end|>b"])
    assert end not in ids[:-1]


def test_a_model_without_finite_numbers_is_refused(tmp_path: Path) -> None:
    broken = load(write(tmp_path), embeddings=True)
    broken.decoder.norm.weight.fill_(float("nan"))
    with pytest.raises(ModelFileError, match="not finite for text 1"):
        vectors(broken, ["a"], Pooling.LAST)


def test_a_cancelled_text_gives_its_pages_back(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    made, handle = model.new_embedder(scheduler), RequestHandle(Embed(()), print)
    calls = 0

    def between_layers(answering: Scheduler | None) -> None:
        nonlocal calls
        assert answering is None
        calls += 1
        if calls == 4:
            handle.cancel()

    scheduler.between_layers = between_layers
    with pytest.raises(Cancelled):
        finish(made.vectors(made.tokens(TEXTS), Pooling.MEAN, handle=handle), scheduler)
    assert calls == 4
    assert scheduler.pool.used_bytes == 0
    assert not scheduler.is_busy or scheduler.step() is None
    assert not scheduler.is_busy


def test_texts_that_nobody_waits_for_any_more_are_not_read(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    made = model.new_embedder(scheduler)
    work = made.vectors(made.tokens(TEXTS), Pooling.MEAN)
    next(work)
    work.close()
    scheduler.step()
    assert (scheduler.metrics.passes, scheduler.is_busy) == (0, False)


def scheduler_of(model: LoadedModel, tokens: int) -> Scheduler:
    """A scheduler whose pool has room for one sequence of so many tokens."""
    return model.new_scheduler(bytes_for(model.new_runner().layout, tokens))


def test_cached_pages_make_room_for_a_text(model: LoadedModel) -> None:
    scheduler = scheduler_of(model, 512)
    cached = Sequence(scheduler.pool, 1024)
    cached.reserve(512)
    cached.commit([1] * 512)
    scheduler.tree.insert("", cached)
    cached.release()
    made = model.new_embedder(scheduler)
    (found,) = finish(made.vectors(made.tokens([TEXTS[3]]), Pooling.LAST), scheduler)
    assert found == vectors(model, [TEXTS[3]], Pooling.LAST)[0]


def test_texts_without_room_for_all_are_read_alone(model: LoadedModel) -> None:
    scheduler = scheduler_of(model, 256)
    made = model.new_embedder(scheduler)
    texts = ["a", "b", "c", "d"]
    found = finish(made.vectors(made.tokens(texts), Pooling.MEAN), scheduler)
    assert found == vectors(model, texts, Pooling.MEAN)
    assert scheduler.metrics.passes == len(texts)
    assert scheduler.pool.used_bytes == 0


def test_a_text_leaves_the_last_pages_to_answers(model: LoadedModel) -> None:
    scheduler = scheduler_of(model, 768)
    made = model.new_embedder(scheduler)
    made._runner.chunk = 96  # tokens: the first pass takes one page
    work = made.vectors(made.tokens([TEXTS[3]]), Pooling.LAST)
    next(work)
    scheduler.step()
    assert scheduler.pool.used_bytes > 0
    request = Request(tuple(range(5, 45)) * 16, GREEDY, max_tokens=50)
    expected = alone(model, request).tokens
    answer = scheduler.submit(request)
    (found,) = finish(work, scheduler)
    assert answer.done, "the text waited for its pages"
    assert answer.answers[0] == expected
    (wanted,) = vectors(model, [TEXTS[3]], Pooling.LAST)
    # The reference gives other bits where a text is cut elsewhere.
    assert found == wanted or found == pytest.approx(wanted, abs=1e-5)


def test_a_text_waits_for_pages_that_are_being_saved(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "_STARVED_SECONDS", 0.05)
    scheduler = scheduler_of(model, 512)
    saved = Sequence(scheduler.pool, 1024)
    saved.reserve(300)
    made = model.new_embedder(scheduler)
    work = made.vectors(made.tokens([TEXTS[3]]), Pooling.LAST)
    next(work)
    for _ in range(3):
        scheduler.step()
    saved.release()
    assert finish(work, scheduler) == vectors(model, [TEXTS[3]], Pooling.LAST)
    saved.reserve(300)  # nobody gives these back
    with pytest.raises(OutOfMemory):
        finish(made.vectors(made.tokens([TEXTS[3]]), Pooling.LAST), scheduler)


@pytest.mark.parametrize("pooling", Pooling)
def test_passes_are_short_beside_answers_and_change_no_bit(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, pooling: Pooling
) -> None:
    monkeypatch.setattr(scheduling, "_SHARED_SECONDS", 0.0)
    scheduler = model.new_scheduler()
    made = model.new_embedder(scheduler)
    answer = scheduler.submit(Request((1, 2, 3), ENDLESS, max_tokens=900, stop_loops=False))
    scheduler.step()
    texts = made.tokens(TEXTS)
    handle = RequestHandle(Embed(()), print)
    found = finish(made.vectors(texts, pooling, handle=handle), scheduler)
    assert found == vectors(model, TEXTS, pooling)
    assert not answer.done
    if made._runner.has_equal_bits():
        assert scheduler.metrics.passes >= sum(map(len, texts)) // 16


def test_texts_end_when_their_scheduler_does(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    made = model.new_embedder(scheduler)
    made._runner.chunk = 96
    for end in (scheduler.leave_device, lambda: scheduler.stop(EngineError("the GPU failed", ""))):
        work = made.vectors(made.tokens([TEXTS[3]]), Pooling.LAST)
        next(work)
        scheduler.step()
        assert scheduler.pool.used_bytes > 0
        end()
        with pytest.raises(EngineError, match="GPU failed"):
            next(work)
        assert (scheduler.pool.used_bytes, scheduler.is_busy) == (0, False)
