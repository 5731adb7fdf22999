"""Pooling of a model file: the numbers of its key."""

from pathlib import Path

import pytest

import tiny
from engine.gguf.reader import GGUFFile
from engine.loading.pooling import named_pooling, pooling_of
from engine.messages import Pooling


@pytest.mark.parametrize(
    ("number", "name", "pooling"),
    [
        (0, "", Pooling.CLS),
        (1, "mean", Pooling.MEAN),
        (2, "cls", Pooling.CLS),
        (3, "last", Pooling.LAST),
        (4, "rank", Pooling.CLS),
    ],
)
def test_each_number_is_named(number: int, name: str, pooling: Pooling, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf", metadata={"llama.pooling_type": number})
    with GGUFFile.open(path) as file:
        assert named_pooling(file) == name
        assert pooling_of(file, Pooling.CLS) is pooling
