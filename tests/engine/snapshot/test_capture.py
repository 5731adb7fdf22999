"""Snapshots of sessions: bit-exact restore in any process, and atomic writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors
import safetensors.numpy
import torch

import crash_snapshot
import tiny
import tiny_lora
from engine import CacheType, Finished, Sampling
from engine.inference.generate import Answer
from engine.loading.loader import LoadedModel, load
from engine.lora.stack import Stack, load_adapter
from engine.snapshot.capture import restore, session_bytes
from saved_sessions import GREEDY, PROMPT, SEEDED, SHA, answer, save


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=512)


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path, cache=CacheType.F32)


@pytest.fixture
def saved(model: LoadedModel, tmp_path: Path) -> Path:
    """A small snapshot: five tokens, an answer of three, and a random state."""
    session = model.new_session()
    answer(model, session, [5, 6, 7, 8, 9], 3, SEEDED)
    return save(session, tmp_path / "small.safetensors", conversation="one")


# --- bit-exact restore --------------------------------------------------------------------------


@pytest.mark.parametrize("type", list(CacheType))
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("cut", [1, 20, 127])
def test_restored_answer_continues_as_if_uninterrupted(
    path: Path,
    type: CacheType,
    sampling: Sampling,
    cut: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load(path, cache=type)
    monkeypatch.setattr(model.tokenizer, "end_tokens", frozenset())  # sampling may draw one
    whole = answer(model, model.new_session(), PROMPT, 128, sampling)
    assert len(whole) == 128
    session = model.new_session()
    begun = answer(model, session, PROMPT, cut, sampling)
    file = save(session, tmp_path / "file")
    back = model.new_session()
    restore(file, back, SHA)
    assert back.all_tokens == session.all_tokens == PROMPT + begun
    assert begun + answer(model, back, back.all_tokens, 128 - cut, sampling) == whole
    assert begun + answer(model, session, session.all_tokens, 128 - cut, sampling) == whole


@pytest.mark.parametrize("type", list(CacheType))
def test_session_saved_after_prefill_restores_the_same_bits(
    path: Path, type: CacheType, tmp_path: Path
) -> None:
    model = load(path, cache=type)
    session = model.new_session()
    (*_, hidden) = session.prefill(PROMPT)
    logits = session.logits_after(hidden)
    back = model.new_session()
    restore(save(session, tmp_path / "file"), back, SHA)
    assert back.last_logits is not None
    assert torch.equal(back.last_logits, logits)
    for one, other in zip(session.cache.tensors(55), back.cache.tensors(55), strict=True):
        assert torch.equal(one, other)
    made = Answer(back, model.tokenizer, PROMPT, GREEDY, max_tokens=9)
    finished = list(made.events())[-1]
    assert isinstance(finished, Finished)
    assert finished.reused_tokens == len(PROMPT)
    assert made.tokens == answer(model, session, PROMPT, 9, GREEDY)


def test_restored_partial_prefill_is_completed(
    path: Path, model: LoadedModel, tmp_path: Path
) -> None:
    prompt = [3 + at * 7 % 250 for at in range(480)]
    whole = model.new_session()
    whole._chunk = 64  # several chunks, so that the prefill can be cancelled between two
    expected = answer(model, whole, prompt, 20, SEEDED)
    session = model.new_session()
    session._chunk = 64
    calls = iter(range(1000))
    cut = Answer(session, model.tokenizer, prompt, SEEDED, cancelled=lambda: next(calls) > 10)
    assert list(cut.events())
    assert 64 <= len(session.tokens) < 480
    assert session.all_tokens == session.tokens
    back = model.new_session()
    back._chunk = 64
    restore(save(session, tmp_path / "file"), back, SHA)
    assert back.last_logits is None
    assert back.sampler_state is None
    assert answer(model, back, prompt, 20, SEEDED) == expected


def test_a_restored_session_can_be_trimmed_and_used_like_any_other(
    model: LoadedModel, saved: Path
) -> None:
    session = model.new_session()
    restore(saved, session, SHA)
    session.trim(4)
    prompt = [5, 6, 7, 8, *PROMPT]
    fresh = answer(model, model.new_session(), prompt, 20, GREEDY)
    assert answer(model, session, prompt, 20, GREEDY) == fresh


def test_restore_replaces_a_longer_session(model: LoadedModel, saved: Path) -> None:
    session = model.new_session()
    answer(model, session, PROMPT * 3, 20, GREEDY)
    restore(saved, session, SHA)
    assert session.all_tokens[:5] == [5, 6, 7, 8, 9]
    assert len(session.all_tokens) == 8
    assert session.cache.length == len(session.tokens) == 7


def test_other_sampling_parameters_do_not_resume_the_random_state(
    model: LoadedModel, saved: Path
) -> None:
    session, again = model.new_session(), model.new_session()
    restore(saved, session, SHA)
    restore(saved, again, SHA)
    other = Sampling(temperature=0.8, seed=4)
    first = answer(model, session, session.all_tokens, 30, other)
    plain = model.new_session()
    (*_, hidden) = plain.prefill(session.all_tokens[:8])
    plain.logits_after(hidden)
    assert first == answer(model, plain, session.all_tokens[:8], 30, other)
    assert first != answer(model, again, again.all_tokens, 30, SEEDED)


def test_safetensors_library_reads_the_file(saved: Path, model: LoadedModel) -> None:
    with safetensors.safe_open(saved, "numpy") as file:
        metadata = file.metadata()
        names = set(file.keys())
    tensors = safetensors.numpy.load_file(saved)
    assert metadata["format"] == "tokonoma session"
    assert metadata["model_sha256"] == SHA
    assert metadata["conversation"] == "one"
    assert json.loads(metadata["sampling"])["seed"] == 3
    assert names == set(tensors)
    assert tensors["tokens"].tolist()[:5] == [5, 6, 7, 8, 9]
    assert tensors["keys.0"].shape == (2, 7, 16)
    assert tensors["logits"].shape == (model.config.vocabulary,)


@pytest.mark.parametrize("type", list(CacheType))
def test_session_bytes_predicts_the_file_size(path: Path, type: CacheType, tmp_path: Path) -> None:
    session = load(path, cache=type).new_session()
    for _ in session.prefill(PROMPT * 4):
        pass
    size = save(session, tmp_path / "file").stat().st_size
    assert 0 <= size - session_bytes(session) < 10_000


# --- across processes, with adapters ------------------------------------------------------------

_CHILD = """
import json, sys
from pathlib import Path
from engine import CacheType, Sampling
from engine.inference.generate import Answer
from engine.loading.loader import load
from engine.lora.stack import Stack, load_adapter
from engine.snapshot.capture import restore
model_path, adapters, jobs = json.loads(sys.argv[1])
for kind, file, sampling, tokens in jobs:
    model = load(Path(model_path), cache=CacheType(kind))
    session = model.new_session()
    base = model.decoder.base
    session.set_stack(Stack((load_adapter(Path(p), base), s) for p, s in adapters))
    restore(Path(file), session, "a" * 64)
    prompt = session.all_tokens
    made = Answer(session, model.tokenizer, prompt, Sampling(**sampling), max_tokens=tokens)
    list(made.events())
    print(json.dumps(made.tokens))
"""


def test_answer_continues_in_another_process_with_two_adapters(path: Path, tmp_path: Path) -> None:
    adapters = [
        (tiny_lora.write(tmp_path / f"{seed}.gguf", path, seed=seed, rank=seed * 2), strength)
        for seed, strength in ((1, 1.0), (2, -0.5))
    ]
    jobs: list[tuple[str, str, dict[str, float], int]] = []
    wholes: list[list[int]] = []
    for type in CacheType:
        model = load(path, cache=type)
        stack = Stack((load_adapter(file, model.decoder.base), by) for file, by in adapters)
        for options in ({"temperature": 0}, {"temperature": 0.8, "seed": 7}):
            sampling = Sampling(**options)  # type: ignore[arg-type]
            one, other = model.new_session(), model.new_session()
            one.set_stack(stack)
            other.set_stack(stack)
            wholes.append(answer(model, one, PROMPT, 128, sampling))
            begun = answer(model, other, PROMPT, 37, sampling)
            assert wholes[-1][:37] == begun
            file = save(other, tmp_path / f"{len(jobs)}.safetensors")
            jobs.append((type.value, str(file), options, 128 - 37))
    argument = json.dumps([str(path), [(str(file), by) for file, by in adapters], jobs])
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-c", _CHILD, argument], cwd=root, capture_output=True, check=True
    )
    rests = [json.loads(line) for line in run.stdout.splitlines()]
    assert [whole[37:] for whole in wholes] == rests
    assert len({tuple(whole) for whole in wholes}) > 2  # they are not all the same


# --- atomic writes ------------------------------------------------------------------------------


def test_failed_write_leaves_no_temporary_file(model: LoadedModel, saved: Path) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 3, GREEDY)
    blocked = saved.parent / "blocked"
    blocked.mkdir()
    (blocked / "inside").write_text("so that the folder cannot be replaced by a file")
    with pytest.raises(OSError, match="blocked"):
        save(session, blocked)
    assert not list(saved.parent.glob(".*"))
    with pytest.raises(OSError, match="inside"):
        save(session, blocked / "inside" / "file")


def test_save_replaces_an_existing_file(model: LoadedModel, saved: Path) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 3, GREEDY)
    save(session, saved)
    back = model.new_session()
    restore(saved, back, SHA)
    assert back.all_tokens == session.all_tokens
    assert [file.name for file in saved.parent.iterdir() if file.is_file()] == [saved.name]


def test_a_killed_save_leaves_the_old_file_or_the_new_one() -> None:
    kills = crash_snapshot.measure(kills=2, seed=5)
    assert all(map(crash_snapshot.is_sound, kills)), kills
