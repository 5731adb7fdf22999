"""Tests on an emulated ARM processor: the kernels' tests and the first window, for `dev.py test`.

The cache holds a Debian 13 for ARM that is made once: apt downloads and verifies its packages, and
they are only unpacked, because their scripts would run for minutes under emulation. Its programs
are run by qemu, registered in the binfmt_misc of a private user namespace, so that neither root
rights nor a change of this machine are needed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import environment
import fetch
from environment import ROOT, Trouble, pins, run_quietly, say, venv_python
from result_table import Row, row_of

REQUIREMENTS = ROOT / "packaging" / "requirements-arm64.txt"
PICTURE = ROOT / "build" / "arm64" / "window.png"
# Debian's packages: Python, what starts it, and the libraries of the system that Qt is linked with.
DEBIAN = (
    *("base-files", "coreutils", "dash", "libc-bin", "python3"),
    *("libdbus-1-3", "libegl1", "libfontconfig1", "libgl1", "libglib2.0-0t64", "libxkbcommon0"),
)
# Instruction set of the kernels to the oldest processor emulated that has it, and that torch runs on:
# its wheels end with an illegal instruction on those before ARMv8.2, such as cortex-a72.
PROCESSORS = {"i8mm": "max", "neon": "cortex-a76", "scalar": "cortex-a76"}
# Run by default on each processor: products in every format, states, segments of attention, and
# attention to a cache of integers.
CHOSEN = (
    *("test_linear.py", "test_states.py", "test_segments.py"),
    "test_attention.py::test_integers_stand_for_numbers_of_any_size",
)
_TESTS = "tests/kernels/cpu"
_ELSEWHERE = ("test_build.py", "test_driver.py", "test_vectors.py")  # these need a compiler
_SUITE = "trixie"  # Debian 13
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_NEEDED_BYTES = 3_000_000_000
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_REGISTERED = 90  # status of `_START`
# Program to the Debian package that has it.
_PROGRAMS = {
    "qemu-aarch64-static": "qemu-user-static",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "unshare": "util-linux",
}
# Shell script, run in a private mount namespace, with the arguments ROOT, QEMU, SOURCES, KERNELS, and
# the command. F: qemu is opened here, where it is, and not in the other root. The numbers are those
# of an ELF file for ARM.
_START = r"""
set -eu
root=$1 qemu=$2 sources=$3 kernels=$4
shift 4
if mount -t binfmt_misc binfmt "$root/run"; then
    printf '%s' ':arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'\
':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$qemu:F" \
        > "$root/run/register"
elif ! [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    exit 90
fi
for folder in proc dev sys; do mount --rbind "/$folder" "$root/$folder"; done
mount --bind "$sources" "$root/src"
mount -o remount,bind,ro "$root/src"
mount --bind "$kernels" "$root/src/kernels/cpu/lib"
cd "$root/src"
exec chroot "$root" /bin/sh -c 'cd /src && exec "$@"' sh "$@"
"""


def run(*, every: bool, passed: Sequence[str]) -> list[Row]:
    """Run the tests; returns the rows of the table. `passed` goes to pytest. Raises Trouble."""
    _check_tools()
    # Another command may need other packages, and would make the system anew.
    with environment.locked(_folder() / "lock"):
        root = system(_folder())
        kernels = _kernels()
        say("\nThe window")
        rows = [_window(root, kernels)]
        for isa, processor in PROCESSORS.items():
            say(f"\nKernels, {isa}, on the processor {processor}")
            rows.append(_pytest(root, kernels, isa, processor, every, passed))
    return rows


def system(folder: Path) -> Path:
    """The root of the ARM system in a folder, made if needed. Raises Trouble."""
    root, stamp = folder / "root", folder / "root" / "stamp"
    wanted = hashlib.sha256(repr((DEBIAN, sorted(_pins().items()))).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return root
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise Trouble(
            f"The ARM system needs {_NEEDED_BYTES / 1e9:.0f} GB on the disk of {folder}, and "
            f"{free / 1e9:.1f} GB is free. Free some space and run the command again."
        )
    made = folder / "root.new"
    for old in (made, root):
        shutil.rmtree(old, ignore_errors=True)
    made.mkdir()
    _unpack_debian(made, folder / "apt")
    _install_wheels(made)
    (made / "src").mkdir()
    (made / "stamp").write_text(wanted, "utf-8")
    return made.rename(root)


def _folder() -> Path:
    """The folder of the ARM system and of the kernels for it."""
    return fetch.cache_folder().parent / "arm64"


def _check_tools() -> None:
    """Check that the programs are here. Raises Trouble."""
    if platform.machine() in ("aarch64", "arm64"):
        raise Trouble(
            "This machine has an ARM processor: run `packaging/dev.py test` without --on."
        )
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = " ".join(_PROGRAMS[name] for name in missing)
        raise Trouble(
            f"An ARM processor is emulated with {', '.join(_PROGRAMS)}, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: `sudo apt install {packages}`."
        )
    if not _KEYRING.is_file():
        raise Trouble(
            "Debian's packages are verified with its keys, which are missing: "
            "`sudo apt install debian-archive-keyring`."
        )


def mirror() -> str:
    """Address of the Debian archive that this machine installs from. Raises Trouble."""
    wanted = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    listed = subprocess.run(
        [*wanted, "Created-By: Packages"], capture_output=True, text=True, check=False
    ).stdout
    for line in listed.splitlines():
        origin, label, address = line.split("|", 2)
        if (origin, label) == ("Debian", "Debian"):  # not its security updates
            return address
    raise Trouble(
        "The ARM system is made of Debian's packages, and this machine's apt names no archive of "
        "Debian: run it on Debian, after `apt-get update`."
    )


def _unpack_debian(root: Path, apt: Path) -> None:
    """Download Debian's packages with all that they depend on, and unpack them in `root`."""
    say("Unpacking Debian 13 for ARM (70 MB, once)…")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    source = f"deb [signed-by={_KEYRING}] {mirror()} {_SUITE} main\n"
    (apt / "sources.list").write_text(source, encoding="utf-8")
    settings = {
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/nonexistent",
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    run_quietly("apt-get", "-q", *options, "update")
    run_quietly("apt-get", "-qy", *options, "--download-only", "install", *DEBIAN)
    packages = sorted((apt / "cache" / "archives").glob("*.deb"))
    for package in packages:
        run_quietly("dpkg-deb", "-x", str(package), str(root))
    (root / "packages.txt").write_text(
        "".join(f"{package.name}\n" for package in packages), encoding="utf-8"
    )
    shutil.rmtree(apt)


def _install_wheels(root: Path) -> None:
    """Install the Python packages for ARM in `root`."""
    say("Installing the packages for ARM (300 MB, once)…")
    python = next((root / "usr" / "bin").glob("python3.[0-9]*"))
    version = python.name.removeprefix("python")
    glibc = [f"manylinux_2_{minor}_aarch64" for minor in range(17, 42)]  # Debian 13 has 2.41
    tags = {
        "--platform": ["manylinux2014_aarch64", *glibc],
        "--abi": [f"cp{version.replace('.', '')}", "abi3", "none"],
        "--python-version": [version],
        "--implementation": ["cp"],
    }
    options = [part for key, values in tags.items() for one in values for part in (key, one)]
    target = ("--target", str(root / "opt" / "packages"), "--no-compile", "--no-deps")
    named = [f"{name}=={number}" for name, number in _pins().items()]
    pip = (str(venv_python()), "-m", "pip", "install", "-q", "--only-binary", ":all:")
    run_quietly(*pip, *target, *options, *named)


def _pins() -> dict[str, str]:
    """Name to version of the Python packages of the ARM system."""
    ours = pins(environment.REQUIREMENTS)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = {re.split(r"[<>=;]", line)[0].strip().lower() for line in needed}
    # What these need in turn is pinned beside them.
    names |= {"httpcore", "anyio", "certifi", "idna", "click", "ziafont", "latex2mathml"}
    found = {name: version for name, version in ours.items() if name.lower() in names}
    return found | pins(REQUIREMENTS)


def _kernels() -> Path:
    """The folder of the kernels' library for ARM, built if needed. Raises Trouble."""
    environment.ensure(compiler=True)
    folder = _folder() / "kernels"
    say("Building the native kernels for ARM (a few minutes, when their sources have changed)…")
    script = str(ROOT / "kernels" / "cpu" / "build.py")
    options = ("--compiler", "zig", "--target", "aarch64-linux", "--out", str(folder))
    run_quietly(str(venv_python()), "-P", script, *options)
    return folder


def _pytest(
    root: Path, kernels: Path, isa: str, processor: str, every: bool, passed: Sequence[str]
) -> Row:
    """Run the kernels' tests of one instruction set on a processor."""
    report = root / "tmp" / "report.xml"
    report.unlink(missing_ok=True)
    _write_settings(root / "tmp" / "pytest.ini")
    paths = [f"{_TESTS}/{file}" for file in CHOSEN]
    if every:
        paths = [_TESTS, *(f"--ignore={_TESTS}/{file}" for file in _ELSEWHERE)]
    options = ["-q", "-p", "no:cacheprovider", "-c", "/tmp/pytest.ini", "--rootdir", "/src"]
    options += ["--junitxml", "/tmp/report.xml"]
    # Tests of a set that is not the processor's best are sweeps; those of no set run with the first.
    first, *others = PROCESSORS
    wanted = isa if isa != first else " and ".join(f"not {other}" for other in others)
    options += passed or ["-m", "not slow", "-k", wanted, *paths]
    started = time.monotonic()
    _emulate(root, kernels, "python3", "-m", "pytest", *options, QEMU_CPU=processor)
    return row_of(f"kernels {isa}", report, time.monotonic() - started)


def _write_settings(path: Path) -> None:
    """Write pytest's settings of the project without those of pytest-qt, which would load Qt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = ["[pytest]"]
    for name, value in project["tool"]["pytest"]["ini_options"].items():
        if not name.startswith("qt_"):
            values = value if isinstance(value, list) else [str(value)]
            if name == "pythonpath":
                values = [f"/src/{one}" for one in values]
            lines += [f"{name} =", *(f"    {one}" for one in values)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _window(root: Path, kernels: Path) -> Row:
    """Start the app, take a picture of its first window, and quit."""
    picture = root / "tmp" / "window.png"
    picture.unlink(missing_ok=True)
    started = time.monotonic()
    status = _emulate(root, kernels, "python3", "tests/drivers/first_window.py", "/tmp/window.png")
    passed = status == 0 and picture.is_file()
    if passed:
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, PICTURE)
        say(f"Its picture: {PICTURE}")
    return Row("window", int(passed), 0, int(not passed), time.monotonic() - started)


def _emulate(root: Path, kernels: Path, *command: str, **settings: str) -> int:
    """Run a command in the ARM system; returns its status. Raises Trouble when it cannot start."""
    (ROOT / "kernels" / "cpu" / "lib").mkdir(exist_ok=True)  # the library for ARM is seen there
    qemu = shutil.which("qemu-aarch64-static") or ""
    inside = {
        "HOME": "/root",
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        "PYTHONPATH": "/src:/opt/packages",
        # The source folder is left as it is; compiling under emulation is slow, so it is kept.
        "PYTHONPYCACHEPREFIX": "/var/cache/bytecode",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
        "PYTHONHASHSEED": "0",
        "QT_QPA_PLATFORM": "offscreen",
        "KERNELS_REQUIRED": "cpu",
        **settings,
    }
    ran = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _START, "sh"),
            *(root, os.path.realpath(qemu), ROOT, kernels, *command),
        ],
        env=inside,
        check=False,
    )
    if ran.returncode == _NOT_REGISTERED:
        raise Trouble(
            "The kernel of this machine does not start programs for ARM: it needs Linux 6.7 or "
            "newer, or a registration, which `sudo apt install binfmt-support` adds."
        )
    return ran.returncode
