"""Cache leases: a session stays usable while it is saved, without a copy of its cache."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tiny
import tiny_lora
from engine import CacheType
from engine.errors import Cancelled
from engine.inference.session import Session
from engine.loading.loader import LoadedModel, load
from engine.lora.stack import Stack, load_adapter
from engine.snapshot.capture import Snapshot, capture, restore, session_bytes, write
from saved_sessions import SHA, save

LAYERS, CONTEXT = 4, 1024
Action = Callable[[Session, Path], None]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return tiny.write(folder / "tiny.gguf", context=CONTEXT, layers=LAYERS)


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path, cache=CacheType.F16)


def prompt(tokens: int, seed: int = 0) -> list[int]:
    return [3 + (at * 7 + seed) % 250 for at in range(tokens)]


def filled(model: LoadedModel, tokens: int, seed: int = 0) -> Session:
    session = model.new_session()
    read(session, tokens, seed)
    return session


def read(session: Session, tokens: int, seed: int = 0) -> None:
    (*_, hidden) = session.prefill(prompt(tokens, seed))
    session.logits_after(hidden)


def captured(session: Session) -> Snapshot:
    return capture(session, model="Tiny", architecture="llama")


def copies(session: Session) -> list[Tensor]:
    return [part.clone() for part in session.cache.tensors(len(session.tokens))]


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of the tensors, each storage counted once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def tensor_bytes() -> int:
    """Bytes of the storages of all live tensors."""
    gc.collect()
    return storage_bytes(each for each in gc.get_objects() if type(each) is Tensor)


# --- memory -------------------------------------------------------------------------------------


def test_saving_takes_no_copy_of_the_cache(model: LoadedModel, tmp_path: Path) -> None:
    session = filled(model, 600)
    layer = session_bytes(session) // LAYERS
    before = tensor_bytes()
    snapshot = captured(session)
    assert tensor_bytes() - before < layer
    for _ in snapshot.cache.layers():
        assert tensor_bytes() - before < layer
    snapshot.release()
    file = save(session, tmp_path / "file")
    assert file.stat().st_size > session_bytes(session)
    assert tensor_bytes() - before < layer


def test_growing_a_leased_cache_keeps_at_most_one_old_layer(
    model: LoadedModel,
) -> None:
    session = filled(model, 250)
    other = filled(model, 250)
    layer = session.cache_bytes // LAYERS
    snapshot = captured(session)
    layers = snapshot.cache.layers()
    next(layers)
    gains: list[int] = []
    for grown in (other, session):
        before = tensor_bytes()
        read(grown, 20)
        gains.append(tensor_bytes() - before)
    assert session.cache_bytes == other.cache_bytes > LAYERS * layer
    assert gains[1] - gains[0] <= layer
    before = tensor_bytes()
    list(layers)
    snapshot.release()
    assert before - tensor_bytes() <= layer


def test_overwriting_a_leased_cache_waits_when_both_exceed_the_memory_plan(
    model: LoadedModel,
) -> None:
    session = filled(model, 900)
    full = session.cache.bytes_per_token(LAYERS, 2, 16, CacheType.F16) * CONTEXT
    assert session.cache_bytes == full
    expected = copies(session)
    snapshot = captured(session)
    layers = snapshot.cache.layers()
    seen: list[Tensor] = []
    totals: list[int] = []  # bytes of the session's cache and of the leased buffers

    def checkpoint() -> None:
        leased = [part for layer in snapshot.cache.pending().values() for part in layer]
        totals.append(storage_bytes([*leased, *session.cache.tensors(0)]))
        seen.extend(part.clone() for part in next(layers, ()))

    session.trim(0)
    for _ in session.prefill(prompt(600, seed=5), checkpoint):
        pass
    assert max(totals) <= full
    for layer in layers:
        seen.extend(part.clone() for part in layer)
    assert len(seen) == len(expected)
    assert all(map(torch.equal, seen, expected))
    assert all(map(torch.equal, copies(session), copies(filled(model, 600, seed=5))))


def test_waiting_for_a_lease_can_be_cancelled_without_damaging_the_file(
    model: LoadedModel, tmp_path: Path
) -> None:
    session = filled(model, 900)
    expected, tokens = copies(session), session.all_tokens
    snapshot = captured(session)
    calls = iter(range(3))

    def checkpoint() -> None:
        if next(calls, None) is None:
            raise Cancelled

    session.trim(0)
    with pytest.raises(Cancelled):
        list(session.prefill(prompt(300, seed=5), checkpoint))
    write(snapshot, tmp_path / "file", SHA)
    check(model, tmp_path / "file", expected, tokens)
    read(session, 300, seed=5)
    assert all(map(torch.equal, copies(session), copies(filled(model, 300, seed=5))))


# --- the file -----------------------------------------------------------------------------------


def check(model: LoadedModel, file: Path, expected: list[Tensor], tokens: list[int]) -> None:
    restored = model.new_session()
    restore(file, restored, SHA)
    assert restored.all_tokens == tokens
    assert all(map(torch.equal, copies(restored), expected))


def append(session: Session, path: Path) -> None:
    read(session, 300, seed=9)  # exceeds the capacity of the buffers


def trim(session: Session, path: Path) -> None:
    session.trim(10)
    read(session, 100, seed=9)


def step(session: Session, path: Path) -> None:
    session.trim(10)
    for token in prompt(20, seed=9):
        session.step(token)


def adapt(session: Session, path: Path) -> None:
    adapter = tiny_lora.write(path.with_name("leaf.gguf"), path, seed=1, rank=4)
    session.set_stack(Stack([(load_adapter(adapter, session.model.base), 1.0)]))
    read(session, 100)


def clear(session: Session, path: Path) -> None:
    session.clear()
    read(session, 100, seed=9)


def restore_other(session: Session, path: Path) -> None:
    restore(path.with_name("other"), session, SHA)
    read(session, 100, seed=9)


ACTIONS = [append, trim, step, adapt, clear, restore_other]


@pytest.mark.parametrize("type", list(CacheType))
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_using_a_session_while_it_is_saved_does_not_change_the_file(
    path: Path, action: Action, type: CacheType, tmp_path: Path
) -> None:
    model = load(path, cache=type)
    save(filled(model, 300, seed=4), path.with_name("other"))
    session, unsaved = filled(model, 250), filled(model, 250)
    expected, tokens = copies(session), session.all_tokens
    snapshot = captured(session)
    action(session, path)
    write(snapshot, tmp_path / "file", SHA)
    check(model, tmp_path / "file", expected, tokens)
    action(unsaved, path)  # the reference: the same session without a save
    assert session.last_logits is not None
    assert unsaved.last_logits is not None
    assert torch.equal(session.last_logits, unsaved.last_logits)
    assert all(map(torch.equal, copies(session), copies(unsaved)))


@pytest.mark.parametrize("read_first", range(LAYERS + 1))
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_session_may_be_used_while_any_layer_is_being_saved(
    model: LoadedModel, path: Path, action: Action, read_first: int
) -> None:
    save(filled(model, 300, seed=4), path.with_name("other"))
    session = filled(model, 250)
    expected = copies(session)
    snapshot = captured(session)
    seen: list[Tensor] = []
    for number, layer in enumerate(snapshot.cache.layers()):
        if number == read_first:
            action(session, path)  # while this layer is being read
        seen += [part.clone() for part in layer]
    snapshot.release()
    assert len(seen) == len(expected)
    assert all(map(torch.equal, seen, expected))
