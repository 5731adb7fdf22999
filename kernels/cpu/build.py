"""Build script: compiles native/ into one shared library, each instruction set with its flags.

It imports the standard library alone and runs as a file as well as a module, because it works
before any package is installed. The library's name contains a hash of all sources and flags, so
that one built from other sources is never loaded; a finished library is renamed into place.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).resolve().parent / "native"
LIBRARIES = NATIVE.with_name("lib")
NO_COMPILER = 3  # exit status when no C++ compiler was found


@dataclass(frozen=True)
class InstructionSet:
    """Compiler flags of isa/isa_<name>.cpp, and the architecture it is for."""

    architecture: str  # "" for all
    flags: tuple[str, ...] = ()
    zig_flags: tuple[str, ...] = ()  # where zig's flags differ


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mfma", "-mf16c")
INSTRUCTION_SETS: dict[str, InstructionSet] = {
    "zen4": InstructionSet("x86_64", _AVX512),
    "avx512": InstructionSet("x86_64", _AVX512),
    "avxvnni": InstructionSet("x86_64", (*_AVX2, "-mavxvnni")),
    "avx2": InstructionSet("x86_64", _AVX2),
    "i8mm": InstructionSet(
        "aarch64",
        ("-march=armv8.2-a+dotprod+fp16+i8mm",),
        ("-mcpu=generic+v8_2a+dotprod+fullfp16+i8mm",),
    ),
    "neon": InstructionSet(
        "aarch64",
        ("-march=armv8.2-a+dotprod+fp16",),
        ("-mcpu=generic+v8_2a+dotprod+fullfp16",),
    ),
    "scalar": InstructionSet("", ("-O2",)),
}

# No floating-point contraction, so that results do not depend on the compiler; the sources call
# fused multiply-adds explicitly.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror=unused-result",  # a status that is ignored, see NK_CHECKED
)
# gcc 12 warns about its own AVX-512 header; clang does not.
_GCC_FLAGS = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")
_SANITIZER_FLAGS = (
    "-O1",  # with -O2, sanitizer checks in unrolled loops compile for half an hour
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
_SUFFIXES = {"linux": ".so", "darwin": ".dylib", "windows": ".dll"}
_MACHINES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
# The oldest systems that libraries are built for, as zig names them.
_ZIG_SYSTEMS = {"linux": "linux-gnu.2.17", "darwin": "macos.13.0", "windows": "windows-gnu"}
_ABANDONED_AFTER = 3600.0  # seconds; a younger unfinished file may belong to another build
_SCAN_SECONDS = (0.1, 0.3, 1.0, 3.0)  # between attempts to name a finished file


class BuildError(Exception):
    """A failed build: compiler output and remedy."""


class NoCompiler(BuildError):
    """No C++ compiler was found."""


@dataclass(frozen=True)
class Target:
    """Target platform of a build."""

    architecture: str  # "x86_64", "aarch64", or Python's name of another
    system: str  # "linux", "darwin", "windows"

    @property
    def suffix(self) -> str:
        """File name extension of a shared library."""
        return _SUFFIXES[self.system]


@dataclass(frozen=True)
class Compiler:
    """A working C++ compiler."""

    command: tuple[str, ...]
    version: str  # the first line of --version
    zig: bool = False

    @property
    def name(self) -> str:
        """Display name: "c++", "zig"."""
        return "zig" if self.zig else Path(self.command[0]).stem

    @property
    def digest(self) -> str:
        """Eight-digit hash of the compiler."""
        return hashlib.sha256(self.version.encode()).hexdigest()[:8]


def host() -> Target:
    """The platform of the running interpreter."""
    machine = platform.machine().lower()
    system = {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "linux")
    return Target(_MACHINES.get(machine, machine), system)


def find_compiler(wanted: str = "", environment: Mapping[str, str] = os.environ) -> Compiler:
    """The compiler `wanted`, else that of CXX, else the first that works; raises NoCompiler."""
    named = wanted or environment.get("CXX", "")
    if named == "zig":
        candidates = [_zig_command()]
    elif named:
        candidates = [tuple(shlex.split(named, posix=os.name != "nt"))]
    else:
        candidates = [("c++",), ("g++",), ("clang++",), _zig_command()]
    for command in candidates:
        if command and (found := _probe(command)):
            return found
    if named:
        raise NoCompiler(f"The C++ compiler {named!r} does not run. Name another, or none.")
    raise NoCompiler(
        "No C++ compiler was found. Install g++ or clang++, "
        "or `pip install ziglang`, which brings one."
    )


def digest(native: Path = NATIVE, target: Target | None = None) -> str:
    """Sixteen-digit hash of sources and flags."""
    made = hashlib.sha256()
    for path in sorted(native.rglob("*")):
        if path.suffix in (".h", ".inc", ".cpp"):
            name = path.relative_to(native).as_posix()
            made.update(f"{name}\n".encode() + path.read_bytes())
    made.update(repr((INSTRUCTION_SETS, _FLAGS, _GCC_FLAGS, target or host())).encode())
    return made.hexdigest()[:16]


def current(folder: Path = LIBRARIES, native: Path = NATIVE) -> Path | None:
    """The library to load: that of these sources; in a bundle, without sources, the only one."""
    here = digest(native) if native.is_dir() else "*"
    found = sorted(folder.glob(f"nk-{here}-*{host().suffix}"))
    return found[0] if found and (here != "*" or len(found) == 1) else None


def library_path(
    compiler: Compiler,
    folder: Path = LIBRARIES,
    *,
    native: Path = NATIVE,
    target: Target | None = None,
) -> Path:
    """Path of the library for these sources and this compiler."""
    target = target or host()
    return folder / f"nk-{digest(native, target)}-{compiler.digest}{target.suffix}"


def build_library(
    compiler: Compiler,
    folder: Path = LIBRARIES,
    *,
    native: Path = NATIVE,
    target: Target | None = None,
    checked: bool = False,
    jobs: int = 0,
) -> Path:
    """Build the library in `folder` and remove those it replaces; returns its path.

    Returns at once when it exists. `checked` adds the address and undefined-behaviour sanitizers,
    which end the process at the first error they find. Build a checked library in a folder of its
    own, because the folder's other libraries are removed, and preload the compiler's libasan in the
    process that loads it. Raises BuildError with the compiler's output.
    """
    target = target or host()
    extra = _SANITIZER_FLAGS if checked else ()
    path = library_path(compiler, folder, native=native, target=target)
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="nk-build-") as work:
            made = Path(work) / path.name
            units = _units(native, target, compiler.zig)
            system = _target_flags(compiler, target)
            objects = _compile(compiler, units, system, native, Path(work), jobs, extra)
            shared = _shared(target, path.name)
            _link(compiler, [*extra, *shared, *map(str, objects)], system, made)
            _install(made, path)
    _remove_others(path)
    return path


def build_program(
    compiler: Compiler,
    source: Path,
    program: Path,
    *,
    native: Path = NATIVE,
    target: Target | None = None,
    library: Path | None = None,
    checked: bool = False,
    jobs: int = 0,
) -> Path:
    """Build a program of `source` and all kernels, or of `source` and a library; returns `program`.

    It is linked statically for Linux on another processor, so that an emulator can run it. `checked` adds the
    address and undefined-behaviour sanitizers, which end it at the first error they find. Raises
    BuildError.
    """
    target = target or host()
    extra = _SANITIZER_FLAGS if checked else ()
    units = [] if library else _units(native, target, compiler.zig)
    linked = [str(library), f"-Wl,-rpath,{library.parent}"] if library else []
    static = target != host() and target.system == "linux"
    linked += ["-static"] if static else []
    system = _target_flags(compiler, target, static=static)
    with tempfile.TemporaryDirectory(prefix="nk-build-") as work:
        made = Path(work) / program.name
        objects = _compile(
            compiler, [*units, (source, ())], system, native, Path(work), jobs, extra
        )
        _link(compiler, [*extra, *map(str, objects), *linked, "-pthread", "-lm"], system, made)
        _install(made, program)
    return program


def _zig_command() -> tuple[str, ...]:
    """The compiler of the package ziglang, if it is installed; else ()."""
    return (sys.executable, "-m", "ziglang", "c++") if importlib.util.find_spec("ziglang") else ()


def _probe(command: tuple[str, ...]) -> Compiler | None:
    """The compiler that a command runs; None when it does not run."""
    try:
        ran = _output([*command, "--version"])
    except OSError:
        return None
    if ran.returncode != 0:
        return None
    zig = "ziglang" in command or Path(command[0]).stem == "zig"
    # Later lines name folders and the running system, which do not affect the result.
    return Compiler(command, ran.stdout.partition("\n")[0], zig)


def _units(native: Path, target: Target, zig: bool) -> list[tuple[Path, tuple[str, ...]]]:
    """Sources to compile for this target, each with its extra flags; largest first."""
    units: list[tuple[Path, tuple[str, ...]]] = []
    for name, entry in INSTRUCTION_SETS.items():
        path = native / "isa" / f"isa_{name}.cpp"
        if entry.architecture in ("", target.architecture) and path.is_file():
            units.append((path, entry.zig_flags if zig and entry.zig_flags else entry.flags))
    shared = (path for path in native.rglob("*.cpp") if not path.name.startswith("isa_"))
    return units + [(path, ()) for path in sorted(shared)]


def _compile(
    compiler: Compiler,
    units: Sequence[tuple[Path, tuple[str, ...]]],
    system: Sequence[str],
    native: Path,
    work: Path,
    jobs: int,
    extra: Sequence[str] = (),
) -> list[Path]:
    """Compile all units, by default one per core at once; returns the object files."""
    flags = _FLAGS if "clang" in compiler.version else (*_FLAGS, *_GCC_FLAGS)
    base = (*compiler.command, *system, *flags, "-I", str(native))

    def one(unit: tuple[Path, tuple[str, ...]]) -> Path:
        source, own = unit
        made = work / f"{source.stem}.o"
        _run((*base, *own, *extra, "-c", str(source), "-o", str(made)), f"compile {source.name}")
        return made

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(one, units))


def _link(compiler: Compiler, arguments: Iterable[str], system: Sequence[str], made: Path) -> None:
    # Linked as C: the C++ library is not needed, and zig would build one.
    command = tuple("cc" if part == "c++" and compiler.zig else part for part in compiler.command)
    _run((*command, *system, *arguments, "-o", str(made)), f"link {made.name}")


def _shared(target: Target, name: str) -> tuple[str, ...]:
    """Linker flags for a shared library without unused dependencies."""
    if target.system == "darwin":  # which would record the path that it is linked at as its name
        return ("-dynamiclib", "-Wl,-dead_strip_dylibs", f"-Wl,-install_name,@rpath/{name}")
    if target.system == "windows":
        return ("-shared",)
    return ("-shared", "-pthread", "-Wl,--as-needed", "-Wl,--no-undefined", "-Wl,-s")


def _target_flags(compiler: Compiler, target: Target, *, static: bool = False) -> tuple[str, ...]:
    """Flags for the processor and the oldest system that the result runs on.

    Without them zig would use every feature of this processor. glibc cannot be linked statically,
    so `static` takes musl.
    """
    if compiler.zig:
        system = "linux-musl" if static else _ZIG_SYSTEMS[target.system]
        return ("-target", f"{target.architecture}-{system}")
    if target.system == "darwin":
        return (f"-mmacosx-version-min={_ZIG_SYSTEMS['darwin'].removeprefix('macos.')}",)
    return ()


def _run(command: Sequence[str], doing: str) -> None:
    """Run a compiler and print its warnings; raises BuildError with its output."""
    try:
        ran = _output(command)
    except OSError as error:
        raise BuildError(f"{command[0]} could not {doing}: {error.strerror}.") from error
    if ran.returncode != 0:
        raise BuildError(f"{ran.stderr.strip()[-4000:]}\n{command[0]} could not {doing}, as above.")
    if ran.stderr.strip():
        sys.stderr.write(f"{ran.stderr.strip()}\n")


def _output(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler, which may write names of files in another encoding than UTF-8."""
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )


def _install(made: Path, path: Path) -> None:
    """Move a finished file into place atomically; concurrent builds are safe."""
    own = f"{os.getpid()}-{threading.get_ident()}"
    partial = path.with_name(f"{path.name}.{own}.part")
    shutil.copyfile(made, partial)
    shutil.copymode(made, partial)
    for pause in (*_SCAN_SECONDS, None):
        try:
            partial.replace(path)
            return
        except PermissionError:  # a virus scanner of Windows reads what was just made
            if path.exists():  # another build has made it, and it is in use
                partial.unlink(missing_ok=True)
                return
            if pause is None:
                raise
            time.sleep(pause)


def _remove_others(path: Path) -> None:
    """Remove libraries of older sources and leftovers of interrupted builds."""
    for other in path.parent.glob("nk-*"):
        unfinished = other.suffix == ".part"
        if other == path or (unfinished and time.time() - other.stat().st_mtime < _ABANDONED_AFTER):
            continue
        with contextlib.suppress(OSError):  # in use by a running program
            other.unlink()


def _target(text: str) -> Target:
    """The platform that a name such as "aarch64" or "aarch64-darwin" stands for."""
    architecture, _, system = text.partition("-")
    if architecture not in _MACHINES.values() or system not in ("", *_SUFFIXES):
        known = " or ".join(sorted(set(_MACHINES.values())))
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {known}, alone or with -{', -'.join(_SUFFIXES)}"
        )
    return Target(architecture, system or host().system)


def main(arguments: Sequence[str]) -> int:
    """Build the library and print its path; returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds the native kernels for processors.")
    parser.add_argument("--compiler", default="", help='a command, or "zig" (default: the first)')
    parser.add_argument(
        "--target",
        type=_target,
        default=host(),
        help="processor, or processor-system such as aarch64-darwin (default: this machine)",
    )
    parser.add_argument("--out", type=Path, default=LIBRARIES, help="the folder for the library")
    parser.add_argument(
        "--jobs", type=int, default=0, help="compilers at once (default: all cores)"
    )
    parser.add_argument("--current", action="store_true", help="build nothing, print what is there")
    options = parser.parse_args(arguments)
    if options.current:
        there = current(options.out)
        print(there or "")
        return 0 if there else 1
    target = options.target
    try:
        compiler = find_compiler(options.compiler)
        wanted = f"{target.architecture}-{target.system}"
        print(f"Compiling for {wanted} with {compiler.name}…", file=sys.stderr)
        path = build_library(compiler, options.out, target=target, jobs=options.jobs)
    except BuildError as error:
        print(error, file=sys.stderr)
        return NO_COMPILER if isinstance(error, NoCompiler) else 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
