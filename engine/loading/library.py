"""Installed model files: folders, discovery by file name, and resolving a name to a path.

No file is opened and torch is not imported, so the window can list models at startup.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.errors import RequestError
from kernels.weights.formats import FORMATS

FORMAT_NAMES = tuple(row.name for row in FORMATS.values())  # those this version runs
# The quantization suffix of a file name: "-Q4_K_M", ".Q4_1", "-q8_0", "-F16", "-MXFP4".
# "UD-" and "i1-" before it say how it was made.
_QUANTIZATION = re.compile(
    rf"(?:[-_.](?:UD|i1))?[-_.](?:I?Q\d\w*|[PT]+Q\d\w*|B?F\d+|{'|'.join(FORMAT_NAMES)})$",
    re.IGNORECASE,
)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_MAX_DEPTH = 6  # nested folders searched; a Hugging Face hub cache has five levels
_MAX_PARTS = 1000  # of one split model; a file name may state any number

PORTABLE = "Data"  # folder that makes a bundled app portable


@dataclass(frozen=True, slots=True)
class Starter:
    """The starter model that comes with every installation."""

    file: str
    size_bytes: int
    sha256: str


STARTER = Starter(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def home_folder() -> Path | None:
    """The one folder of all the user's files: TOKONOMA_HOME, or `Data` beside a bundled program.

    None without either: then they are in the user's folders of this system.
    """
    if home := os.environ.get("TOKONOMA_HOME"):
        return Path(home)
    beside = Path(sys.executable).parent / PORTABLE
    return beside if getattr(sys, "frozen", False) and beside.is_dir() else None


def data_folder() -> Path:
    """The user's data folder."""
    home = home_folder()
    if home is not None:
        return home / "data"
    return platformdirs.user_data_path("Tokonoma", appauthor=False)


def models_folder() -> Path:
    """The folder of installed models; it may not exist yet."""
    return data_folder() / "models"


def gpu_support_folder() -> Path:
    """The folder of installed GPU support; it may not exist yet."""
    return data_folder() / "gpu"


def bundled_models_folder() -> Path | None:
    """The read-only models folder inside a bundled app; None when not running from a bundle."""
    inside = getattr(sys, "_MEIPASS", None)
    return Path(inside) / "models" if inside else None


def starter_path() -> Path:
    """The path of the starter model, installed or not; the bundled copy if none is installed."""
    installed, bundled = models_folder() / STARTER.file, bundled_models_folder()
    return installed if bundled is None or installed.is_file() else bundled / STARTER.file


@dataclass(frozen=True, slots=True)
class FolderSearch:
    """What was found below one folder, through links to other folders as well."""

    models: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()  # that were searched
    skipped: tuple[Path, ...] = ()  # links to folders that are missing, or that lead back up


@dataclass(frozen=True, slots=True)
class ModelSearch:
    """The installed models, and what was found in each folder."""

    models: tuple[Path, ...]  # as `installed_models` lists them
    folders: dict[Path, FolderSearch]


def installed_models(folders: Sequence[Path] = ()) -> list[Path]:
    """All installed models sorted by name, the starter first; a split model as its first part.

    Searches the models folder and `folders` recursively; missing or unreadable folders are skipped.
    A file reached through several links is listed once; hidden files and folders are skipped. A
    bundled starter is listed unless it is also installed.
    """
    return list(search_models(folders).models)


def search_models(folders: Sequence[Path] = ()) -> ModelSearch:
    """Search the models folder and `folders`, as `installed_models` does."""
    found: dict[Path, Path] = {}
    starter = starter_path()
    if bundled_models_folder() == starter.parent and starter.is_file():
        found[_real(starter)] = starter
    searches = {folder: _search(folder) for folder in (models_folder(), *folders)}
    for search in searches.values():
        for path in search.models:
            found.setdefault(_real(path), path)
    models = sorted(
        found.values(),
        key=lambda path: (path.name != STARTER.file, path.name.lower(), str(path)),
    )
    return ModelSearch(tuple(models), searches)


def model_parts(path: Path) -> list[Path]:
    """The files of a possibly split model, in order; missing parts are left out."""
    part = _PART.search(path.name)
    if part is None:
        return [path]
    wanted = (
        path.with_name(f"{path.name[: part.start()]}-{number:05}-of-{part[2]}{path.name[-5:]}")
        for number in range(1, min(int(part[2]), _MAX_PARTS) + 1)
    )
    return [each for each in wanted if each == path or each.is_file()]


def find_model(name: str) -> Path:
    """Resolve a path, the name of an installed model, or `starter`; raises RequestError."""
    if name == "starter":
        path = starter_path()
        if not path.is_file():
            raise RequestError(
                "The starter model is not installed.",
                "Give the path of a GGUF file; in a checkout, `python3 packaging/dev.py run` "
                "fetches the starter model.",
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
    """Display name of a model: its file name without part number, quantization and hyphens.

    The metadata key `general.name` is often the name of a training run.
    """
    stem = _PART.sub("", path.name).removesuffix(path.suffix)
    return _QUANTIZATION.sub("", stem).replace("-", " ").replace("_", " ").strip() or path.name


def model_label(path: Path) -> str:
    """The display name with the quantization in the file name, which tells copies of it apart."""
    stem = _PART.sub("", path.name).removesuffix(path.suffix)
    found = _QUANTIZATION.search(stem)
    layout = found[0].strip("-_.").upper() if found else ""
    return f"{model_name(path)} · {layout}" if layout else model_name(path)


def _search(folder: Path) -> FolderSearch:
    """Search below a folder; a folder that several links lead to is searched once, by its own name.

    Links to folders are followed after everything else, and to no folder that holds the link.
    """
    models: list[Path] = []
    searched: dict[Path, Path] = {}  # real path to the path it was reached by
    skipped: list[Path] = []
    pending = [folder]
    for start in pending:
        real = _real(start)
        if start is not folder and (
            not start.is_dir() or start.parent.resolve().is_relative_to(real)
        ):
            skipped.append(start)
            continue
        for parent, folders, files in os.walk(start):  # skips unreadable folders
            here = Path(parent)
            real = _real(here)
            if real in searched:
                folders[:] = []
                continue
            searched[real] = here
            is_deepest = len(here.relative_to(folder).parts) >= _MAX_DEPTH
            below = [] if is_deepest else [name for name in folders if not name.startswith(".")]
            folders[:] = [name for name in below if not _is_link(here / name)]
            pending += [here / name for name in below if _is_link(here / name)]
            for name in files:
                path = here / name
                if name.startswith("."):
                    continue
                if path.suffix.lower() == ".gguf":
                    models += [path] if _is_first_part(path) else []
                elif not is_deepest and path.is_symlink() and not path.exists():
                    pending.append(path)
    return FolderSearch(tuple(models), tuple(searched.values()), tuple(skipped))


def _is_link(path: Path) -> bool:
    """Whether a folder is a link, or a junction of Windows."""
    return path.is_symlink() or getattr(os.path, "isjunction", _no_junction)(path)


def _no_junction(path: Path) -> bool:
    """Before Python 3.12 junctions look like folders."""
    return False


def _real(path: Path) -> Path:
    """The path with links resolved."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # links in a loop
        return path


def _is_first_part(path: Path) -> bool:
    """Whether the file is a whole model or part 1 of a split one."""
    part = _PART.search(path.name)
    return part is None or int(part[1]) == 1
