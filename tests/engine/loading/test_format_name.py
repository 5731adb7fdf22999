"""Names of weight formats: the mix a file states, else the format of its matrices."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from engine import inspect_model


@pytest.mark.parametrize(
    ("format", "stated", "name"),
    [
        ("Q4_K", 15, "Q4_K_M"),
        ("Q4_K", 14, "Q4_K_S"),
        ("Q6_K", 18, "Q6_K"),
        ("Q8_0", None, "Q8_0"),
        ("Q8_0", 15, "Q8_0"),  # no matrix of it is in a 4-bit format
        ("Q1_0", 1, "Q1_0"),  # converters state F16 for formats they do not know
        ("Q4_1", "Q4_K_M", "Q4_1"),  # of a wrong type
        ("Q4_1", 9999, "Q4_1"),
    ],
)
def test_name_of_the_format(
    tmp_path: Path, format: str, stated: int | str | None, name: str
) -> None:
    path = tmp_path / "m.gguf"
    tiny.write(path, format=format, metadata={"general.file_type": stated})
    assert inspect_model(path).format == name
