"""GPU support: a folder with the CUDA build of torch, used instead of the one for processors.

The window fetches it (`app.library.gpu_support`); here is what makes a process use it. `use` puts a
finder before Python's own, which decides when torch is first imported: only then is the folder
looked at. It is used if it is of this version, whole, was tried in a process of its own with the
driver that runs now, and did not end the last process that loaded it.

In the folder `gpu` of the user's data:

- `active.json`: which folder is used, with the sizes of its libraries;
- `tried.json`: the driver and GPUs that it was tried with, and the error if it failed; such a one is
  tried again after the computer was started again;
- `loading`: locked by the process that loads it, and left behind, not locked, by one that crashed.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, cast

from engine.machine import disk_files
from engine.machine.file_lock import FileLock, FileLockHeld
from engine.machine.gpu_wheels import read_list
from engine.machine.nvidia import NvidiaGPU, nvidia_gpus, version_of

TRIAL_FLAG = "--try-gpu-support"  # of the program: be the process that tries a folder
_REPLACED = ("torch", "torchgen", "functorch", "triton")  # packages taken from the folder first
_TRIAL_SECONDS = 300.0  # torch's libraries are read from a slow disk
_ACTIVE, _TRIED, _LOADING = "active.json", "tried.json", "loading"
STATE_FILES = (_ACTIVE, _TRIED, _LOADING)
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # Linux
_LIBRARIES = (".so", ".dll", ".pyd")
_log = logging.getLogger(__name__)


class GPUSupportUse(Enum):
    """Whether a process uses the installed GPU support, and why not."""

    NONE = "none"  # nothing is installed
    UNDECIDED = "undecided"  # torch was not imported yet
    IN_USE = "in use"
    OTHER_VERSION = "other version"  # installed for another version of this program
    NO_GPU = "no gpu"  # no GPU or no driver now
    OLD_DRIVER = "old driver"
    INCOMPLETE = "incomplete"  # files are missing
    CRASHED = "crashed"  # the last process that loaded it ended while it did
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GPUSupport:
    """What became of the installed GPU support in this process."""

    use: GPUSupportUse = GPUSupportUse.NONE
    detail: str = ""  # technical; of INCOMPLETE the name of a missing file
    folder: Path | None = None  # that is active


class _Finder(MetaPathFinder):
    """Finds torch in the folder, if it can be used."""

    def __init__(self, folder: Path, gpus: Callable[[], Sequence[NvidiaGPU]]) -> None:
        self.folder, self._gpus = folder, gpus
        self.status = GPUSupport(GPUSupportUse.UNDECIDED)
        self.place: Path | None = None  # where torch and Triton are taken from, both or none
        self.loading: FileLock | None = None  # of the file that is there while it is loaded
        self._deciding = threading.RLock()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if path is not None or fullname not in _REPLACED:
            return None
        with self._deciding:
            if self.status.use is GPUSupportUse.UNDECIDED:
                self.status = self._decide()
        if self.place is None:
            return None
        return PathFinder.find_spec(fullname, [str(self.place)])

    def _decide(self) -> GPUSupport:
        use, detail, active = _usable(self.folder, self._gpus)
        if use is GPUSupportUse.IN_USE:
            self.loading = _mark(self.folder)
            self.place = active
            sys.path.append(str(active))  # last: packages that the program has too are its own
        elif use is not GPUSupportUse.NONE:
            _log.warning("GPU support is not used: %s. %s", use.value, detail)
        return GPUSupport(use, detail, active)


_finder: _Finder | None = None


def use(folder: Path, gpus: Callable[[], Sequence[NvidiaGPU]] = nvidia_gpus) -> bool:
    """Use the GPU support installed in `folder`, if any, when torch is imported; whether there is.

    Call it once, before torch is imported. `gpus` lists the GPUs of the computer.
    """
    global _finder
    if not (folder / _ACTIVE).is_file():
        return False
    _finder = _Finder(folder, gpus)
    sys.meta_path.insert(0, _finder)
    return True


def status() -> GPUSupport:
    """What became of the installed GPU support in this process."""
    return _finder.status if _finder is not None else GPUSupport()


def load() -> None:
    """Start the driver after torch was imported from the folder; then the folder is known to work.

    A GPU that does not work leaves torch usable on the processor: the reason is kept for the next
    start, which uses the other torch.
    """
    if _finder is None or _finder.status.use is not GPUSupportUse.IN_USE:
        return
    try:
        _start_driver()
    except Exception as error:  # noqa: BLE001  torch and the driver raise many types
        _fail(_finder, error)
    _unmark(_finder)


def give_up(error: BaseException) -> bool:
    """Import torch from the folder no more after it failed; whether it was being used.

    The program's own torch is imported next.
    """
    if _finder is None or _finder.status.use is not GPUSupportUse.IN_USE:
        return False
    _fail(_finder, error)
    _unmark(_finder)
    sys.path.remove(str(_finder.place))
    _finder.place = None
    for name in [each for each in sys.modules if each.partition(".")[0] in _REPLACED]:
        del sys.modules[name]
    return True


def end() -> None:
    """The process ends as it should: what it has not loaded by now did not crash it."""
    if _finder is not None and _finder.status.use is GPUSupportUse.IN_USE:
        _unmark(_finder)


# --- called by what installs it -------------------------------------------------------------------


def activate(folder: Path, name: str) -> None:
    """Use the unpacked folder `name` from the next start on. Raises OSError."""
    inside = folder / name
    libraries = {
        path.relative_to(inside).as_posix(): path.stat().st_size
        for path in sorted(inside.rglob("*"))
        if path.is_file() and (path.suffix in _LIBRARIES or ".so." in path.name)
    }
    forget_failure(folder)
    _replace(folder / _ACTIVE, {"folder": name, "libraries": libraries})


def deactivate(folder: Path) -> None:
    """Use no folder from the next start on. Raises OSError."""
    disk_files.delete(folder / _ACTIVE)
    forget_failure(folder)


def forget_failure(folder: Path) -> None:
    """Try the folder again at the next start. Raises OSError."""
    for name in (_LOADING, _TRIED):
        disk_files.delete(folder / name)


def active_name(folder: Path) -> str:
    """The name of the folder that is used from the next start on; "" if none is."""
    name = _read(folder / _ACTIVE).get("folder")
    return name if isinstance(name, str) and Path(name).name == name else ""


def trial(folder: Path) -> str:
    """Import torch from `folder` in a new process and compute on the GPU; "" or what went wrong.

    Blocks for some seconds.
    """
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    command = (
        [sys.executable, TRIAL_FLAG, str(folder)]
        if getattr(sys, "frozen", False)
        else [
            *(sys.executable, "-c", "import sys, engine; engine.gpu_support.try_here(sys.argv[1])"),
            str(folder),
        ]
    )
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            check=False,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except subprocess.TimeoutExpired:
        return f"torch did not load within {_TRIAL_SECONDS:.0f} seconds."
    except OSError as error:
        return f"The process that tries it could not be started: {error.strerror or error}."
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = said[-1][:500] if said else ""
    if done.returncode == 1 and last:
        return last
    return f"The process that tries it crashed ({done.returncode}). {last}".strip()


def try_here(folder: str) -> NoReturn:
    """The work of the process that `trial` starts: ends it, with an error in its last line."""
    sys.meta_path.insert(0, _OnlyFolder(folder))
    sys.path.append(folder)
    try:
        import triton  # noqa: F401, PLC0415  the folder's; it is needed after the driver

        _start_driver()
        _compute()
    except BaseException as error:  # noqa: BLE001  the process ends, and its parent says why
        sys.stderr.write(f"\n{_words(error)}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # without freeing what torch has made


# --- steps ----------------------------------------------------------------------------------------


class _OnlyFolder(MetaPathFinder):
    """Finds torch in one folder, whatever else there is."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or fullname not in _REPLACED:
            return None
        return PathFinder.find_spec(fullname, [self._folder])


def _usable(
    folder: Path, gpus: Callable[[], Sequence[NvidiaGPU]]
) -> tuple[GPUSupportUse, str, Path | None]:
    """Whether the active folder can be used, technical details, and the folder."""
    active, name, wanted = _read(folder / _ACTIVE), active_name(folder), read_list()
    if not name:
        return GPUSupportUse.NONE, "", None
    place = folder / name
    if wanted is None or name != wanted.name:
        return GPUSupportUse.OTHER_VERSION, name, place
    if _crashed(folder):
        return GPUSupportUse.CRASHED, "", place
    present = gpus()
    if not present:
        return GPUSupportUse.NO_GPU, "", place
    driver, names = present[0].driver, [gpu.name for gpu in present]
    if version_of(driver) < version_of(wanted.driver):
        return GPUSupportUse.OLD_DRIVER, driver, place
    if missing := _missing(place, active.get("libraries")):
        return GPUSupportUse.INCOMPLETE, missing, place
    tried = _read(folder / _TRIED)
    now = {"folder": name, "driver": driver, "gpus": names}
    is_known = all(tried.get(key) == value for key, value in now.items())
    # A driver that failed may work after the computer was started again.
    if not is_known or (tried.get("error") and tried.get("boot") != _boot()):
        tried = {**now, "error": trial(place), "boot": _boot()}
        _write(folder / _TRIED, tried)
    if error := tried.get("error"):
        return GPUSupportUse.FAILED, str(error), place
    return GPUSupportUse.IN_USE, "", place


def _crashed(folder: Path) -> bool:
    """Whether a process ended while it loaded the folder, also with the whole computer."""
    if not (folder / _LOADING).exists():
        return False
    try:
        FileLock(folder / _LOADING).release()
    except FileLockHeld:  # a process is loading it right now
        return False
    except OSError:
        return True
    return True


def _missing(place: Path, libraries: object) -> str:
    """The first library that is not as it was unpacked; "" if all are."""
    if not isinstance(libraries, dict) or not libraries:
        return _ACTIVE
    for name, size in cast("dict[str, object]", libraries).items():
        try:
            if os.stat(disk_files.system_path(place / name)).st_size != size:
                return name
        except OSError:
            return name
    return ""


def _start_driver() -> None:
    """Import torch and start the driver; raises what they raise, or ImportError."""
    import torch  # noqa: PLC0415  the folder's

    if torch.version.cuda is None:
        raise ImportError("This torch is not a build for CUDA.")
    if not torch.cuda.is_available():
        raise ImportError("torch finds no GPU that it can use.")
    torch.cuda.mem_get_info(0)


def _compute() -> None:
    """Run a kernel of torch, which a GPU that this build is not made for refuses."""
    import torch  # noqa: PLC0415  the folder's

    if torch.ones(2, device="cuda").sum().item() != 2:
        raise ArithmeticError("The GPU computes wrongly.")


def _fail(finder: _Finder, error: BaseException) -> None:
    """Keep the error of the folder, for this driver: the next start does not use it."""
    _log.warning("GPU support failed", exc_info=error)
    tried = _read(finder.folder / _TRIED)
    _write(finder.folder / _TRIED, {**tried, "error": _words(error), "boot": _boot()})
    finder.status = GPUSupport(GPUSupportUse.FAILED, _words(error), finder.status.folder)


def _boot() -> str:
    """What tells this start of the computer from others; "" where that is not known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _words(error: BaseException) -> str:
    """An error in one line."""
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}"[:500] if first else type(error).__name__


def _mark(folder: Path) -> FileLock | None:
    """Lock the file that tells of a crash; None if it cannot be written, or another process has it."""
    try:
        lock = FileLock(folder / _LOADING)
    except (OSError, FileLockHeld) as error:
        _log.warning("%s could not be locked: %s", _LOADING, error)
        return None
    with suppress(OSError):
        disk_files.sync_folder(folder)
    return lock


def _unmark(finder: _Finder) -> None:
    """Delete the file that tells of a crash, if this process made it."""
    if finder.loading is None:
        return
    if sys.platform == "win32":  # it deletes no open file
        finder.loading.release()
    with suppress(OSError):
        disk_files.delete(finder.folder / _LOADING)
    finder.loading.release()
    finder.loading = None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is none."""
    try:
        stored: object = json.loads(disk_files.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}


def _write(path: Path, values: Mapping[str, object]) -> None:
    """Write a JSON file, or log why not: a full disk must not prevent the start."""
    try:
        _replace(path, values)
    except OSError as error:
        _log.warning("%s could not be written: %s", path.name, error.strerror)


def _replace(path: Path, values: Mapping[str, object]) -> None:
    """Atomically write a JSON file. Raises OSError."""
    text = json.dumps(values, indent=1).encode("ascii")
    disk_files.write(path, [text])  # two processes may write it at once
    disk_files.sync_folder(path.parent)
