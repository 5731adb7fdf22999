"""Instruction sets: exactly those that the system says this processor has, and any can be forced."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
import torch

from kernels.backend import reference
from kernels.cpu import library, ops

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())

CPUINFO = Path("/proc/cpuinfo")
# Linux' own words for all that a set is compiled with, best set first.
NEEDED = {
    "zen4": "avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512_vnni",
    "avx512": "avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512_vnni",
    "avxvnni": "avx2 fma f16c avx_vnni",
    "avx2": "avx2 fma f16c",
    "i8mm": "fphp asimdhp asimddp i8mm",
    "neon": "fphp asimdhp asimddp",
    "scalar": "",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists what a processor has")
def test_a_set_is_offered_when_the_processor_has_all_of_it() -> None:
    told = dict[str, str]()
    for line in CPUINFO.read_text(encoding="utf-8").splitlines():
        name, _, words = line.partition(":")
        told.setdefault(name.strip(), words)
    if platform.machine() == "aarch64" and "flags" in told:
        pytest.skip("the emulator shows the processor of the machine that it runs on")
    here = set((told.get("flags") or told["Features"]).split())
    expected = [name for name, words in NEEDED.items() if here.issuperset(words.split())]
    kind = told.get("vendor_id", "").strip(), told.get("cpu family", "").strip()
    if "zen4" in expected and kind not in (("AuthenticAMD", "25"), ("AuthenticAMD", "26")):
        expected[:2] = ["avx512", "zen4"]  # runs there too, but is slower
    assert library.instruction_sets() == tuple(expected)


def test_every_set_can_be_forced_and_computes() -> None:
    x, weight = torch.linspace(-3, 3, 5 * 77).view(5, 77), torch.linspace(0.5, 2, 77)
    expected = reference.rms_norm(x, weight, 1e-6)
    before = library.instruction_set()
    try:
        for name in library.instruction_sets():
            library.use(name)
            assert library.instruction_set() == name
            torch.testing.assert_close(ops.rms_norm(x, weight, 1e-6), expected)
    finally:
        library.use(before)


def test_the_scalar_set_is_always_there_and_last() -> None:
    assert library.instruction_sets()[-1] == "scalar"


def test_a_set_this_processor_lacks_is_refused_by_number_and_by_name() -> None:
    native = library.native()
    for index in (-1, len(library.instruction_sets()), 1000):
        assert native.nk_isa_name(index) is None
        with pytest.raises(ValueError, match="cannot run that instruction set"):
            library.call("use_isa", index)
    with pytest.raises(ValueError, match="no instruction set 'altivec'"):
        library.use("altivec")
