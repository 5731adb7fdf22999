"""Where model files live on this machine, and how a name becomes a path.

It knows file names only and opens nothing, so the window can list models before torch is loaded.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.errors import RequestError

# What a file name says of its layout: "-Q4_K_M", ".Q4_1", "-q8_0", "-F16", "-MXFP4".
_LAYOUT = re.compile(r"[-_.](?:I?Q\d\w*|[PT]+Q\d\w*|B?F\d+|MXFP4|NVFP4)$", re.IGNORECASE)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Starter:
    """The model every installation begins with."""

    file: str
    size_bytes: int
    sha256: str


STARTER = Starter(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def data_folder() -> Path:
    """The user's data folder; the variable TOKONOMA_HOME moves everything into one place."""
    home = os.environ.get("TOKONOMA_HOME")
    if home:
        return Path(home) / "data"
    return platformdirs.user_data_path("Tokonoma", appauthor=False)


def models_folder() -> Path:
    """The folder that holds installed models; it may not exist yet."""
    return data_folder() / "models"


def starter_path() -> Path:
    """Where the starter model is installed, whether or not it is there."""
    return models_folder() / STARTER.file


def installed_models() -> list[Path]:
    """Every installed model by name, the starter first; a split model is its first part."""
    folder = models_folder()
    files = (
        sorted(folder.rglob("*.gguf"), key=lambda path: path.name.lower())
        if folder.is_dir()
        else []
    )
    return sorted(
        (path for path in files if _is_first_part(path)), key=lambda path: path.name != STARTER.file
    )


def find_model(name: str) -> Path:
    """The path of a model given as a path, as an installed model's name, or as `starter`."""
    if name == "starter":
        path = starter_path()
        if not path.is_file():
            raise RequestError(
                "The starter model is not installed.",
                "Run `python3 packaging/dev.py run` once, or give the path of a GGUF file.",
            )
        return path
    if Path(name).exists():
        return Path(name)
    for path in installed_models():
        if name.lower() in (path.name.lower(), path.stem.lower()):
            return path
    known = ", ".join(path.stem for path in installed_models()) or "none"
    raise RequestError(
        f"There is no model {name!r}: it is neither a file nor an installed model.",
        f"Give the path of a GGUF file, or one of the installed models ({known}).",
    )


def model_name(path: Path) -> str:
    """What to call a model: its file's name without part, layout and hyphens.

    A file's own `general.name` is often the name of a training run.
    """
    stem = _PART.sub("", path.name).removesuffix(path.suffix)
    return _LAYOUT.sub("", stem).replace("-", " ").replace("_", " ").strip() or path.name


def _is_first_part(path: Path) -> bool:
    """Whether the file stands alone or is part 1 of a split model."""
    part = _PART.search(path.name)
    return part is None or int(part[1]) == 1
