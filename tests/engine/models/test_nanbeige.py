"""nanbeige: layers that run several times, on several backends, offloaded, and in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import architecture_files as files
import family_files
from engine import CacheType, ModelFileError
from engine.core.session import Session
from engine.gguf.reader import GGUFFile
from engine.loading.placement import plan
from engine.loading.preflight import identify, outline
from engine.models import architecture
from engine.models.layer_streamer import LayerStreamer
from engine.models.weights import Weights
from kernels import backends
from kernels.backend.placement import Placement
from kernels.backends import BACKENDS
from kernels.states.kv_pages import KVLayout
from sessions import open_session, session_over

LAYERS, LOOPS, WIDTH = 3, 2, 32
TOKENS = [(37 * at + 11) % family_files.VOCABULARY for at in range(40)]
NATIVE = BACKENDS.get("cpu", BACKENDS["reference"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "m.gguf", num_loops=LOOPS)


def write(path: Path, **keys: bool | int) -> Path:
    layer = family_files.attention(WIDTH, heads=2) | family_files.gated_mlp(WIDTH)
    usual = {"attention.head_count": 2, "attention.head_count_kv": 1}
    return family_files.write(path, "nanbeige", layer, usual | keys, layers=LAYERS, width=WIDTH)


def session(path: Path, placement: Placement, offloaded: tuple[int, ...] = ()) -> Session:
    with GGUFFile.open(path) as file:
        streamer = (
            LayerStreamer(file.paths, offloaded, 1 << 20, NATIVE.memory) if offloaded else None
        )
        weights = Weights(file, placement=placement, streamer=streamer)
        decoder = architecture(file)(file, weights, 256)
        weights.refuse_unused_tensors()
        return session_over(decoder)


def read(one: Session) -> Tensor:
    return torch.from_numpy(files.run(one, TOKENS, (25, 10, 1, 1, 1, 1, 1)))


def test_every_time_has_keys_and_values_of_its_own(path: Path) -> None:
    decoder = open_session(path).runner.model
    assert len(decoder.blocks) == LAYERS * LOOPS
    assert len(decoder.layer_states) == LAYERS * LOOPS
    first, again = decoder.blocks[0], decoder.blocks[LAYERS]
    assert again.projections[0].weight is first.projections[0].weight
    between = [at for at, block in enumerate(decoder.blocks) if block.mlp_sum_norm is not None]
    assert between == [LAYERS - 1]


def test_the_norm_between_two_times_can_be_left_out(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "s.gguf", num_loops=LOOPS, skip_loop_final_norm=True)
    decoder = open_session(other).runner.model
    assert all(block.mlp_sum_norm is None for block in decoder.blocks)
    assert not torch.equal(read(open_session(other)), read(open_session(path)))


def test_once_is_a_llama_model(tmp_path: Path) -> None:
    """The weights depend on the names of the tensors alone."""
    llama = write(tmp_path / "m.gguf")
    skeleton = files.read_skeleton(llama)
    metadata = {
        key.replace("nanbeige.", "llama."): ("STRING", "llama")
        if value == "nanbeige"
        else (kind, value)
        for key, (kind, value) in skeleton.metadata.items()
    }
    other = files.write(
        files.Skeleton("llama", metadata, skeleton.tensors), tmp_path / "llama.gguf"
    )
    assert torch.equal(read(open_session(other)), read(open_session(llama)))


def test_a_split_model_answers_as_on_one_backend(path: Path) -> None:
    reference = BACKENDS["reference"]
    wanted = read(session(path, Placement.on(reference, LAYERS)))
    split = Placement.split([(reference, 2), (NATIVE, 1)])
    one = session(path, split)
    assert one.runner.model.placement.layers == split.layers * LOOPS
    torch.testing.assert_close(read(one), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offloaded", [(0, 1, 2), (1,), (0, 2)])
def test_offloaded_layers_change_no_bit(path: Path, offloaded: tuple[int, ...]) -> None:
    whole = Placement.on(NATIVE, LAYERS)
    one = session(path, whole, offloaded)
    assert (
        one.runner.model.offloaded
        == tuple(n if n in offloaded else -1 for n in range(LAYERS)) * LOOPS
    )
    assert torch.equal(read(one), read(session(path, whole)))


def test_the_plan_counts_the_keys_and_values_of_every_time(path: Path, tmp_path: Path) -> None:
    once = write(tmp_path / "once.gguf")
    sizes: list[int] = []
    for each in (once, path):
        with GGUFFile.open(each) as file:
            build, config = identify(file)
            placement = Placement.on(backends.choose(), config.layers)
            found, _ = plan(file, config, placement, 256, CacheType.F32)
            layout = KVLayout(outline(file, config, build).layer_states, torch.float32)
            assert found.cache_bytes == layout.kv_bytes_per_page
            sizes.append(found.cache_bytes)
    assert sizes[1] == LOOPS * sizes[0]


def test_the_plan_counts_what_is_read_every_time(tmp_path: Path) -> None:
    width, layers = 512, 6
    layer = family_files.attention(width) | family_files.gated_mlp(width)
    keys = {"num_loops": LOOPS}
    path = family_files.write(
        tmp_path / "m.gguf", "nanbeige", layer, keys, layers=layers, width=width
    )
    with GGUFFile.open(path) as file:
        _, config = identify(file)
        placement = Placement.on(backends.choose(), layers)
        whole, _ = plan(file, config, placement, 256, CacheType.F32)
        limit = whole.total_bytes - 12_000_000
        offloading = plan(file, config, placement, 256, CacheType.F32, limit=limit)[0].offloading
        matrices = sum(
            info.size_bytes
            for info in file.tensors.values()
            if info.name.startswith("blk.0.") and len(info.shape) > 1
        )
    assert offloading is not None
    assert offloading.token_bytes == LOOPS * len(offloading.layers) * matrices


def test_a_model_that_never_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"'nanbeige\.num_loops'"):
        open_session(write(tmp_path / "m.gguf", num_loops=0))
