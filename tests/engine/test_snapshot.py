"""A session to a file and back: bit for bit, or refused with the reason."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors
import safetensors.numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crash_snapshot
import tiny
import tiny_lora
from engine import CacheType, Cancelled, Finished, Sampling, SnapshotError
from engine.generate import Answer
from engine.loader import LoadedModel, load
from engine.lora import Stack, load_adapter
from engine.session import Session
from engine.snapshot import capture, restore, session_bytes, write

SHA = "a" * 64
GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=0.8, seed=3, repeat_penalty=1.1)
PROMPT = list(range(5, 60))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=512)


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path, cache=CacheType.F32)


def answer(
    model: LoadedModel, session: Session, prompt: list[int], tokens: int, sampling: Sampling
) -> list[int]:
    made = Answer(session, model.tokenizer, prompt, sampling, max_tokens=tokens)
    assert isinstance(list(made.events())[-1], Finished)
    return made.tokens


def save(session: Session, path: Path, **names: str) -> Path:
    write(capture(session, model="Tiny", architecture="llama", **names), path, SHA)
    return path


@pytest.fixture
def saved(model: LoadedModel, tmp_path: Path) -> Path:
    """A small file: five tokens, an answer of three, and random numbers."""
    session = model.new_session()
    answer(model, session, [5, 6, 7, 8, 9], 3, SEEDED)
    return save(session, tmp_path / "small.safetensors", conversation="one")


def refusal(
    model: LoadedModel, path: Path, sha256: str = SHA, session: Session | None = None
) -> str:
    """The sentence a file is refused with; the session is as it was."""
    session = session or model.new_session()
    answer(model, session, [9, 8, 7], 2, GREEDY)
    held, logits = session.held, session.last_logits
    with pytest.raises(SnapshotError) as refused:
        restore(path, session, sha256)
    assert session.held == held
    assert session.last_logits is logits
    assert refused.value.remedy
    return str(refused.value)


# --- nothing is lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("type", list(CacheType))
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("cut", [1, 20, 127])
def test_an_answer_goes_on_as_if_it_had_never_stopped(
    path: Path, type: CacheType, sampling: Sampling, cut: int, tmp_path: Path
) -> None:
    model = load(path, cache=type)
    whole = answer(model, model.new_session(), PROMPT, 128, sampling)
    assert len(whole) == 128
    session = model.new_session()
    begun = answer(model, session, PROMPT, cut, sampling)
    file = save(session, tmp_path / "file")
    back = model.new_session()
    restore(file, back, SHA)
    assert back.held == session.held == PROMPT + begun
    assert begun + answer(model, back, back.held, 128 - cut, sampling) == whole
    assert begun + answer(model, session, session.held, 128 - cut, sampling) == whole


@pytest.mark.parametrize("type", list(CacheType))
def test_a_session_stopped_right_after_its_prompt_goes_on_with_the_same_bits(
    path: Path, type: CacheType, tmp_path: Path
) -> None:
    model = load(path, cache=type)
    session = model.new_session()
    (*_, hidden) = session.read(PROMPT)
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


def test_a_prompt_that_was_cut_while_it_was_read_is_read_on(
    path: Path, model: LoadedModel, tmp_path: Path
) -> None:
    prompt = [3 + at * 7 % 250 for at in range(480)]
    whole = model.new_session()
    whole._chunk = 64  # so that there is a middle to stop in
    expected = answer(model, whole, prompt, 20, SEEDED)
    session = model.new_session()
    session._chunk = 64
    looks = iter(range(1000))
    cut = Answer(session, model.tokenizer, prompt, SEEDED, cancelled=lambda: next(looks) > 10)
    assert list(cut.events())
    assert 64 <= len(session.tokens) < 480
    assert session.held == session.tokens
    back = model.new_session()
    back._chunk = 64
    restore(save(session, tmp_path / "file"), back, SHA)
    assert back.last_logits is None
    assert back.drawing is None
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


def test_a_longer_session_is_replaced_whole(model: LoadedModel, saved: Path) -> None:
    session = model.new_session()
    answer(model, session, PROMPT * 3, 20, GREEDY)
    restore(saved, session, SHA)
    assert session.held[:5] == [5, 6, 7, 8, 9]
    assert len(session.held) == 8
    assert session.cache.length == len(session.tokens) == 7


def test_other_sampling_draws_afresh(model: LoadedModel, saved: Path) -> None:
    session, again = model.new_session(), model.new_session()
    restore(saved, session, SHA)
    restore(saved, again, SHA)
    other = Sampling(temperature=0.8, seed=4)
    first = answer(model, session, session.held, 30, other)
    plain = model.new_session()
    (*_, hidden) = plain.read(session.held[:8])
    plain.logits_after(hidden)
    assert first == answer(model, plain, session.held[:8], 30, other)
    assert first != answer(model, again, again.held, 30, SEEDED)


def test_the_library_reads_the_file(saved: Path, model: LoadedModel) -> None:
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
def test_its_size_is_known_before(path: Path, type: CacheType, tmp_path: Path) -> None:
    session = load(path, cache=type).new_session()
    for _ in session.read(PROMPT * 4):
        pass
    size = save(session, tmp_path / "file").stat().st_size
    assert 0 <= size - session_bytes(session) < 10_000


# --- across processes, with adapters ------------------------------------------------------------

_CHILD = """
import json, sys
from pathlib import Path
from engine import CacheType, Sampling
from engine.generate import Answer
from engine.loader import load
from engine.lora import Stack, load_adapter
from engine.snapshot import restore
model_path, adapters, jobs = json.loads(sys.argv[1])
for kind, file, sampling, tokens in jobs:
    model = load(Path(model_path), cache=CacheType(kind))
    session = model.new_session()
    base = model.decoder.base
    session.set_stack(Stack((load_adapter(Path(p), base), s) for p, s in adapters))
    restore(Path(file), session, "a" * 64)
    held = session.held
    made = Answer(session, model.tokenizer, held, Sampling(**sampling), max_tokens=tokens)
    list(made.events())
    print(json.dumps(made.tokens))
"""


def test_it_goes_on_in_another_process_with_two_adapters(path: Path, tmp_path: Path) -> None:
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
    told = json.dumps([str(path), [(str(file), by) for file, by in adapters], jobs])
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", _CHILD, told], cwd=root, capture_output=True, check=True
    )
    rests = [json.loads(line) for line in run.stdout.splitlines()]
    assert [whole[37:] for whole in wholes] == rests
    assert len({tuple(whole) for whole in wholes}) > 2  # they are not all the same


# --- refused ------------------------------------------------------------------------------------


def test_another_model_is_named(model: LoadedModel, saved: Path) -> None:
    assert refusal(model, saved, "b" * 64) == "The session was saved with another model, Tiny."


def test_other_adapters_are_named(model: LoadedModel, path: Path, saved: Path) -> None:
    adapter = load_adapter(tiny_lora.write(saved.with_name("leaf.gguf"), path), model.decoder.base)
    adapted = model.new_session()
    adapted.set_stack(Stack([(adapter, 0.5)]))
    assert refusal(model, saved, session=adapted) == "The session was saved without adapters."
    answer(model, adapted, PROMPT, 2, GREEDY)
    told = refusal(model, save(adapted, saved))
    assert told == "The session was saved with other adapters or strengths (leaf at 0.5)."
    weaker = model.new_session()
    weaker.set_stack(Stack([(adapter, 0.25)]))
    assert "leaf at 0.5" in refusal(model, saved, session=weaker)


def test_a_name_from_a_file_is_shown_short_and_on_one_line(
    model: LoadedModel, tmp_path: Path
) -> None:
    session = model.new_session()
    answer(model, session, [5, 6, 7], 1, GREEDY)
    captured = capture(session, model="a\nb\x1b[31m" + "c" * 10_000, architecture="llama")
    write(captured, tmp_path / "file", SHA)
    told = refusal(model, tmp_path / "file", "b" * 64)
    assert len(told) < 200
    assert told.isprintable()


def test_another_type_of_cache_is_named(path: Path, model: LoadedModel, saved: Path) -> None:
    told = refusal(load(path, cache=CacheType.Q8_0), saved)
    assert "f32" in told
    assert "q8_0" in told


def test_a_context_too_small_is_told_with_figures(
    path: Path, model: LoadedModel, tmp_path: Path
) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 20, GREEDY)
    file = save(session, tmp_path / "file")
    assert "74 tokens, and the context only 60" in refusal(
        load(path, context=60, cache=CacheType.F32), file
    )


@pytest.mark.parametrize(
    ("version", "age"), [(2, "newer"), (999, "newer"), (0, "older"), ("x", "older")]
)
def test_other_versions_are_told(
    version: object, age: str, model: LoadedModel, saved: Path
) -> None:
    rewrite(saved, lambda header: header["__metadata__"].update(version=str(version)))
    assert f"by {age} version" in refusal(model, saved).replace("an older", "older").replace(
        "a newer", "newer"
    )


def test_other_files_are_no_sessions(model: LoadedModel, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"x": torch.zeros(3).numpy()}, other)
    assert refusal(model, other) == "The file is not a saved session."
    assert "not a saved session" in refusal(model, path)
    for contents in (b"", b"\0", b"\0" * 8, b"\xff" * 100, b"\2" + bytes(7) + b"[]", b"PK" * 99):
        other.write_bytes(contents)
        assert "not a saved session" in refusal(model, other)
    assert "cannot be read" in refusal(model, tmp_path / "nowhere")
    assert "cannot be read" in refusal(model, tmp_path)


def test_every_flipped_bit_of_the_header_is_noticed(model: LoadedModel, saved: Path) -> None:
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    flip_each(model, saved, ((at, at % 8) for at in range(header)))


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(model: LoadedModel, saved: Path) -> None:
    size = saved.stat().st_size
    flip_each(model, saved, ((at, bit) for at in range(size) for bit in range(8)))


def test_flipped_bits_of_the_data_are_noticed(model: LoadedModel, saved: Path) -> None:
    chance, size = random.Random(1), saved.stat().st_size
    places = [(chance.randrange(size), chance.randrange(8)) for _ in range(300)]
    places += [(size - 1 - at, at % 8) for at in range(32)]  # the digest itself
    flip_each(model, saved, places)


def flip_each(model: LoadedModel, file: Path, places: object) -> None:
    whole, session = file.read_bytes(), model.new_session()
    for at, bit in places:  # type: ignore[attr-defined]
        spoiled = bytearray(whole)
        spoiled[at] ^= 1 << bit
        file.write_bytes(spoiled)
        with pytest.raises(SnapshotError):
            restore(file, session, SHA)
        assert session.tokens == []
    file.write_bytes(whole)
    restore(file, session, SHA)


def test_a_file_that_is_cut_short_or_grown_is_noticed(model: LoadedModel, saved: Path) -> None:
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for length in [*range(0, header, 37), *range(header, len(whole), 501), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        told = refusal(model, saved)
        if length >= header:
            assert told == f"The saved session is cut short: {length:,} bytes of {len(whole):,}."
    saved.write_bytes(whole + b"\0")
    assert refusal(model, saved) == "The saved session is damaged."


# --- strangers' files: sound digests, senseless contents ----------------------------------------


def rewrite(file: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change the header, and give the file the digest that goes with it."""
    import hashlib

    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + whole[8 + length : -32]
    file.write_bytes(body + hashlib.sha256(body).digest())


def _set(name: str, **fields: object) -> Callable[[dict[str, dict[str, object]]], object]:
    return lambda header: header[name].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["__metadata__"].update(tokens="-1"),
        lambda header: header["__metadata__"].update(tokens="0"),
        lambda header: header["__metadata__"].update(tokens="8"),
        lambda header: header["__metadata__"].update(tokens="6"),
        lambda header: header["__metadata__"].update(tokens="²"),
        lambda header: header["__metadata__"].update(tokens="9" * 5000),
        lambda header: header["__metadata__"].pop("tokens"),
        lambda header: header["__metadata__"].update(sampling=""),
        lambda header: header["__metadata__"].update(sampling="[" * 100_000),
        lambda header: header["__metadata__"].update(sampling='{"temperature": 1}'),
        lambda header: header["__metadata__"].update(
            sampling=header["__metadata__"]["sampling"].replace("0.8", "-5")
        ),
        lambda header: header["__metadata__"].update(
            sampling=header["__metadata__"]["sampling"].replace("0.8", '"hot"')
        ),
        lambda header: header["__metadata__"].update(
            sampling=header["__metadata__"]["sampling"].replace("0.8", "NaN")
        ),
        _set("keys.0", shape=[2, 7, 32]),
        _set("keys.0", shape=[1 << 40, 1 << 40]),
        _set("keys.0", shape=[-2, 7, -16]),
        _set("keys.0", shape=[True, 7, 16]),
        _set("keys.0", shape=[7, 2, 16]),
        _set("keys.0", shape=2),
        _set("keys.0", dtype="I32"),
        _set("keys.0", dtype="F64"),
        _set("keys.0", dtype=["F32"]),
        _set("keys.0", data_offsets=[0, 1 << 62]),
        _set("keys.0", data_offsets=[0]),
        _set("random", dtype="I8"),
        _set("random", shape=[2, 2528]),
        _set("digest", shape=[4, 8]),
        _set("digest", dtype="I8"),
        lambda header: header.update({"keys.9": header.pop("keys.0")}),
        lambda header: header.pop("keys.0"),
        lambda header: header.pop("digest"),
        lambda header: header.update(more=[]),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(
    change: Callable[[dict[str, object]], object], model: LoadedModel, saved: Path
) -> None:
    rewrite(saved, change)
    assert refusal(model, saved)


@pytest.mark.parametrize("token", [-1, 307, 2**31 - 1])
def test_ids_outside_the_vocabulary_are_refused(
    token: int, model: LoadedModel, tmp_path: Path
) -> None:
    session = model.new_session()
    answer(model, session, [5, 6, 7], 2, GREEDY)
    session.tokens[1] = token
    assert refusal(model, save(session, tmp_path / "file")) == "The saved session is damaged."


def test_random_numbers_that_are_none_are_refused(model: LoadedModel, tmp_path: Path) -> None:
    session = model.new_session()
    answer(model, session, [5, 6, 7], 2, SEEDED)
    assert session.drawing is not None
    session.drawing.random[:] = 255
    assert refusal(model, save(session, tmp_path / "file")) == "The saved session is damaged."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(["__metadata__", "tokens", "keys.0", "logits", "random"]), value=JSON)
def test_any_header_is_refused_or_restored(
    field: str, value: object, model: LoadedModel, saved: Path
) -> None:
    whole = saved.read_bytes()
    rewrite(saved, lambda header: header.update({field: value}))
    with pytest.raises(SnapshotError):
        restore(saved, model.new_session(), SHA)
    saved.write_bytes(whole)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.binary(max_size=400))
def test_any_bytes_are_refused(contents: bytes, model: LoadedModel, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_bytes(contents)
    with pytest.raises(SnapshotError):
        restore(file, model.new_session(), SHA)
    file.write_bytes(len(contents).to_bytes(8, "little") + contents)
    with pytest.raises(SnapshotError):
        restore(file, model.new_session(), SHA)


def test_cancel_while_a_file_is_checked_leaves_the_session_as_it_was(
    model: LoadedModel, saved: Path
) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 3, GREEDY)
    held = session.held

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        restore(saved, session, SHA, cancel)
    assert session.held == held


# --- written whole or not at all ----------------------------------------------------------------


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(
    model: LoadedModel, saved: Path
) -> None:
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


def test_an_old_file_is_replaced_by_the_new_one(model: LoadedModel, saved: Path) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 3, GREEDY)
    save(session, saved)
    back = model.new_session()
    restore(saved, back, SHA)
    assert back.held == session.held
    assert [file.name for file in saved.parent.iterdir() if file.is_file()] == [saved.name]


def test_a_killed_save_leaves_the_old_file_or_the_new_one() -> None:
    kills = crash_snapshot.measure(kills=2, seed=5)
    assert all(map(crash_snapshot.is_sound, kills)), kills
