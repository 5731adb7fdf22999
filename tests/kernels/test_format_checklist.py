"""A checklist of weight formats: a format that files are made in has kernels in every backend.

That each has a second decoder and, where llama.cpp has it, recorded answers is checked by
test_formats.py and tests/engine/cli/test_quantize.py.
"""

from __future__ import annotations

import pytest

from kernels import cpu
from kernels.cpu import library
from kernels.gpu import layout
from kernels.weights.formats import FORMATS, Format

WITHOUT_KERNELS = {"NVFP4"}  # rare in files: its products run on the reference
QUANTIZED = [row for row in FORMATS.values() if row.quantize]

every_format = pytest.mark.parametrize("format", QUANTIZED, ids=lambda row: row.name)


@pytest.mark.skipif(not library.available(), reason=library.reason())
@every_format
def test_a_format_that_files_are_made_in_has_native_kernels(format: Format) -> None:
    assert (format.name in cpu.FORMATS) == (format.name not in WITHOUT_KERNELS)


@every_format
def test_a_format_that_files_are_made_in_has_kernels_for_gpus(format: Format) -> None:
    assert (format.name in layout.FORMATS) == (format.name not in WITHOUT_KERNELS)


def test_no_kernels_are_of_a_format_that_is_not_tested() -> None:
    assert {*cpu.FORMATS, *layout.FORMATS} <= {row.name for row in QUANTIZED}
