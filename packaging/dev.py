"""Developer command: runs, tests, checks, measures and packages the program; makes .venv if needed.

Standard library only, because it runs before anything is installed. A step that fails prints its
last lines and one sentence, never a traceback.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # print a sentence instead of a traceback
    sys.exit(
        "Tokonoma needs Python 3.11 or newer, and this is Python %d.%d: run it with a newer one, "  # noqa: UP031
        "for example `python3.11 packaging/dev.py`." % sys.version_info[:2]
    )

import argparse
import importlib.util
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import arm64
import bundle
import environment
import fetch
import file_map
import mutation
import native
import packages
import qt_libraries
import release
import result_table
import smoke_frozen
import wheels
import window_texts
from environment import ROOT, Trouble, child_environment, say, venv_python
from linux import trial
from macos import kernels as macos_kernels
from windows import setup_trial, wine

QUESTION = "Write one sentence about a small tree in a quiet room."
TEST_LIMIT = 80 * 60  # seconds; a longer run is taken to hang
MOST_TEST_PROCESSES = 4  # each loads the real models: about 1.5 GB
DISTRIBUTION = ("--dist", "worksteal")  # pytest-xdist: idle processes take tests from busy ones
BENCHMARKS = ROOT / "tests" / "benchmarks"
SHOTS = ROOT / "build" / "shots"

# The systems of `test --on`: each runs its tests and returns the rows of the table.
PLATFORMS: dict[str, Callable[..., list[result_table.Row]]] = {
    "arm64": arm64.run,
    "macos": macos_kernels.run,
    "windows": wine.run,
}


@dataclass(frozen=True)
class Step:
    """One static check: its name, its command, and the command that repairs what it finds."""

    name: str
    command: tuple[str, ...]
    fix: tuple[str, ...] = ()
    shows: bool = False  # print what it says also when it passes


def native_sources() -> list[str]:
    """Paths of the C++ files and shaders that clang-format checks, relative to the repository."""
    folders = (ROOT / "kernels" / "cpu" / "native", ROOT / "kernels" / "metal", ROOT / "tests")
    paths = sorted(path for folder in folders for path in folder.rglob("*"))
    suffixes = (".h", ".cpp", ".inc", ".metal")
    return [str(path.relative_to(ROOT)) for path in paths if path.suffix in suffixes]


_NATIVE = tuple(native_sources())
CATALOGS = str(Path("packaging") / "catalogs.py")
HEADERS = ("python", "-m", "kernels.cpu.header")  # generates C headers
# basedpyright: only errors fail; its warnings do not.
STEPS = (
    Step("format", ("ruff", "format", "--check", "."), ("ruff", "format", ".")),
    Step("lint", ("ruff", "check", "."), ("ruff", "check", "--fix", ".")),
    Step("types", ("basedpyright", "--level", "error")),
    Step("imports", ("lint-imports", "--no-cache", "--no-logo")),
    Step(
        "native",
        ("clang-format", "--dry-run", "-Werror", *_NATIVE),
        ("clang-format", "-i", *_NATIVE),
    ),
    Step("words", ("python", CATALOGS, "--check"), ("python", CATALOGS), shows=True),
    Step("headers", (*HEADERS, "--check"), HEADERS),
)


def main(arguments: Sequence[str]) -> int:
    """Run one subcommand; returns the exit status."""
    options = _parse(arguments)
    try:
        return options.command(options)
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        what = f"The system refused: {error.strerror or error}{where}."
        print(what, "Mend that and run the command again.", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the subcommand and its options; arguments after `--` go to `passed` unparsed."""
    parser = argparse.ArgumentParser(prog="dev.py", description="Tokonoma's one command.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, command: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=command)
        return added

    add("run", run, "Open the app; arguments after -- go to it.")
    testing = add("test", test, "Run the tests; arguments after -- go to pytest.")
    testing.add_argument("--sweeps", action="store_true", help="also the sweeps, as `check` does")
    testing.add_argument(
        "--slow", action="store_true", help="also the slow tests and the live oracles"
    )
    testing.add_argument(
        "--on", choices=sorted(PLATFORMS), help="a chosen part of them, on another system, here"
    )
    testing.add_argument("--all", action="store_true", help="with --on: all that can run there")
    checking = add("check", check, "Format, lint, types, imports, then the tests.")
    checking.add_argument(
        "--fix", action="store_true", help="repair formatting and lint errors where possible"
    )
    checking.add_argument(
        "--on", choices=sorted(PLATFORMS), action="append", help="also the chosen tests of a system"
    )
    checking.add_argument("--all", action="store_true", help="also those of every system")
    measuring = add("bench", bench, "Run the benchmarks, or the named one.")
    measuring.add_argument("name", nargs="?", default="")
    measuring.add_argument("--minutes", default="8", help="that `cuda` may take")
    measuring.add_argument("--table", type=Path, help="where `cuda` writes what it found")
    add("shots", shots, "Render every screen and dialog to build/shots.")
    add("fuzz", fuzz, "Open damaged model files with the GGUF reader.").add_argument(
        "--seconds", type=int, default=60
    )
    mutating = add("mutate", mutate, "Change the product at random places; say which tests notice.")
    mutating.add_argument("count", type=int, help="how many changes")
    mutating.add_argument("--seed", type=int, default=0, help="another choice of places")
    mutating.add_argument("paths", nargs="*", help="files or folders (default: all of the product)")
    add("map", print_map, "List every module with the first line of its docstring.")
    words = add("words", update_words, "Bring the catalogs of all languages up to date.")
    words.add_argument("--language", help="print what this one lacks instead, such as de")
    words.add_argument(
        "--list", action="store_true", help="print every text of the window instead, to be re-read"
    )
    bundling = add("bundle", make_bundle, "Build the app as one folder and test it.")
    bundling.add_argument(
        "--system", choices=bundle.SYSTEMS, default=sys.platform, help="of another system, by Wine"
    )
    bundling.add_argument("--out", type=Path, help="folder to write (default: in build)")
    bundling.add_argument(
        "--test", action="store_true", help="test the existing bundle instead of building one"
    )
    listing = add("gpu-wheels", list_gpu_wheels, "List the packages of GPU support for a release.")
    listing.add_argument("address", help="of a package index with CUDA builds, as pip takes it")
    wheel = add("wheel", make_wheel, "Build the package for pip, with the native kernels in it.")
    wheel.add_argument(
        "--platform", default="", help="of another platform, such as win_amd64 (default: this one)"
    )
    wheel.add_argument("--out", type=Path, default=wheels.FOLDER, help="folder to write")
    packing = add("package", make_packages, "Make installers and archives of the bundle.")
    packing.add_argument(
        "formats",
        nargs="*",
        help=f"default: all of {', '.join(packages.offered()) or 'none'}; on Linux also exe, zip",
    )
    packing.add_argument(
        "--out",
        type=Path,
        default=packages.FOLDER,
        help="folder to write (default: build/packages)",
    )
    packing.add_argument(
        "--try",
        type=Path,
        dest="roots",
        metavar="FOLDER",
        help="as root: install the packages in clean Debian roots that are kept in this folder",
    )
    packing.add_argument(
        "--bundle", type=Path, help="folder of a bundle to use instead of building one"
    )
    releasing = add("release", make_release, "Make all packages of this version, and their page.")
    releasing.add_argument("--out", type=Path, default=release.FOLDER, help="folder to write")
    releasing.add_argument(
        "--try", type=Path, dest="roots", metavar="FOLDER", help="as for the command package"
    )
    releasing.add_argument(
        "--key", type=Path, help="file with the private key that signs the description of updates"
    )
    releasing.add_argument(
        "--only", choices=release.systems(), default="", help="one system (default: all)"
    )
    comparing = add("compare", compare, "Say which files of two bundles differ.")
    for name in ("first", "second"):
        comparing.add_argument(name, type=Path, help="a folder, or a list of files of a release")
    parsed = list(arguments)
    passed = parsed[parsed.index("--") + 1 :] if "--" in parsed else []
    options = parser.parse_args(parsed[: parsed.index("--")] if "--" in parsed else parsed)
    options.passed = passed
    return options


def run(options: argparse.Namespace) -> int:
    """Open the window; where none can be, ask the starter model one question in the terminal."""
    _set_up()
    fetch.ensure(fetch.starter())
    no_display = sys.platform not in ("win32", "darwin") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if {"--smoke", "-h", "--help"} & set(options.passed):
        return _python("-m", "app", *options.passed)
    lacks = [] if no_display else qt_libraries.missing()
    if not no_display and not lacks:
        return _python("-m", "app", *options.passed)
    say("There is no display." if no_display else qt_libraries.advice(lacks))
    say("The starter model answers one question in the terminal instead.")
    say(f"> {QUESTION}")
    return _python("-m", "engine", "chat", "-m", "starter", "-p", QUESTION, "--temp", "0")


def test(options: argparse.Namespace) -> int:
    """Fetch the test models and run the tests; returns pytest's exit status."""
    if options.on:
        return _test_on(options)
    kernels = _set_up(oracle=options.slow, triton=True)
    fetch.ensure(fetch.starter())
    fetch.ensure(fetch.gemma())
    every = ("-m", "") if options.slow else ("-m", "not slow") if options.sweeps else ()
    # Options for pytest mean debugging: run in one process, as pytest does by default.
    chosen = options.passed or ("-n", str(min(MOST_TEST_PROCESSES, _cores())), *DISTRIBUTION)
    command = [venv_python(), "-m", "pytest", *every, *chosen]
    settings = child_environment(QT_QPA_PLATFORM="offscreen", PYTHONHASHSEED="0", **kernels)
    limit = None if options.slow else TEST_LIMIT
    try:
        return subprocess.run(
            command, cwd=ROOT, env=settings, timeout=limit, check=False
        ).returncode
    except subprocess.TimeoutExpired as error:
        raise Trouble(
            f"The tests took longer than {TEST_LIMIT // 60} minutes, so one of them hangs; "
            "run `packaging/dev.py test -- -v` to see which."
        ) from error


def _test_on(options: argparse.Namespace) -> int:
    """Run the tests of another system and print the table of their results."""
    environment.ensure()
    rows = PLATFORMS[options.on](every=options.all, passed=options.passed)
    say(f"\n{result_table.table(rows)}")
    return int(any(row.failed for row in rows))


def _cores() -> int:
    """Number of CPUs this process may use."""
    linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1


def check(options: argparse.Namespace) -> int:
    """Run every static check, then the tests, and print a summary."""
    environment.ensure(triton=True)  # which the type checker looks at too
    failed = [step.name for step in STEPS if not _passes(step, fix=options.fix)]
    systems = sorted(PLATFORMS) if options.all else options.on or []
    options.slow, options.sweeps, options.all = False, True, False
    for options.on in (None, *systems):
        try:
            passed = test(options) == 0
        except Trouble as trouble:
            say(str(trouble))
            passed = False
        if not passed:
            failed.append(f"tests on {options.on}" if options.on else "tests")
    say("")
    if failed:
        say(f"Failed: {', '.join(failed)}.")
        return 1
    say("Every check passed.")
    return 0


def bench(options: argparse.Namespace) -> int:
    """Run the benchmark scripts and the engine's own bench."""
    if options.name == "cuda" and all(map(importlib.util.find_spec, ("torch", "triton", "numpy"))):
        # On a borrowed machine without a network: this interpreter has what it needs.
        table = ("--table", str(options.table.resolve())) if options.table else ()
        return _python(
            str(BENCHMARKS / "cuda_speed.py"), "--minutes", options.minutes, *table,
            interpreter=sys.executable,
        )  # fmt: skip
    _set_up(triton=True)
    fetch.ensure(fetch.starter())
    # "cuda" would be the name of a package that torch imports, so its script has another.
    scripts = {path.stem.removesuffix("_speed"): path for path in sorted(BENCHMARKS.glob("*.py"))}
    names = [options.name] if options.name else ["engine", *scripts]
    if not set(names) <= {"engine", *scripts}:
        known = ", ".join(["engine", *scripts])
        raise Trouble(f"There is no benchmark {options.name!r}; there are {known}.")
    status = 0
    for name in names:
        say(f"\n{name}")
        if name == "engine":
            status |= _python("-m", "engine", "bench", "-m", "starter")
        else:
            status |= _python(str(scripts[name]), QT_QPA_PLATFORM="offscreen")
    return 1 if status else 0


def shots(options: argparse.Namespace) -> int:
    """Render every screen offscreen and print the paths of the pictures."""
    del options
    environment.ensure()
    for old in SHOTS.glob("*.png"):
        old.unlink()
    status = _python(str(ROOT / "tests" / "pictures" / "shots.py"), QT_QPA_PLATFORM="offscreen")
    for picture in sorted(SHOTS.glob("*.png")):
        say(str(picture.relative_to(ROOT)))
    return status


def fuzz(options: argparse.Namespace) -> int:
    """Fuzz the GGUF reader for `--seconds`."""
    environment.ensure()
    return _python(
        str(ROOT / "tests" / "drivers" / "fuzz_gguf.py"), "--seconds", str(options.seconds)
    )


def mutate(options: argparse.Namespace) -> int:
    """Print what the nearest tests say of each change, and the rate; 1 if one was not noticed."""
    _set_up(triton=True)
    paths, python = options.paths, str(venv_python())
    outcomes = mutation.sample(ROOT, options.count, options.seed, paths, python)
    say(f"\n{mutation.table(outcomes)}")
    return int(any(one.result == "survived" for one in outcomes))


def print_map(options: argparse.Namespace) -> int:
    """Print every module with the first line of its docstring."""
    del options
    print(file_map.file_map(ROOT))
    return 0


def update_words(options: argparse.Namespace) -> int:
    """Extract the texts of the window and update the catalogs, or print what they lack."""
    if options.list:
        print(window_texts.listing(ROOT))
        return 0
    environment.ensure()
    chosen = ("--language", options.language) if options.language else ()
    result = _tool(("python", CATALOGS, *chosen))
    say((result.stdout + result.stderr).strip())
    return result.returncode


def make_bundle(options: argparse.Namespace) -> int:
    """Build the bundle (or take the existing one), run its smoke tests, and print its size."""
    folder = (options.out or bundle.folder_of(options.system)).absolute()
    if not options.test:
        _set_up()
    make = bundle.built if options.test else bundle.build
    program = make(folder, options.system)
    say("Starting the bundle…")
    if options.system == sys.platform:
        say(smoke_frozen.smoke(program))
        smoke_frozen.forwards(program)
    else:
        say(setup_trial.smoke(program))
    count, files = bundle.size(bundle.root(program))
    say(f"The bundle works: {count / 1e6:.0f} MB in {files} files. Start it with {program}")
    return 0


def list_gpu_wheels(options: argparse.Namespace) -> int:
    """Write the list that a bundle has in it when TOKONOMA_GPU_WHEELS names it."""
    environment.ensure()
    return _python(str(ROOT / "packaging" / "gpu_wheels.py"), options.address)


def make_wheel(options: argparse.Namespace) -> int:
    """Build a wheel and print its path and size."""
    environment.ensure()
    made = wheels.build(options.out.absolute(), options.platform)
    say(f"{made} ({made.stat().st_size / 1e6:.1f} MB)")
    return 0


def make_packages(options: argparse.Namespace) -> int:
    """Make packages of a new bundle, or of the one in `--bundle`."""
    if options.bundle is None:
        _set_up()
    for system, names in packages.by_system(options.formats).items():
        program = (
            bundle.built(options.bundle.absolute(), system)
            if options.bundle
            else bundle.build(system=system)
        )
        made = packages.make(names, program, options.out.absolute())
        if options.roots is not None:
            tries = setup_trial.main if system == "win32" else trial.main
            tries(made, options.roots.absolute(), options.out.absolute())
    return 0


def make_release(options: argparse.Namespace) -> int:
    """Make the release of this version and print its folder."""
    _set_up()
    roots = options.roots.absolute() if options.roots else None
    made = release.make(options.out.absolute(), roots, options.key, options.only)
    say(f"The release is in {made}.")
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print the files that differ; two builds of one commit have none."""
    lines = release.differences(options.first, options.second)
    say("\n".join(lines) or "The files are the same.")
    return int(bool(lines))


def _set_up(*, oracle: bool = False, triton: bool = False) -> dict[str, str]:
    """Set up .venv and the native kernels; returns the environment variables for the tests."""
    environment.ensure(oracle=oracle, triton=triton)
    # Choosing the reference explicitly avoids the warning about missing kernels, which fails tests.
    return {} if native.ensure() else {"KERNELS": "reference"}


def _python(*arguments: str, interpreter: str = "", **settings: str) -> int:
    """Run .venv's interpreter, or another, with the project and the tests' helpers to import."""
    # -P keeps the caller's folder, which may hold another `app`, and the script's folder out of the
    # import path, so the folders of helpers are listed.
    helpers = [ROOT / "tests" / name for name in ("support", "drivers", "pictures")]
    found = os.pathsep.join(map(str, [ROOT, *helpers]))
    return subprocess.run(
        [interpreter or venv_python(), "-P", *arguments],
        env=child_environment(PYTHONPATH=found, **settings),
        check=False,
    ).returncode


def _passes(step: Step, *, fix: bool) -> bool:
    """Run one static check; its output is printed when it fails, or where the step says so."""
    started = time.monotonic()
    if fix and step.fix:
        _tool(step.fix)
    result = _tool(step.command)
    _report(step.name, result.returncode == 0, time.monotonic() - started)
    if result.returncode != 0 or step.shows:
        say((result.stdout + result.stderr).strip())
    return result.returncode == 0


def _tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program of .venv by name."""
    tool = venv_python().with_name(command[0])
    return subprocess.run(
        [tool, *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        env=child_environment(),
        check=False,
    )


def _report(name: str, passed: bool, seconds: float) -> None:
    say(f"{name:<8} {'ok' if passed else 'FAILED':<6} {seconds:5.1f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
