"""Creates .venv and keeps it at the pinned requirements: one pip command, a stamp file, a lock.

The stamp records what .venv was made from, so the second run reads one file and does nothing. A
marker file exists in .venv while pip runs; if the next run finds it, .venv is created anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
REQUIREMENTS = ROOT / "packaging" / "requirements.txt"
ORACLE_REQUIREMENTS = ROOT / "packaging" / "requirements-oracle.txt"
COMPILER_REQUIREMENTS = ROOT / "packaging" / "requirements-compiler.txt"
TRITON_REQUIREMENTS = ROOT / "packaging" / "requirements-triton.txt"

_UNFINISHED = VENV / "tokonoma-unfinished"
_NEEDED_BYTES = 3_000_000_000
_LOCK_SECONDS = 0.2  # between two looks at a lock that another command holds
_NOISE = re.compile(r"WARNING: Location|\[notice\]|^\s*$|^Looking in ")
_DOWNLOAD = re.compile(r"\s*Downloading (?:\S*/)?([A-Za-z0-9_.]+?)-\d\S* \(([\d.]+) (MB|GB)\)")

# A package of CUDA among those that pip is about to fetch, before it fetches the first of them.
_CUDA = re.compile(r"\s*(?:Collecting |Processing \S*/)(?:nvidia|cuda)[-_]")

# Run by .venv's interpreter: prints the installed version of each named package as JSON. Packages
# that pip did not finish installing are left out: INSTALLER is the last file pip writes.
_VERSIONS = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    if package.read_text("INSTALLER"):
        found[name] = package.version.split("+")[0]
print(json.dumps(found))
"""

_WITH_CUDA = """\
  The package index serves torch with CUDA: several GB more, of use only with a GPU of NVIDIA.
  To do without, press Ctrl+C, name torch's index for the platform CPU (pytorch.org, "Get started")
  in the environment variable PIP_EXTRA_INDEX_URL, and run the command again."""

# Machine to the oldest minor version of glibc 2 for which Qt's pinned wheels are made.
_OLDEST_GLIBC = {"x86_64": 34, "aarch64": 39}


class Trouble(Exception):
    """A step failed; the message says why and what to do."""


def say(line: str) -> None:
    """Print a progress line and flush it, also into a pipe."""
    print(line, flush=True)


def venv_python() -> Path:
    """The interpreter of .venv."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def child_environment(**settings: str) -> dict[str, str]:
    """Environment for a child process, without variables that would affect another Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    }
    return {**kept, "PYTHONUTF8": "1", **settings}


def ensure(oracle: bool = False, compiler: bool = False, triton: bool = False) -> None:
    """Install the pinned requirements in .venv; returns at once when they are installed already.

    With `oracle` also the libraries that slow tests compare with, with `compiler` a C++ compiler,
    with `triton` the compiler of the CUDA kernels, on Linux. Raises Trouble.
    """
    wanted = [(REQUIREMENTS, VENV / "tokonoma-stamp.json")]
    if oracle:
        wanted.append((ORACLE_REQUIREMENTS, VENV / "tokonoma-oracle-stamp.json"))
    if compiler:
        wanted.append((COMPILER_REQUIREMENTS, VENV / "tokonoma-compiler-stamp.json"))
    if triton and sys.platform == "linux":
        wanted.append((TRITON_REQUIREMENTS, VENV / "tokonoma-triton-stamp.json"))
    if all(_is_current(*pair) for pair in wanted):
        return
    with locked(ROOT / "build" / "setup.lock"):
        for requirements, stamp in wanted:
            if not _is_current(requirements, stamp):
                _bring_up(requirements, stamp)


def last_lines(output: str, count: int = 8) -> str:
    """The last lines of a command's output, without pip's notices, indented."""
    lines = [line.rstrip() for line in output.splitlines() if not _NOISE.search(line)]
    return "\n".join(f"    {line}" for line in lines[-count:])


def run_quietly(*command: str) -> None:
    """Run a command without output; raises Trouble with its last lines when it fails."""
    ran = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=child_environment(LC_ALL="C.UTF-8"),
        check=False,
    )
    if ran.returncode != 0:
        name = Path(command[0]).name
        raise Trouble(
            f"{last_lines(ran.stdout)}\n{name} failed, as above; mend that and run again."
        )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock file while the block runs, waiting for other commands that hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if not _lock(file.fileno()):
            say("Another command is setting up; waiting for it…")
            while not _lock(
                file.fileno()
            ):  # Windows would wait for 10 seconds, then raise an error
                time.sleep(_LOCK_SECONDS)
        yield  # closing the file releases the lock


def _lock(descriptor: int) -> bool:
    """Take the lock of an open file; False when another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415  # exists on Windows only

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415  # does not exist on Windows

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _facts(requirements: Path) -> dict[str, str]:
    """Content of a stamp: hash of the pins, and the interpreter and path of .venv."""
    python = venv_python()
    config = VENV / "pyvenv.cfg"
    version = (
        re.search(r"^version\s*=\s*(\S+)", config.read_text(encoding="utf-8"), re.M)
        if config.exists()
        else None
    )
    return {
        "requirements": hashlib.sha256(requirements.read_bytes()).hexdigest(),
        "interpreter": os.path.realpath(python),
        "version": version[1] if version else "",
        "place": str(VENV),
    }


def _read_stamp(stamp: Path) -> dict[str, str]:
    try:
        read = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _is_current(requirements: Path, stamp: Path) -> bool:
    """Whether .venv exists, is complete, and was made from these requirements."""
    return (
        venv_python().exists()
        and not _UNFINISHED.exists()
        and _read_stamp(stamp) == _facts(requirements)
    )


def _bring_up(requirements: Path, stamp: Path) -> None:
    """Create or update .venv so that it satisfies the requirements, then write the stamp."""
    reason = _reason_to_remake(stamp)
    if reason:
        if VENV.exists():
            say(f"Making .venv again: {reason}.")
            shutil.rmtree(VENV)
        _make_venv()
    if reason or not _satisfies(requirements):
        _install(requirements)
    partial = stamp.with_suffix(".part")
    partial.write_text(json.dumps(_facts(requirements), indent=1), encoding="utf-8")
    partial.replace(stamp)


def _reason_to_remake(stamp: Path) -> str:
    """Why the existing .venv must be created anew; empty when it can be kept."""
    if not venv_python().exists():
        return "its interpreter is gone" if VENV.exists() else "there is none"
    if _UNFINISHED.exists():
        return "its set-up was interrupted"
    facts, old = _facts(REQUIREMENTS), _read_stamp(stamp)
    if old and old.get("place") != facts["place"]:
        return "the folder was moved"
    if old and (old.get("interpreter"), old.get("version")) != (
        facts["interpreter"],
        facts["version"],
    ):
        return "its Python was replaced"
    probe = subprocess.run(
        [venv_python(), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"],
        capture_output=True,
        env=child_environment(),
        check=False,
    )
    return "" if probe.returncode == 0 else "it does not run"


def system_trouble(machine: str, c_library: str) -> str:
    """Why the packages cannot be installed on a Linux, in one sentence; else ""."""
    oldest = _OLDEST_GLIBC.get(machine, 0)
    name, _, version = c_library.partition(" ")
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if name != "glibc" or numbers >= (2, oldest):
        return ""
    return (
        f"The packages of Qt for {machine} need glibc 2.{oldest} or newer, and this system has "
        f"{version}: use a newer one, such as Debian 13 or Ubuntu 24.04."
    )


def _make_venv() -> None:
    """Create an empty .venv with the running interpreter."""
    if trouble := system_trouble(platform.machine(), " ".join(platform.libc_ver())):
        raise Trouble(trouble)
    free = shutil.disk_usage(ROOT).free
    if free < _NEEDED_BYTES:
        raise Trouble(
            f"Setting up needs about {_NEEDED_BYTES / 1e9:.0f} GB on the disk of {ROOT}, and "
            f"{free / 1e9:.1f} GB is free. Free some space and run the command again."
        )
    VENV.mkdir(parents=True, exist_ok=True)
    _UNFINISHED.touch()
    base = getattr(sys, "_base_executable", None) or sys.executable
    made = subprocess.run(
        [base, "-m", "venv", str(VENV)],
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if made.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        output = made.stdout + made.stderr
        if "No module named venv" in output or "ensurepip is not" in output:
            raise Trouble(
                "This Python cannot create virtual environments: install the package python3-venv "
                "(`sudo apt install python3-venv`; elsewhere your system's venv and pip for "
                "Python) and run the command again."
            )
        raise Trouble(
            f"{last_lines(output)}\n"
            "Python could not create the virtual environment, as above; install Python's venv and "
            "pip (on Debian and Ubuntu the package python3-venv) and run the command again."
        )


def pins(requirements: Path) -> dict[str, str]:
    """Name to version of every pinned line."""
    lines = (
        line.split("#")[0].strip() for line in requirements.read_text(encoding="utf-8").splitlines()
    )
    return dict(line.split("==", 1) for line in lines if line)


def _satisfies(requirements: Path) -> bool:
    """Whether exactly the pinned versions are installed in .venv."""
    wanted = pins(requirements)
    done = subprocess.run(
        [venv_python(), "-c", _VERSIONS, *wanted],
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    return done.returncode == 0 and json.loads(done.stdout) == wanted


def _install(requirements: Path) -> None:
    """Install the requirements with one pip command; prints the name of each large download.

    The wheels of torch in the usual index bring CUDA, on ARM and other machines without it too.
    """
    sizes = {
        REQUIREMENTS: "about 1 GB, once",
        ORACLE_REQUIREMENTS: "for the slow tests, once",
        COMPILER_REQUIREMENTS: "a C++ compiler, about 100 MB, once",
        TRITON_REQUIREMENTS: "for tests of the CUDA kernels, about 300 MB, once",
    }
    say(f"Installing the packages ({sizes[requirements]})…")
    _UNFINISHED.touch()
    command = [venv_python(), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    with subprocess.Popen(
        [*command, "-r", requirements],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=child_environment(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_USER="0"),
    ) as pip:
        assert pip.stdout is not None
        output = []
        for line in pip.stdout:
            if _CUDA.match(line) and not any(map(_CUDA.match, output)):
                say(_WITH_CUDA)
            output.append(line)
            large = _DOWNLOAD.match(line)
            if large and (large[3] == "GB" or float(large[2]) >= 20):
                say(f"  {large[1]}, {large[2]} {large[3]}")
    # If pip failed before its install step, it changed nothing, so .venv is still usable.
    if pip.returncode == 0 or not any(line.startswith("Installing collected") for line in output):
        _UNFINISHED.unlink()
    if pip.returncode != 0:
        raise Trouble(pip_failure("".join(output), "install the packages"))


def pip_failure(output: str, doing: str) -> str:
    """Error message of a failed pip: its last lines, and a sentence that says what to do."""
    if "No space left" in output or "Errno 28" in output:
        remedy = "the disk is full; free some space and run the command again"
    elif "No matching distribution" in output or "Could not find a version" in output:
        remedy = "the package index did not offer it; check the connection and the Python version"
    else:
        remedy = "check the network connection and run the command again"
    return f"{last_lines(output)}\npip could not {doing}: {remedy}."
