"""Building the native library: only from these sources, whole or not at all, and nothing to spare."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import blocks
from kernels.cpu import build, library, schema
from kernels.weights.formats import Format

REPOSITORY = Path(__file__).parents[3]
SCRIPT = REPOSITORY / "kernels" / "cpu" / "build.py"
SMALL = {
    "isa/isa_avx512.cpp": 'extern "C" int nk_one(void) { return 1; }\n',
    "isa/isa_neon.cpp": 'extern "C" int nk_one(void) { return 2; }\n',
    "isa/isa_scalar.cpp": '#include "part.h"\nextern "C" int nk_two(void) { return PART; }\n',
    "part.h": "#define PART 5\n",
    "nk.cpp": (
        'extern "C" __attribute__((visibility("default"))) int nk_abi(void) { return 1; }\n'
    ),
}


@pytest.fixture(scope="module")
def compiler() -> build.Compiler:
    try:
        return build.find_compiler()
    except build.NoCompiler as error:
        # Windows' library is made elsewhere, so none needs a compiler there.
        if "cpu" in os.environ.get("KERNELS_REQUIRED", "").split() and sys.platform != "win32":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A folder of sources that is built in a moment."""
    folder = tmp_path / "native"
    (folder / "isa").mkdir(parents=True)
    for name, text in SMALL.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def built(compiler: build.Compiler, native: Path) -> Path:
    return build.build_library(compiler, native.parent / "lib", native=native)


# --- this machine's library


def test_a_lane_that_names_the_native_kernels_has_them() -> None:
    if "cpu" in os.environ.get("KERNELS_REQUIRED", "").split():
        assert library.available(), library.reason()


@pytest.mark.skipif(not library.available(), reason=library.reason())
def test_every_instruction_set_has_a_row_in_the_table_of_flags() -> None:
    assert set(library.instruction_sets()) <= set(build.INSTRUCTION_SETS)
    assert library.instruction_sets()[-1] == "scalar"  # runs everywhere
    assert library.instruction_set() in library.instruction_sets()


@pytest.mark.skipif(not library.available(), reason=library.reason())
def test_the_library_packs_no_formats_but_those_of_the_table() -> None:
    packed = {id for id in range(-1, 2_000) if library.native().nk_group_rows(id) > 0}
    assert packed == set(blocks.PACKED)


@pytest.mark.skipif(not library.available(), reason=library.reason())
@pytest.mark.parametrize("format", blocks.PACKED.values(), ids=lambda row: row.name)
def test_native_blocks_hold_as_many_weights_as_the_tables(format: Format) -> None:
    fits = [
        columns
        for columns in range(1, 257)
        if library.native().nk_packed_bytes(format.id, 1, columns) > 0
    ]
    assert fits == list(range(format.block, 257, format.block))


@pytest.mark.skipif(sys.platform != "linux", reason="reads an ELF file")
@pytest.mark.skipif(not library.available(), reason=library.reason())
def test_the_library_needs_nothing_but_the_systems_own_c() -> None:
    path = build.current()
    assert path is not None
    said = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED\s+(\S+?)\.so", said.stdout))
    assert needed <= {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True)
    if listed.returncode == 0:
        exported = {line.split()[-1] for line in listed.stdout.splitlines()}
        assert exported == {f"nk_{declared.name}" for declared in schema.FUNCTIONS}


# --- names and files


def test_a_library_is_built_once_and_found_by_its_sources(
    compiler: build.Compiler, native: Path
) -> None:
    lib = native.parent / "lib"
    assert build.current(lib, native) is None
    path = built(compiler, native)
    assert [path] == list(lib.iterdir())
    before = path.stat().st_mtime_ns
    assert built(compiler, native) == path == build.current(lib, native)
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("changed", ["part.h", "isa/isa_scalar.cpp", "another.inc"])
def test_a_library_of_older_sources_is_not_loaded_and_goes(
    compiler: build.Compiler, native: Path, changed: str
) -> None:
    old = built(compiler, native)
    with (native / changed).open("a") as file:
        file.write("// more\n")
    assert build.current(old.parent, native) is None
    new = built(compiler, native)
    assert list(old.parent.iterdir()) == [new]


def test_a_bundle_has_no_sources_and_loads_the_only_library(
    compiler: build.Compiler, native: Path
) -> None:
    path = built(compiler, native)
    nowhere = native.with_name("gone")
    assert build.current(path.parent, nowhere) == path
    path.with_name(f"nk-1-2{path.suffix}").touch()
    assert build.current(path.parent, nowhere) is None  # which of two is not to be guessed


def test_what_does_not_compile_leaves_no_library(compiler: build.Compiler, native: Path) -> None:
    (native / "nk.cpp").write_text("int broken(void) { return }\n", encoding="utf-8")
    with pytest.raises(build.BuildError, match=r"(?s)error.*could not compile nk\.cpp, as above"):
        built(compiler, native)
    assert list((native.parent / "lib").iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="its linker has no such option")
def test_what_a_source_lacks_is_found_when_it_is_linked(
    compiler: build.Compiler, native: Path
) -> None:
    with (native / "nk.cpp").open("a") as file:
        file.write(
            'extern "C" int nowhere(void);\n'
            'extern "C" __attribute__((visibility("default"))) int nk_x() { return nowhere(); }\n'
        )
    with pytest.raises(build.BuildError, match="could not link"):
        built(compiler, native)


def test_builds_at_the_same_time_do_not_clash(compiler: build.Compiler, native: Path) -> None:
    made: list[Path] = []
    threads = [
        threading.Thread(target=lambda: made.append(built(compiler, native))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    assert set(made) == set((native.parent / "lib").iterdir())


# --- compilers


def test_a_compiler_that_is_named_is_the_only_one_tried() -> None:
    with pytest.raises(build.NoCompiler, match=r"'no-such-compiler' does not run"):
        build.find_compiler("no-such-compiler")
    with pytest.raises(build.NoCompiler, match=r"'another' does not run"):
        build.find_compiler(environment={"CXX": "another"})


def test_the_script_says_when_there_is_no_compiler(tmp_path: Path) -> None:
    environment = {**os.environ, "CXX": "no-such-compiler"}
    ran = subprocess.run(
        [sys.executable, "-P", SCRIPT, "--out", tmp_path / "lib"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == build.NO_COMPILER
    assert ran.stdout == ""
    assert ran.stderr == (
        "The C++ compiler 'no-such-compiler' does not run. Name another, or none.\n"
    )


def test_the_script_runs_without_packages_and_prints_the_current_library() -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPT, "--current"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == str(build.current() or "")
    assert ran.returncode == (0 if build.current() else 1)


# --- other platforms

ZIG, CLANG = build.Compiler(("zig",), "", zig=True), build.Compiler(("clang++",), "")


@pytest.mark.parametrize(
    ("architecture", "system", "static", "wanted"),
    [
        ("aarch64", "linux", False, "aarch64-linux-gnu.2.17"),
        ("aarch64", "linux", True, "aarch64-linux-musl"),
        ("aarch64", "darwin", False, "aarch64-macos.13.0"),
        ("x86_64", "windows", False, "x86_64-windows-gnu"),
    ],
)
def test_zig_builds_for_the_oldest_system(
    architecture: str, system: str, static: bool, wanted: str
) -> None:
    target = build.Target(architecture, system)
    assert build._target_flags(ZIG, target, static=static) == ("-target", wanted)


def test_apples_compiler_builds_for_the_oldest_system_too() -> None:
    oldest = ("-mmacosx-version-min=13.0",)
    assert build._target_flags(CLANG, build.Target("aarch64", "darwin")) == oldest
    assert build._target_flags(CLANG, build.Target("aarch64", "linux")) == ()


@pytest.mark.parametrize("name", ["arm64", "aarch64-macos", "darwin", ""])
def test_the_script_names_the_platforms_it_builds_for(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", SCRIPT, "--target", name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert f"{name!r} is not aarch64 or x86_64, alone or with -linux, -darwin, -wind" in ran.stderr


@pytest.mark.slow
def test_the_kernels_compile_without_a_warning(
    compiler: build.Compiler, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build.build_library(compiler, tmp_path)
    assert capfd.readouterr().err == ""
