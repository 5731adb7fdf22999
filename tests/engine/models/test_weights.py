"""Reading tensors: what it holds of the file meanwhile, how often it looks around, where it stops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter

from engine import Cancelled
from engine.gguf.reader import GGUFFile
from engine.models.weights import Weights
from kernels import ops

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
    """Without helpers, which may have read the rest before this thread looks again."""
    before = torch.get_num_threads()
    ops.set_threads(1)
    yield
    ops.set_threads(before)


def mapped() -> int:
    """Bytes of files this process has in its memory."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssFile:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is mapped")
def test_of_a_large_tensor_only_a_part_is_mapped_at_once(path: Path) -> None:
    with GGUFFile.open(path) as file:
        before, most = mapped(), [0]

        def look() -> None:
            most[0] = max(most[0], mapped())

        weight = Weights(file, checkpoint=look).matrix("large.weight", ROWS, COLUMNS)
        assert most[0] - before < 20 * MB
        assert mapped() - before < 4 * MB
    assert weight.shape == (ROWS, COLUMNS)


def test_a_large_tensor_is_given_up_between_its_pieces(path: Path, one_thread: None) -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 4:
            raise Cancelled

    with GGUFFile.open(path) as file, pytest.raises(Cancelled):
        Weights(file, checkpoint=look).matrix("large.weight", ROWS, COLUMNS)
    assert len(looks) == 4


def test_progress_ends_at_the_size_of_all_tensors(path: Path) -> None:
    told: list[tuple[int, int]] = []
    with GGUFFile.open(path) as file:
        weights = Weights(file, lambda done, total: told.append((done, total)))
        weights.matrix("large.weight", ROWS, COLUMNS)
        weights.refuse_leftovers()
    assert told[-1] == (ROWS * COLUMNS * 2,) * 2
