"""Damaged, foreign and crafted snapshot files are refused and leave the session unchanged."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
import tiny_lora
from engine import CacheType, Cancelled, SnapshotError
from engine.loading.loader import LoadedModel, load
from engine.lora.stack import Stack, load_adapter
from engine.snapshot.capture import capture, restore, write
from saved_sessions import GREEDY, PROMPT, SEEDED, SHA, answer, refusal, save


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


def test_another_model_is_named(model: LoadedModel, saved: Path) -> None:
    assert refusal(model, saved, "b" * 64) == "The session was saved with another model, Tiny."


def test_other_adapters_are_named(model: LoadedModel, path: Path, saved: Path) -> None:
    adapter = load_adapter(tiny_lora.write(saved.with_name("leaf.gguf"), path), model.decoder.base)
    adapted = model.new_session()
    adapted.set_stack(Stack([(adapter, 0.5)]))
    assert refusal(model, saved, session=adapted) == "The session was saved without adapters."
    answer(model, adapted, PROMPT, 2, GREEDY)
    message = refusal(model, save(adapted, saved))
    assert message == "The session was saved with other adapters or strengths (leaf at 0.5)."
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
    message = refusal(model, tmp_path / "file", "b" * 64)
    assert len(message) < 200
    assert message.isprintable()


def test_another_cache_type_is_named(path: Path, model: LoadedModel, saved: Path) -> None:
    message = refusal(load(path, cache=CacheType.Q8_0), saved)
    assert "f32" in message
    assert "q8_0" in message


def test_context_too_small_is_refused_with_figures(
    path: Path, model: LoadedModel, tmp_path: Path
) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 20, GREEDY)
    file = save(session, tmp_path / "file")
    assert "74 tokens, and the context only 60" in refusal(
        load(path, context=60, cache=CacheType.F32), file
    )


@pytest.mark.parametrize(
    ("version", "age"), [(3, "newer"), (999, "newer"), (1, "older"), (0, "older"), ("x", "older")]
)
def test_other_format_versions_are_refused(
    version: object, age: str, model: LoadedModel, saved: Path
) -> None:
    rewrite(saved, lambda header: header["__metadata__"].update(version=str(version)))
    assert f"by {age} version" in refusal(model, saved).replace("an older", "older").replace(
        "a newer", "newer"
    )


def test_files_of_other_formats_are_refused(model: LoadedModel, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"x": torch.zeros(3).numpy()}, other)
    assert refusal(model, other) == "The file is not a saved session."
    assert "not a saved session" in refusal(model, path)
    for contents in (b"", b"\0", b"\0" * 8, b"\xff" * 100, b"\2" + bytes(7) + b"[]", b"PK" * 99):
        other.write_bytes(contents)
        assert "not a saved session" in refusal(model, other)
    assert "cannot be read" in refusal(model, tmp_path / "nowhere")
    assert "cannot be read" in refusal(model, tmp_path)


def test_every_flipped_bit_of_the_header_is_detected(model: LoadedModel, saved: Path) -> None:
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    flip_each(model, saved, ((at, at % 8) for at in range(header)))


@pytest.mark.slow
def test_every_flipped_bit_is_detected(model: LoadedModel, saved: Path) -> None:
    size = saved.stat().st_size
    flip_each(model, saved, ((at, bit) for at in range(size) for bit in range(8)))


def test_flipped_bits_of_the_data_are_detected(model: LoadedModel, saved: Path) -> None:
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


def test_truncated_and_extended_files_are_refused(model: LoadedModel, saved: Path) -> None:
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for length in [*range(0, header, 37), *range(header, len(whole), 501), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        message = refusal(model, saved)
        if length >= header:
            assert message == f"The saved session is cut short: {length:,} bytes of {len(whole):,}."
    saved.write_bytes(whole + b"\0")
    assert refusal(model, saved) == "The saved session is damaged."


# --- crafted files: valid digests, invalid contents ---------------------------------------------


def rewrite(file: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change the header and recompute the digest."""
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
def test_invalid_header_with_a_valid_digest_is_refused(
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


def test_invalid_random_state_is_refused(model: LoadedModel, tmp_path: Path) -> None:
    session = model.new_session()
    answer(model, session, [5, 6, 7], 2, SEEDED)
    assert session.sampler_state is not None
    session.sampler_state.random[:] = 255
    assert refusal(model, save(session, tmp_path / "file")) == "The saved session is damaged."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(["__metadata__", "tokens", "keys.0", "logits", "random"]), value=JSON)
def test_any_changed_header_is_refused(
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


def test_cancelled_restore_leaves_the_session_unchanged(model: LoadedModel, saved: Path) -> None:
    session = model.new_session()
    answer(model, session, PROMPT, 3, GREEDY)
    tokens = session.all_tokens

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        restore(saved, session, SHA, cancel)
    assert session.all_tokens == tokens
