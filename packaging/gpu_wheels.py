"""Writes the list of packages that GPU support consists of, for the platform it runs on.

`packaging/dev.py gpu-wheels ADDRESS` asks the package index at this address through pip for the
CUDA build of the pinned torch, and for what that requires beyond the build for processors. Files
are not downloaded, but Triton's: their hashes come from the index, their sizes from servers. The list
(`resources/gpu_wheels.json` in the bundle) is empty without this command, and nothing is offered.
Beside it, Triton's module for the driver is compiled: users have no compiler (`gpu_driver`).
Run by .venv's interpreter; standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import environment
import gpu_driver
from environment import ROOT, Trouble, say

OUT = ROOT / "build" / "gpu" / "gpu_wheels.json"
# Oldest NVIDIA drivers by major version of CUDA. Source: CUDA's release notes, "CUDA Toolkit and
# Minimum Required Driver Version for CUDA Minor Version Compatibility".
DRIVERS = {12: "525.60.13", 13: "580.65.06"}
_CUDA = re.compile(r"-cu(\d+)$")
_NAME = re.compile(r"[-_.]+")
_SECONDS = 60.0
_TAIL_BYTES = 1 << 16  # read at once


def main(arguments: Sequence[str]) -> int:
    """Write the list; returns the exit status."""
    parser = argparse.ArgumentParser(description="List the packages of GPU support.")
    parser.add_argument("address", help="of a package index, as pip takes it")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    try:
        version = environment.pins(ROOT / "packaging" / "requirements.txt")["torch"]
        entry = list_of(resolve(options.address, version), version)
        write(options.out, entry)
        add_driver(options.out.parent, entry["wheels"])
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    rows = entry["wheels"]
    sizes = [sum(row[name] for row in rows) / 1e9 for name in ("size_bytes", "unpacked_bytes")]
    say(f"{len(rows)} packages, {sizes[0]:.2f} GB, unpacked {sizes[1]:.2f} GB: {options.out}")
    return 0


def resolve(address: str, version: str) -> list[dict[str, Any]]:
    """The packages that pip would install for torch, as its report lists them. Raises Trouble."""
    command = (
        *(sys.executable, "-m", "pip", "install", "--isolated", "--dry-run", "--quiet"),
        *("--ignore-installed", "--only-binary", ":all:", "--disable-pip-version-check"),
        *("--index-url", address, "--report", "-", f"torch=={version}"),
    )
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise Trouble(environment.pip_failure(done.stderr, "ask for the packages of GPU support"))
    return json.loads(done.stdout)["install"]


def list_of(packages: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """The list's entry for this platform. Raises Trouble for an index without a CUDA build."""
    from engine.machine.gpu_wheels import platform_key  # noqa: PLC0415  not for dev.py
    from kernels.cuda import LEAST_CAPABILITY  # noqa: PLC0415

    plain = closure("torch") - {"torch"}
    chosen = [each for each in packages if normal(each["metadata"]["name"]) not in plain]
    names = [normal(each["metadata"]["name"]) for each in chosen]
    if "triton" not in names:
        raise Trouble(
            "This index has no CUDA build of torch with Triton for this platform: "
            f"torch {version} requires {', '.join(sorted(names)) or 'nothing'} there."
        )
    majors = {int(match[1]) for name in names if (match := _CUDA.search(name))}
    if len(majors) != 1 or not majors <= DRIVERS.keys():
        raise Trouble(
            f"The oldest driver for CUDA {sorted(majors)} is not known: add it to DRIVERS."
        )
    rows = [_row(each) for each in sorted(chosen, key=lambda each: each["metadata"]["name"])]
    return {
        "platform": platform_key(),
        "torch": version,
        "driver": DRIVERS[majors.pop()],
        "capability": list(LEAST_CAPABILITY),
        "wheels": rows,
    }


def add_driver(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write Triton's compiled module for the driver, and its licence. Raises Trouble."""
    row = next(each for each in rows if each["name"].startswith("triton-"))
    try:
        with urllib.request.urlopen(row["url"], timeout=_SECONDS) as response:
            content = response.read()
        if hashlib.sha256(content).hexdigest() != row["sha256"]:  # what it has is compiled
            raise Trouble(
                f"{row['name']} is not the file that the index names: its SHA-256 differs."
            )
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in (gpu_driver.SOURCE, gpu_driver.HEADER)}
            texts = [name for name in archive.namelist() if name.endswith("/LICENSE")]
            licence = b"\n".join(map(archive.read, texts))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise Trouble(f"{row['name']} has no module for the driver: {error}.") from error
    if not licence:
        raise Trouble(f"{row['name']} has no licence text.")
    for old in folder.glob("cuda_utils-*"):
        old.unlink()
    gpu_driver.build(files, folder)
    (folder / "triton.txt").write_bytes(licence)


def closure(name: str) -> set[str]:
    """A package of .venv and all that it requires there."""
    found, waiting = set[str](), [name]
    while waiting:
        package = normal(waiting.pop())
        if package in found:
            continue
        try:
            requirements = metadata.requires(package) or []
        except metadata.PackageNotFoundError:
            requirements = []
        found.add(package)
        for line in requirements:
            if "extra ==" not in line and (match := re.match(r"[\w.-]+", line)):
                waiting.append(match[0])
    return found


def normal(name: str) -> str:
    """The name of a package as indexes compare it."""
    return _NAME.sub("-", name).lower()


def write(path: Path, entry: dict[str, Any]) -> None:
    """Write an entry to the list, where those of other platforms stay."""
    stored: dict[str, Any] = {"version": 1, "platforms": {}}
    if path.is_file():
        stored = json.loads(path.read_text(encoding="utf-8"))
    rest = {name: value for name, value in entry.items() if name != "platform"}
    stored["platforms"][entry["platform"]] = rest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _row(package: dict[str, Any]) -> dict[str, Any]:
    """A package's row. Raises Trouble when its file cannot be asked for."""
    url = package["download_info"]["url"]
    sha256 = package["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    name = urllib.parse.unquote(url.rpartition("/")[2])
    if not sha256:
        raise Trouble(f"The index states no SHA-256 of {name}, by which users would check it.")
    say(f"Reading the end of {name}…")
    try:
        archive, size = _archive(url)
        with archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise Trouble(f"{name} could not be read: {error}.") from error
    return {
        "name": name,
        "url": url,
        "size_bytes": size,
        "sha256": sha256,
        "unpacked_bytes": unpacked,
    }


def _archive(url: str) -> tuple[zipfile.ZipFile, int]:
    """A wheel on a server, of which only what is asked for is read, and its size."""
    file = _RemoteFile(url)
    return zipfile.ZipFile(io.BufferedReader(file, _TAIL_BYTES)), file.size


class _RemoteFile(io.RawIOBase):
    """A file on a server, read in ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        with self._open({}, "HEAD") as response:
            self.size = int(response.headers["Content-Length"] or 0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self.size)
        if end <= self._at:
            return 0
        with self._open({"Range": f"bytes={self._at}-{end - 1}"}) as response:
            if response.status != 206:
                raise OSError("the server sends no parts of files")
            content = response.read()
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def _open(self, headers: dict[str, str], method: str = "GET") -> Any:
        request = urllib.request.Request(self._url, headers=headers, method=method)
        return urllib.request.urlopen(request, timeout=_SECONDS)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
