"""Where model files live on this machine, and how a name becomes a path.

It knows file names only and opens nothing, so the window can list models before torch is loaded.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.errors import RequestError

# What a file name says of its layout: "-Q4_K_M", ".Q4_1", "-q8_0", "-F16", "-MXFP4".
_LAYOUT = re.compile(r"[-_.](?:I?Q\d\w*|[PT]+Q\d\w*|B?F\d+|MXFP4|NVFP4)$", re.IGNORECASE)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_DEEPEST = 6  # folders below one that is looked through; a cache of the hub is five deep
_MOST_PARTS = 1000  # of one model; a name may claim any number


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


def bundled_models_folder() -> Path | None:
    """The folder of models inside a bundled app, which nobody may change; None outside of one."""
    inside = getattr(sys, "_MEIPASS", None)
    return Path(inside) / "models" if inside else None


def starter_path() -> Path:
    """Where the starter model is installed, or belongs; the bundled one when no other is."""
    installed, bundled = models_folder() / STARTER.file, bundled_models_folder()
    return installed if bundled is None or installed.is_file() else bundled / STARTER.file


def installed_models(folders: Sequence[Path] = ()) -> list[Path]:
    """Every model by name, the starter first; a split model is its first part.

    Looks in the app's own folder and in `folders`, which may be missing or unreadable, and in what
    lies below them. A file that is reached twice is listed once, hidden files and folders never.
    A bundled starter is listed unless another one is installed.
    """
    found: dict[Path, Path] = {}
    starter = starter_path()
    if bundled_models_folder() == starter.parent and starter.is_file():
        found[_real(starter)] = starter
    for folder in (models_folder(), *folders):
        for path in _models_below(folder):
            found.setdefault(_real(path), path)
    return sorted(
        found.values(),
        key=lambda path: (path.name != STARTER.file, path.name.lower(), str(path)),
    )


def model_parts(path: Path) -> list[Path]:
    """The files that make up a model, in order; parts that are missing are left out."""
    part = _PART.search(path.name)
    if part is None:
        return [path]
    wanted = (
        path.with_name(f"{path.name[: part.start()]}-{number:05}-of-{part[2]}{path.name[-5:]}")
        for number in range(1, min(int(part[2]), _MOST_PARTS) + 1)
    )
    return [each for each in wanted if each == path or each.is_file()]


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


def _models_below(folder: Path) -> Iterator[Path]:
    """Model files in a folder and below it, links to files included, links to folders not."""
    for place, folders, files in os.walk(folder):  # what cannot be read is passed over
        here = Path(place)
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        for name in files:
            path = here / name
            if path.suffix.lower() == ".gguf" and name[0] != "." and _is_first_part(path):
                yield path


def _real(path: Path) -> Path:
    """The file itself, whatever links lead to it."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return path


def _is_first_part(path: Path) -> bool:
    """Whether the file stands alone or is part 1 of a split model."""
    part = _PART.search(path.name)
    return part is None or int(part[1]) == 1
