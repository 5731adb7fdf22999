"""The name "metal", and why it is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels import backends, metal
from kernels.backend.backend import HOST
from kernels.gpu.layout import FORMATS
from kernels.gpu.ops import has_kernel
from kernels.metal import compile, products


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No backend is kept from an earlier test, nor for a later one."""
    metal.metal_backend.cache_clear()
    yield
    metal.metal_backend.cache_clear()


def test_the_name_is_known() -> None:
    assert "metal" in backends.NAMES


def test_a_build_of_torch_without_metal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_built", lambda: False)
    with pytest.raises(
        ValueError, match=r"cannot be used: This build of torch has no Metal; .*\.$"
    ):
        backends.choose("metal")


def test_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(ValueError, match="finds no GPU of Apple"):
        backends.choose("metal:0")


def test_other_numbers_are_refused() -> None:
    assert metal.refused() is metal.refused("0") is None
    for wrong in ("1", "-1", "one"):
        found = metal.refused(wrong)
        assert found is not None
        assert found.text == f"There is no GPU {wrong}; the computer has 1."


def test_a_first_kernel_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metal.failure(HOST) == ""
    with monkeypatch.context() as patch:
        patch.setattr(products, "decode_rows", lambda weight, first, out: out.zero_())
        assert metal.failure(HOST) == "Its first kernel gives wrong numbers."

    def refused(source: str) -> None:
        raise SyntaxError("program_source:1:1: error: unknown type\n  1 | wrong")

    compile.library.cache_clear()
    monkeypatch.setattr("torch.mps.compile_shader", refused)
    wanted = "Its first kernel fails: program_source:1:1: error: unknown type."
    assert metal.failure(HOST) == wanted
    compile.library.cache_clear()


def test_a_gpu_whose_first_kernel_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.metal.failure", lambda place: f"Wrong on {place}.")
    with pytest.raises(ValueError, match="The GPU cannot be used: Wrong on mps"):
        backends.choose("metal")


def test_what_has_kernels() -> None:
    assert all(has_kernel(op, name) for op in ("linear", "embed") for name in FORMATS)
    assert has_kernel("attention", "F32")
    assert not has_kernel("linear", "IQ2_XS")
    assert not has_kernel("route", "F32")


def test_a_text_is_compiled_once() -> None:
    settings = ("W0", "Format<1, 8, 0, 1, 1, 0, 1, 0, 0>")
    assert compile.library("embed", settings) is compile.library("embed", settings)


def test_files_are_included_where_they_are_named() -> None:
    text = compile.source("products")
    assert '#include "' not in text
    assert text.count("struct Matrix") == 1
