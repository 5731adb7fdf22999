"""Expert pager: paged experts change no bit, only those not in the cache are read, faults end a pass."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import every_architecture
from engine.core.session import Session
from engine.errors import Cancelled, ModelFileError
from engine.gguf.reader import GGUFFile
from engine.loading.paging import ExpertBytes, expert_bytes
from engine.messages import CacheType
from engine.models import architecture, slot_reader
from engine.models.expert_pager import ExpertPager
from engine.models.layers import Decoder
from engine.models.weights import Weights
from kernels import backends
from kernels.backend.placement import Placement
from kernels.backends import BACKENDS
from kernels.programs.interpreter import Interpreter
from kernels.weights.weight import Storage
from sessions import session_over

CONTEXT = 96
TOKENS = [(37 * at + 11) % 90 for at in range(40)]
NAMES = [name for name in ("cpu", "reference") if name in BACKENDS]
# With a shared expert, beside latent attention, with biases, beside recurrences, and plain ones.
MIXTURES = ("bailingmoe3", "deepseek2", "gpt-oss", "qwen35moe", "qwen3moe")
ONE = "qwen3moe"  # has 2 layers of 6 experts, of which a token uses 3


def written(name: str, folder: Path) -> Path:
    return every_architecture.write(name, folder / "m.gguf", context=CONTEXT, window=16)


def opened(path: Path, slots: int, backend: str, storage: Storage) -> tuple[Decoder, ExpertBytes]:
    """A decoder with so many of its experts in memory, 0: all; and their sizes."""
    chosen = backends.choose(backend)
    with GGUFFile.open(path) as file:
        prefix = file.metadata["general.architecture"]
        layers = int(file.metadata[f"{prefix}.block_count"])
        used = int(file.metadata[f"{prefix}.expert_used_count"])
        placement = Placement.on(chosen, layers)
        kept = {(chosen.name, info.format.name): storage for info in file.tensors.values()}
        sizes = expert_bytes(file, placement, kept, used)
        assert sizes is not None
        pager = None
        if slots:
            pager = ExpertPager(file.paths, sizes.layers, sizes.slot, slots, chosen.memory)
        weights = Weights(file, placement=placement, storage=kept, pager=pager)
        decoder = architecture(file)(file, weights, CONTEXT)
        weights.refuse_unused_tensors()
        return decoder, sizes


def session_of(
    path: Path, slots: int = 0, backend: str = NAMES[0], storage: Storage = Storage.FILE
) -> Session:
    return session_over(opened(path, slots, backend, storage)[0], CONTEXT, CacheType.F32)


def pager_of(session: Session) -> ExpertPager:
    pager = session.runner.model.pager
    assert isinstance(pager, ExpertPager)
    return pager


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


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expert in many pieces, whose rows are no whole blocks of the disk."""
    monkeypatch.setattr(slot_reader, "PIECE_BYTES", 1_000)


@pytest.mark.sweep
@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.usefixtures("small_pieces")
def test_paged_experts_change_no_bit(name: str, backend: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    storage = Storage.BACKEND if backend == "cpu" else Storage.FILE
    decoder, sizes = opened(path, 0, backend, storage)
    wanted = read(session_over(decoder, CONTEXT, CacheType.F32))
    assert torch.isfinite(wanted).all()
    for slots in (1, sizes.chosen, sizes.count // 2, sizes.count):
        session = session_of(path, slots, backend, storage)
        assert torch.equal(read(session), wanted)
        assert pager_of(session).read_bytes > 0


@pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")
def test_native_programs_run_with_paged_experts(tmp_path: Path) -> None:
    session = session_of(written(ONE, tmp_path), 2, "cpu", Storage.BACKEND)
    read(session)
    assert not any(isinstance(one, Interpreter) for one in session.runner._recorded.values())


def test_only_experts_that_are_not_in_memory_are_read(tmp_path: Path) -> None:
    path = written(ONE, tmp_path)
    _, sizes = opened(path, 0, NAMES[0], Storage.FILE)
    session = session_of(path, sizes.count)
    wanted = read(session)
    pager = pager_of(session)
    assert 0 < pager.read_bytes <= sizes.stored
    before = pager.read_bytes
    session.rewind(0)
    assert torch.equal(read(session), wanted)
    assert pager.read_bytes == before
    # A token reads at most the experts it uses.
    few = session_of(path, sizes.chosen)
    read(few, steps=0)
    before = pager_of(few).read_bytes
    few.step(5)
    assert 0 < pager_of(few).read_bytes - before <= sizes.token


def test_the_least_recently_used_expert_goes(tmp_path: Path) -> None:
    path = written(ONE, tmp_path)
    session = session_of(path, 3)
    pager = pager_of(session)

    def reads(*experts: int, layer: int = 0) -> bool:
        """Whether anything was read for these experts."""
        before = pager.read_bytes
        groups = [list(group) for group in pager.read(layer, experts, lambda: None)]
        assert [number for group in groups for number in group] == list(experts)
        return pager.read_bytes > before

    assert [reads(number) for number in (0, 1, 2)] == [True] * 3
    assert not reads(0)
    assert reads(3, layer=1)  # in place of expert 1 of layer 0
    assert not reads(0, 2)
    assert not reads(3, layer=1)
    assert reads(1)  # in place of 0
    assert [reads(2), reads(3, layer=1), reads(0)] == [False, False, True]
    assert reads(0, 1, 2, 3, 4, 5)  # more than there are slots: one after the other


def test_memory_is_one_slot_for_each_expert(tmp_path: Path) -> None:
    path = written(ONE, tmp_path)
    asked: list[int] = []

    def memory(size: int) -> Tensor:
        asked.append(size)
        return torch.empty(size, dtype=torch.uint8)

    _, sizes = opened(path, 0, NAMES[0], Storage.FILE)
    ExpertPager([path], sizes.layers, sizes.slot, 5, memory)
    assert asked == [5 * sizes.slot]


def test_a_changed_file_is_named_and_the_pager_goes_on(tmp_path: Path) -> None:
    path = written(ONE, tmp_path)
    session = session_of(path, 2)
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
    path = written(ONE, tmp_path)
    session = session_of(path, 2)
    os.truncate(path, path.stat().st_size // 8)
    with pytest.raises(ModelFileError) as caught:
        read(session)
    error = caught.value.with_traceback(None)  # which would keep the model
    del caught
    assert str(error).count(".") == 2  # the file's name has one
    assert error.remedy


@pytest.mark.parametrize("slots", [2, 6])
def test_an_error_of_an_earlier_pass_is_not_raised_again(
    slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(ONE, tmp_path)
    session = session_of(path, slots)
    wanted = read(session)
    right, calls = slot_reader.DirectFile.read, 0

    def failing(*operands: object) -> object:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise OSError(5, "Input/output error")
        time.sleep(0.005)
        return right(*operands)  # type: ignore[arg-type]

    for _ in range(3):
        session.rewind(0)
        monkeypatch.setattr(slot_reader.DirectFile, "read", failing)
        with pytest.raises(ModelFileError, match=r"cannot be read from m\.gguf"):
            read(session)
        monkeypatch.setattr(slot_reader.DirectFile, "read", right)
        session.rewind(0)
        assert torch.equal(read(session), wanted)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("backend", NAMES)
def test_a_pass_is_cancelled_while_it_waits_for_an_expert(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(ONE, tmp_path)
    session = session_of(path, 3, backend)
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
    path = written(ONE, tmp_path)
    gc.collect()
    session = session_of(path, 3)
    read(session)
    assert any(thread.name.startswith("layers ") for thread in threading.enumerate())
    del session
    gc.collect()
    assert not any(thread.name.startswith("layers ") for thread in threading.enumerate())
    if sys.platform == "linux":
        assert path not in [link.resolve() for link in Path("/proc/self/fd").iterdir()]


def test_two_programs_share_one_pager(tmp_path: Path) -> None:
    """As an answer and an embedding do, pass by pass."""
    path = written(ONE, tmp_path)
    wanted = read(session_of(path), steps=0)
    decoder, _ = opened(path, 3, NAMES[0], Storage.FILE)
    sample = decoder.of_layers(range(len(decoder.blocks)))
    first, second = (session_over(one, CONTEXT, CacheType.F32) for one in (decoder, sample))
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])
    for piece in (TOKENS[:25], TOKENS[25:]):
        for session, found in zip((first, second), rows, strict=True):
            found += [session.logits(hidden) for hidden in session.prefill(piece)]
    assert torch.equal(torch.cat(rows[0]), wanted)
    assert torch.equal(torch.cat(rows[1]), wanted)
