"""Loading tensors: mapped memory, cancellation between chunks, progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter

from chosen_backend import ops
from engine import Cancelled
from engine.gguf.reader import GGUFFile
from engine.models.weights import Weights

MB = 1_000_000
ROWS, COLUMNS = 32_768, 1_024  # 64 MB as F16


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "large.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("large.weight", np.ones((ROWS, COLUMNS), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One kernel thread: others might finish the tensor before the next cancellation check."""
    before = torch.get_num_threads()
    ops.set_threads(1)
    yield
    ops.set_threads(before)


def mapped() -> int:
    """Resident bytes of mapped files (RssFile) of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("RssFile:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_only_a_part_of_a_large_tensor_is_mapped_at_once(path: Path) -> None:
    with GGUFFile.open(path) as file:
        before, peak = mapped(), [0]

        def checkpoint() -> None:
            peak[0] = max(peak[0], mapped())

        weight = Weights(file, checkpoint=checkpoint).matrix("large.weight", ROWS, COLUMNS)
        assert peak[0] - before < 20 * MB
        assert mapped() - before < 4 * MB
    assert weight.shape == (ROWS, COLUMNS)


def test_loading_a_large_tensor_can_be_cancelled_between_chunks(
    path: Path, one_thread: None
) -> None:
    calls: list[int] = []

    def checkpoint() -> None:
        calls.append(len(calls))
        if len(calls) == 4:
            raise Cancelled

    with GGUFFile.open(path) as file, pytest.raises(Cancelled):
        Weights(file, checkpoint=checkpoint).matrix("large.weight", ROWS, COLUMNS)
    assert len(calls) == 4


def test_progress_ends_at_the_size_of_all_tensors(path: Path) -> None:
    reported: list[tuple[int, int]] = []
    with GGUFFile.open(path) as file:
        weights = Weights(file, lambda done, total: reported.append((done, total)))
        weights.matrix("large.weight", ROWS, COLUMNS)
        weights.refuse_unused_tensors()
    assert reported[-1] == (ROWS * COLUMNS * 2,) * 2


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_a_vector_may_state_that_it_is_one_row(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Converters write the gate of a shared expert so, and the biases of ERNIE's routers."""
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("one.weight", np.arange(4, dtype=np.float32).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        weights = Weights(file)
        assert weights.vector("one.weight", 4).tolist() == [0, 1, 2, 3]
        assert weights.row("one.weight", 4).dense().flatten().tolist() == [0, 1, 2, 3]
