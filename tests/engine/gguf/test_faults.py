"""Codes of faulty files: what the window tells the user depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from engine import FaultKind, FileLook, inspect_model
from engine.errors import Fault


def fault_of(path: Path, content: bytes | None = None) -> Fault | None:
    """The fault of a file; `content` is written to it first."""
    if content is not None:
        path.write_bytes(content)
    return inspect_model(path).fault


@pytest.mark.parametrize(
    ("content", "look"),
    [
        (b"", FileLook.EMPTY),
        (bytes(100), FileLook.ZEROS),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", FileLook.JPEG),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", FileLook.PNG),
        (b"%PDF-1.7\n", FileLook.PDF),
        (b"Dear reader,\nthis is a letter.\n", FileLook.TEXT),
        (("Köln" + "ß" * 40).encode(), FileLook.TEXT),  # its 64th byte is half a character
        (b"\xfe\x01\x02\x03 and more", FileLook.UNKNOWN),
    ],
)
def test_a_file_that_is_not_gguf_is_told_by_its_first_bytes(
    tmp_path: Path, content: bytes, look: FileLook
) -> None:
    assert fault_of(tmp_path / "m.gguf", content) == Fault(FaultKind.NOT_A_MODEL, look)


def test_a_truncated_model_is_incomplete_wherever_it_ends(tmp_path: Path) -> None:
    whole = tiny.write(tmp_path / "whole.gguf").read_bytes()
    for share in (0.001, 0.1, 0.5, 0.9, 0.999):
        found = fault_of(tmp_path / "half.gguf", whole[: max(int(len(whole) * share), 24)])
        assert found == Fault(FaultKind.INCOMPLETE), share


def test_an_absurd_count_is_damage(tmp_path: Path) -> None:
    whole = bytearray(tiny.write(tmp_path / "whole.gguf").read_bytes())
    whole[16:24] = b"\xff" * 8  # the number of keys
    assert fault_of(tmp_path / "damaged.gguf", bytes(whole)) == Fault(FaultKind.DAMAGED)


def test_unsupported_architectures_and_formats_are_named(tmp_path: Path) -> None:
    whole = tiny.write(tmp_path / "whole.gguf")
    other = tiny.rewrite(whole, tmp_path / "other.gguf", {"general.architecture": "mamba"})
    found = fault_of(other)
    assert found is not None
    assert found == Fault(FaultKind.ARCHITECTURE, "mamba", nearest=found.nearest)
    content = bytearray(whole.read_bytes())
    name = b"blk.0.ffn_down.weight"
    number = content.index(name) + len(name) + 4 + 2 * 8  # after the dimensions
    content[number : number + 4] = (31).to_bytes(4, "little")
    found = fault_of(tmp_path / "format.gguf", bytes(content))
    assert found == Fault(FaultKind.FORMAT, "Q4_0_4_4")


def test_other_kinds_of_gguf_files_are_told_apart(tmp_path: Path) -> None:
    whole = tiny.write(tmp_path / "whole.gguf")
    adapter = tiny.rewrite(whole, tmp_path / "adapter.gguf", {"general.type": "adapter"})
    assert fault_of(adapter) == Fault(FaultKind.OTHER_TYPE, "adapter")


def test_missing_and_special_files(tmp_path: Path) -> None:
    assert fault_of(tmp_path / "none.gguf") == Fault(FaultKind.NO_FILE)
    assert fault_of(tmp_path) == Fault(FaultKind.NOT_A_FILE)


def test_a_context_that_does_not_fit_names_the_one_that_does(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "whole.gguf")
    found = inspect_model(path, 1_000_000_000).fault
    assert found is not None
    assert found.kind is FaultKind.CONTEXT
    assert found.needed_bytes > found.available_bytes
    assert 0 < found.most_context < found.context == 1_000_000_000
