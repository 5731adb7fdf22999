"""Streamers of layers and experts: offloading changes no bit; faults end a pass; all is let go."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import every_architecture
import tiny
import tiny_lora
from engine.adapters.stack import Stack, load_adapter
from engine.core.session import Session
from engine.errors import Cancelled, ModelFileError
from engine.gguf.reader import GGUFFile
from engine.loading.offloading import ExpertBytes, expert_bytes, layer_bytes
from engine.messages import CacheType
from engine.models import architecture, slot_reader
from engine.models.expert_streamer import ExpertStreamer
from engine.models.layer_streamer import LayerStreamer
from engine.models.layers import Decoder
from engine.models.weights import Weights
from kernels import backends
from kernels.backend.placement import Placement
from kernels.backends import BACKENDS
from kernels.programs.interpreter import Interpreter
from kernels.weights.weight import Storage
from sessions import TOKENS, read, session_over

CONTEXT = 96
LAYERS = 7
# As each backend has the weights: packed, and as in the file.
STORAGE = {"cpu": Storage.BACKEND, "reference": Storage.FILE}
NAMES = [name for name in STORAGE if name in BACKENDS]
STORED = [(format, "cpu", Storage.BACKEND) for format in ("Q4_0", "Q8_0", "Q1_0", "Q6_K", "F16")]
STORED += [("Q4_0", "cpu", Storage.FILE), ("Q4_0", "reference", Storage.FILE)]
STORED = [one for one in STORED if one[1] in BACKENDS]
# With a shared expert, beside latent attention, with biases, beside recurrences, and plain ones.
MIXTURES = ("bailingmoe3", "deepseek2", "gpt-oss", "qwen35moe", "qwen3moe")
ONE = "qwen3moe"  # has 2 layers of 6 experts, of which a token uses 3


def opened(
    path: Path,
    backend: str = NAMES[0],
    storage: Storage | None = None,
    *,
    layers: Sequence[int] = (),
    slots: int = 0,
) -> Decoder:
    """A decoder of which these layers, or all experts but so many, stay in the file."""
    chosen = backends.choose(backend)
    with GGUFFile.open(path) as file:
        placement, kept, experts = sizes_of(file, backend, storage or STORAGE[backend])
        streamer = None
        if layers:
            size = max(size for size, _ in layer_bytes(file, placement, kept).values())
            streamer = LayerStreamer(file.paths, layers, size, chosen.memory)
        elif slots:
            assert experts is not None
            streamer = ExpertStreamer(
                file.paths, experts.layers, experts.slot, slots, chosen.memory
            )
        weights = Weights(file, placement=placement, storage=kept, streamer=streamer)
        decoder = architecture(file)(file, weights, CONTEXT)
        weights.refuse_unused_tensors()
        return decoder


def sizes_of(
    file: GGUFFile, backend: str, storage: Storage
) -> tuple[Placement, dict[tuple[str, str], Storage], ExpertBytes | None]:
    """Where the weights are, how each format is stored, and the sizes of the experts."""
    prefix = file.metadata["general.architecture"]
    placement = Placement.on(backends.choose(backend), int(file.metadata[f"{prefix}.block_count"]))
    kept = {(backend, info.format.name): storage for info in file.tensors.values()}
    used = int(file.metadata.get(f"{prefix}.expert_used_count", 0))
    return placement, kept, expert_bytes(file, placement, kept, used) if used else None


def experts_of(path: Path, backend: str = NAMES[0]) -> ExpertBytes:
    with GGUFFile.open(path) as file:
        sizes = sizes_of(file, backend, STORAGE[backend])[2]
    assert sizes is not None
    return sizes


def over(decoder: Decoder) -> Session:
    return session_over(decoder, CONTEXT, CacheType.F32)


def read_bytes(session: Session) -> int:
    streamer = session.runner.model.streamer
    assert isinstance(streamer, LayerStreamer | ExpertStreamer)
    return streamer.read_bytes


def threads_of_streamers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("layers ")]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer and expert in many pieces, whose rows are no whole blocks of the disk."""
    monkeypatch.setattr(slot_reader, "PIECE_BYTES", 1_000)


def written(name: str, folder: Path) -> Path:
    return every_architecture.write(name, folder / "m.gguf", context=CONTEXT, window=16)


def tiny_of(folder: Path, format: str = "Q4_0") -> Path:
    return tiny.write(folder / "m.gguf", format=format, layers=LAYERS)


# --- what both streamers do --------------------------------------------------------------------

Open = Callable[[], Session]


@pytest.fixture(params=["layers", "two experts", "half of the experts"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model whose weights are offloaded by `open_offloaded`."""
    return tiny_of(tmp_path) if request.param == "layers" else written(ONE, tmp_path)


@pytest.fixture
def open_offloaded(request: pytest.FixtureRequest, model: Path) -> Open:
    match request.node.callspec.params["model"]:
        case "layers":
            return lambda: over(opened(model, layers=range(LAYERS)))
        case "two experts":
            return lambda: over(opened(model, slots=2))
        case _:
            return lambda: over(opened(model, slots=6))


def test_a_changed_file_is_named_and_the_streamer_goes_on(
    model: Path, open_offloaded: Open
) -> None:
    session = open_offloaded()
    wanted = read(session)
    status = model.stat()
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    session.rewind(0)
    with pytest.raises(ModelFileError, match=r"m\.gguf has changed since the model was loaded"):
        read(session)
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    session.rewind(0)
    assert torch.equal(read(session), wanted)


def test_a_file_cut_short_is_an_error_in_one_sentence(model: Path, open_offloaded: Open) -> None:
    session = open_offloaded()
    os.truncate(model, model.stat().st_size // 8)
    with pytest.raises(ModelFileError) as caught:
        read(session)
    error = caught.value.with_traceback(None)  # which would keep the model
    del caught
    assert str(error).count(".") == 2  # the file's name has one
    assert error.remedy


def test_an_error_of_an_earlier_pass_is_not_raised_again(
    open_offloaded: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while other pieces of that layer or expert are still being read."""
    session = open_offloaded()
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


@pytest.mark.usefixtures("small_pieces")
def test_a_pass_is_cancelled_while_it_waits(
    open_offloaded: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_offloaded()
    wanted = read(session)
    session.rewind(0)
    right = slot_reader.DirectFile.read

    cancelled = threading.Event()

    def slow(*operands: object) -> object:
        assert cancelled.wait(5), "the pass does not look whether it is cancelled"
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
    cancelled.set()
    assert session.tokens == []
    monkeypatch.setattr(slot_reader.DirectFile, "read", right)
    assert torch.equal(read(session), wanted)


def test_threads_end_and_files_are_closed_with_the_model(model: Path, open_offloaded: Open) -> None:
    gc.collect()
    assert threads_of_streamers() == []
    session = open_offloaded()
    read(session)
    assert len(threads_of_streamers()) == slot_reader.WORKERS
    del session
    gc.collect()
    assert threads_of_streamers() == []
    if sys.platform == "linux":
        assert model not in [link.resolve() for link in Path("/proc/self/fd").iterdir()]


def test_two_programs_share_one_streamer(model: Path, open_offloaded: Open) -> None:
    """As an answer and an embedding do, pass by pass."""
    wanted = read(over(opened(model)), steps=0)
    decoder = open_offloaded().runner.model
    first, second = over(decoder), over(decoder.of_layers(range(len(decoder.blocks))))
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])
    for piece in (TOKENS[:25], TOKENS[25:]):
        for session, found in zip((first, second), rows, strict=True):
            found += [session.logits(hidden) for hidden in session.prefill(piece)]
    assert torch.equal(torch.cat(rows[0]), wanted)
    assert torch.equal(torch.cat(rows[1]), wanted)


# --- layers -------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(("format", "backend", "storage"), STORED)
@pytest.mark.usefixtures("small_pieces")
def test_offloaded_layers_change_no_bit(
    format: str, backend: str, storage: Storage, tmp_path: Path
) -> None:
    path = tiny_of(tmp_path, format)
    wanted = read(over(opened(path, backend, storage)))
    for layers in (range(LAYERS), (0, 2, 3, 6), (1, 3, 5)):
        session = over(opened(path, backend, storage, layers=layers))
        assert torch.equal(read(session), wanted)
        streamer = session.runner.model.streamer
        assert isinstance(streamer, LayerStreamer)
        assert streamer.read_bytes > 3 * streamer.bytes_per_pass


@pytest.mark.sweep
@pytest.mark.parametrize("name", every_architecture.names())
def test_every_architecture_is_offloaded(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    decoder = opened(path)
    offloaded = opened(path, layers=range(len(decoder.blocks)))
    assert torch.equal(read(over(offloaded)), read(over(decoder)))


def test_adapters_apply_to_offloaded_layers(tmp_path: Path) -> None:
    path = tiny_of(tmp_path)
    plain, offloaded = over(opened(path)), over(opened(path, layers=range(LAYERS)))
    file = tiny_lora.write(tmp_path / "lora.gguf", path, seed=3, targets=tiny_lora.EVERY)
    stack = Stack([(load_adapter(file, plain.runner.model.base), 0.7)])
    before = read(plain)
    for session in (plain, offloaded):
        session.rewind(0)
        session.set_stack(stack)
    found = read(offloaded)
    assert torch.equal(found, read(plain))
    assert not torch.equal(found, before)


# --- experts ------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "backend"), [*((name, NAMES[0]) for name in MIXTURES), (ONE, NAMES[-1])]
)
@pytest.mark.usefixtures("small_pieces")
def test_offloaded_experts_change_no_bit(name: str, backend: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    wanted = read(over(opened(path, backend)))
    assert torch.isfinite(wanted).all()
    sizes = experts_of(path, backend)
    for slots in (1, sizes.chosen, sizes.count // 2, sizes.count):
        session = over(opened(path, backend, slots=slots))
        assert torch.equal(read(session), wanted)
        assert read_bytes(session) > 0


@pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")
def test_native_programs_run_with_offloaded_experts(tmp_path: Path) -> None:
    session = over(opened(written(ONE, tmp_path), "cpu", slots=2))
    read(session)
    assert not any(isinstance(one, Interpreter) for one in session.runner._recorded.values())


def test_only_experts_that_are_not_in_memory_are_read(tmp_path: Path) -> None:
    path = written(ONE, tmp_path)
    sizes = experts_of(path)
    session = over(opened(path, slots=sizes.count))
    wanted = read(session)
    assert 0 < read_bytes(session) <= sizes.stored
    before = read_bytes(session)
    session.rewind(0)
    assert torch.equal(read(session), wanted)
    assert read_bytes(session) == before
    # A token reads at most the experts it uses.
    few = over(opened(path, slots=sizes.chosen))
    read(few, steps=0)
    before = read_bytes(few)
    few.step(5)
    assert 0 < read_bytes(few) - before <= sizes.token


def test_the_least_recently_used_expert_goes(tmp_path: Path) -> None:
    streamer = opened(written(ONE, tmp_path), slots=3).streamer
    assert isinstance(streamer, ExpertStreamer)

    def reads(*experts: int, layer: int = 0) -> bool:
        """Whether anything was read for these experts."""
        before = streamer.read_bytes
        groups = [list(group) for group in streamer.read(layer, experts, lambda: None)]
        assert [number for group in groups for number in group] == list(experts)
        return streamer.read_bytes > before

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

    sizes = experts_of(path)
    ExpertStreamer([path], sizes.layers, sizes.slot, 5, memory)
    assert asked == [5 * sizes.slot]
