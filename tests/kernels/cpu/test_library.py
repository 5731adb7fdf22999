"""Loading the native library: what cannot be loaded gives a reason, and nothing is left half done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chosen_backend import ops
from kernels.cpu import build, library, schema

REPOSITORY = Path(__file__).parents[3]
needs_library = pytest.mark.skipif(not library.available(), reason=library.reason())


def python(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, where the library is looked for anew."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KERNELS")}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={**own, "PYTHONUTF8": "1", **settings},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_library_that_is_missing_or_damaged_gives_the_reason(tmp_path: Path) -> None:
    before = library.available(), library.instruction_set()
    damaged = tmp_path / "nk.so"
    damaged.write_bytes(b"no library at all")
    assert "is not there" in library.load(None)
    assert "does not load" in library.load(damaged)
    assert (library.available(), library.instruction_set()) == before


def test_a_library_of_another_version_is_not_used(tmp_path: Path) -> None:
    try:
        compiler = build.find_compiler()
    except build.NoCompiler as error:
        pytest.skip(str(error))
    (tmp_path / "native").mkdir()
    stubs = "".join(
        f'extern "C" __attribute__((visibility("default"))) int nk_{declared.name}() {{ return 999; }}\n'
        for declared in schema.FUNCTIONS
    )
    (tmp_path / "native" / "nk.cpp").write_text(stubs, encoding="utf-8")
    other = build.build_library(compiler, tmp_path / "lib", native=tmp_path / "native")
    assert "of another version" in library.load(other)


@needs_library
def test_the_environment_chooses_the_instruction_set() -> None:
    code = (
        "from kernels import backends as b; print(b.choose().in_use(['Q4_0'])['linear Q4_0'],"
        " b.instruction_set_refusal())"
    )
    ran = python(code, KERNELS_ISA="scalar")
    assert (ran.stdout, ran.stderr) == ("cpu scalar \n", "")


@needs_library
def test_an_instruction_set_nobody_has_is_named_in_one_sentence() -> None:
    ran = python("from kernels import backends; print(list(backends.BACKENDS))", KERNELS_ISA="mmx")
    assert ran.stdout == "['reference']\n"
    there = ", ".join(library.instruction_sets())
    assert f"KERNELS_ISA is 'mmx'; this processor runs: {there}." in ran.stderr
    assert "Traceback" not in ran.stderr
    with pytest.raises(ValueError, match="There is no instruction set 'mmx' here"):
        library.use("mmx")


@needs_library
def test_the_reference_that_is_asked_for_is_nothing_to_warn_of() -> None:
    code = "from kernels import backends as b; print(set(b.choose().in_use(['Q4_0']).values()))"
    ran = python(code, KERNELS="reference", KERNELS_ISA="mmx")
    assert (ran.stdout, ran.stderr) == ("{'reference'}\n", "")


@needs_library
def test_operands_that_native_code_would_misread_are_refused() -> None:
    for wrong in (torch.ones(4, 6).T, torch.ones(4, dtype=torch.float64), torch.ones(8)[::2]):
        with pytest.raises(ValueError, match=r"takes contiguous torch\.float32 on the CPU"):
            library.pointer(wrong)


@needs_library
def test_statuses_become_exceptions_that_name_the_function() -> None:
    with pytest.raises(ValueError, match="nk_pack: there is no packed layout"):
        library.call("pack", 9, None, 1, 32, 0, 1, None)
    with pytest.raises(ValueError, match="nk_pack: this size is not supported"):
        library.call("pack", 2, None, 1, 31, 0, 1, None)
    with pytest.raises(RuntimeError, match="nk_set_threads: the system refused a thread"):
        library.call("set_threads", -1)


@needs_library
def test_threads_are_set_for_all_kernels() -> None:
    before, torchs = library.threads(), torch.get_num_threads()
    try:
        ops.set_threads(3)
        assert (library.threads(), torch.get_num_threads()) == (3, 3)
    finally:
        library.set_threads(before)
        torch.set_num_threads(torchs)
