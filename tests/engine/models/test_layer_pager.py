"""Layer pager: paged layers change no bit, whatever fails; files, threads and memory are let go."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import every_architecture
import oracle
import tiny
import tiny_lora
from engine.adapters.stack import Stack, load_adapter
from engine.core.session import Session
from engine.errors import Cancelled, ModelFileError
from engine.gguf.reader import GGUFFile
from engine.loading.paging import layer_bytes
from engine.messages import CacheType
from engine.models import architecture, slot_reader
from engine.models.layer_pager import LayerPager
from engine.models.layers import Decoder
from engine.models.weights import Weights
from kernels import backends
from kernels.backend.placement import Placement
from kernels.backends import BACKENDS
from kernels.weights.weight import Storage
from sessions import session_over

pytestmark = pytest.mark.sweep

CONTEXT = 96
TOKENS = [(37 * at + 11) % 90 for at in range(40)]
LAYERS = 7
NAMES = [name for name in ("cpu", "reference") if name in BACKENDS]
# Of cpu packed and as in the file, of the reference as in the file: it would decode them.
FORMATS = ("Q4_0", "Q8_0", "Q1_0", "Q6_K", "F16")
STORED = [
    *((format, "cpu", Storage.BACKEND) for format in FORMATS),
    ("Q4_0", "cpu", Storage.FILE),
    ("Q4_0", "reference", Storage.FILE),
]
STORED = [one for one in STORED if one[1] in BACKENDS]


def built(
    path: Path,
    paged: Sequence[int] = (),
    backend: str = NAMES[0],
    storage: Storage = Storage.BACKEND,
) -> Decoder:
    """A decoder whose layers `paged` are read for every pass."""
    chosen = backends.choose(backend)
    with GGUFFile.open(path) as file:
        layers = int(file.metadata[f"{file.metadata['general.architecture']}.block_count"])
        formats = {info.format.name for info in file.tensors.values()}
        placement = Placement.on(chosen, layers)
        kept = {(chosen.name, format): storage for format in formats}
        slot = max(size for size, _ in layer_bytes(file, placement, kept).values())
        pager = LayerPager(file.paths, paged, slot, chosen.memory) if paged else None
        weights = Weights(file, placement=placement, storage=kept, pager=pager)
        decoder = architecture(file)(file, weights, CONTEXT)
        weights.refuse_unused_tensors()
        return decoder


def session_of(decoder: Decoder) -> Session:
    return session_over(decoder, CONTEXT, CacheType.F32)


def read(session: Session, steps: int = 6) -> Tensor:
    """Logits [T, V] after each token: prefilled in two chunks, then greedily decoded."""
    rows = [
        session.logits(hidden)
        for piece in (TOKENS[:25], TOKENS[25:])
        for hidden in session.prefill(piece)
    ]
    for _ in range(steps):
        rows.append(session.step(int(rows[-1][-1].argmax()))[None])
    return torch.cat(rows)


def threads_of_pagers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("layers ")]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer in many pieces, whose rows are no whole blocks of the disk."""
    monkeypatch.setattr(slot_reader, "PIECE_BYTES", 1_000)


@pytest.mark.parametrize(("format", "backend", "storage"), STORED)
@pytest.mark.usefixtures("small_pieces")
def test_paged_layers_change_no_bit(
    format: str, backend: str, storage: Storage, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format=format, layers=LAYERS)
    wanted = read(session_of(built(path, (), backend, storage)))
    for paged in (range(LAYERS), (0, 2, 3, 6), (1, 3, 5)):
        session = session_of(built(path, tuple(paged), backend, storage))
        assert torch.equal(read(session), wanted)
        pager = session.runner.model.pager
        assert pager is not None
        assert pager.read_bytes > 3 * pager.bytes_per_pass  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", every_architecture.names())
def test_every_architecture_is_paged(name: str, tmp_path: Path) -> None:
    path = every_architecture.write(name, tmp_path / "m.gguf", context=CONTEXT, window=16)
    decoder = built(path)
    paged = tuple(range(len(decoder.blocks)))
    assert torch.equal(read(session_of(built(path, paged))), read(session_of(decoder)))


def test_layers_of_experts_are_paged(tmp_path: Path) -> None:
    name = next(name for name in oracle.CASES if "moe" in name)
    state = oracle.recorded(name)
    del state["tokens"], state["logits"]
    path = oracle.write_gguf(oracle.CASES[name], state, tmp_path / "m.gguf")
    decoder = built(path)
    paged = tuple(range(len(decoder.blocks)))
    assert torch.equal(read(session_of(built(path, paged))), read(session_of(decoder)))


def test_adapters_apply_to_paged_layers(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    plain, paged = session_of(built(path)), session_of(built(path, range(LAYERS)))
    file = tiny_lora.write(tmp_path / "lora.gguf", path, seed=3, targets=tiny_lora.EVERY)
    stack = Stack([(load_adapter(file, plain.runner.model.base), 0.7)])
    before = read(plain)
    for session in (plain, paged):
        session.rewind(0)
        session.set_stack(stack)
    found = read(paged)
    assert torch.equal(found, read(plain))
    assert not torch.equal(found, before)


def test_a_changed_file_is_named_and_the_pager_goes_on(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    session = session_of(built(path, range(LAYERS)))
    wanted = read(session)
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    session.rewind(0)
    with pytest.raises(ModelFileError, match=r"m\.gguf has changed since the model was loaded"):
        read(session)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    session.rewind(0)
    assert torch.equal(read(session), wanted)


def test_a_file_cut_short_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    session = session_of(built(path, range(LAYERS)))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ModelFileError) as caught:
        read(session)
    error = caught.value.with_traceback(None)  # which would keep the model
    del caught
    assert str(error).count(".") == 2  # the file's name has one
    assert error.remedy


@pytest.mark.usefixtures("small_pieces")
def test_a_pass_is_cancelled_while_it_waits_for_a_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    session = session_of(built(path, range(LAYERS)))
    wanted = read(session)
    session.rewind(0)
    right = slot_reader.DirectFile.read

    def slow(*operands: object) -> object:
        time.sleep(0.02)
        return right(*operands)  # type: ignore[arg-type]

    monkeypatch.setattr(slot_reader.DirectFile, "read", slow)
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        for _ in session.prefill(TOKENS, checkpoint):
            pass
    assert session.tokens == []
    monkeypatch.setattr(slot_reader.DirectFile, "read", right)
    assert torch.equal(read(session), wanted)


def test_threads_end_and_files_are_closed_with_the_model(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    gc.collect()
    assert threads_of_pagers() == []
    session = session_of(built(path, range(LAYERS)))
    read(session)
    assert len(threads_of_pagers()) == slot_reader.WORKERS
    del session
    gc.collect()
    assert threads_of_pagers() == []
    if sys.platform == "linux":
        assert path not in [link.resolve() for link in Path("/proc/self/fd").iterdir()]


def test_two_programs_share_one_pager(tmp_path: Path) -> None:
    """As an answer and an embedding do, pass by pass."""
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    wanted = read(session_of(built(path)), steps=0)
    decoder = built(path, range(LAYERS))
    first, second = session_of(decoder), session_of(decoder.of_layers(range(LAYERS)))
    rows = ([], [])
    for piece in (TOKENS[:25], TOKENS[25:]):
        for session, found in zip((first, second), rows, strict=True):
            found += [session.logits(hidden) for hidden in session.prefill(piece)]
    assert torch.equal(torch.cat(rows[0]), wanted)
    assert torch.equal(torch.cat(rows[1]), wanted)


def test_an_error_of_an_earlier_pass_is_not_raised_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while other pieces of that layer are still being read."""
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=LAYERS)
    session = session_of(built(path, range(LAYERS)))
    wanted = read(session)
    right, calls = slot_reader.DirectFile.read, 0

    def failing(*operands: object) -> object:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise OSError(5, "Input/output error")
        time.sleep(0.05)  # its neighbour has failed long before
        return right(*operands)  # type: ignore[arg-type]

    for _ in range(3):
        session.rewind(0)
        monkeypatch.setattr(slot_reader.DirectFile, "read", failing)
        with pytest.raises(ModelFileError, match=r"cannot be read from m\.gguf"):
            read(session)
        monkeypatch.setattr(slot_reader.DirectFile, "read", right)
        session.rewind(0)
        assert torch.equal(read(session), wanted)
