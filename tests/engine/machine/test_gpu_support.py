"""Installed GPU support in processes of their own: used, not used, and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine import FileLock, gpu_support, read_gpu_wheels
from gpu_packages import CUDA, FILES, TORCH, unpack, wheels, write_list

ROOT = Path(__file__).parents[3]
NO_KERNEL = "CUDA error: no kernel image is available"  # of a GPU that torch is not built for
# The program's own torch; then what a process does first, and what it prints of it.
OWN = "__version__ = '2.13.0+cpu'\nfrom . import version\ndef set_grad_enabled(on): pass\n"
SCRIPT = """
import json, sys
from pathlib import Path
from engine import gpu_support
from engine.machine import torch_library
sys.path.insert(0, sys.argv[1])
from gpu_packages import GPU
gpus = () if "no gpu" in sys.argv else (GPU,)
gpu_support.use(Path(sys.argv[2]), lambda: gpus)
before = gpu_support.status().use.value
torch_library.load()
import importlib.util
if "numpy" in sys.argv:
    import numpy
import torch
status = gpu_support.status()
triton = importlib.util.find_spec("triton").origin
assert triton.startswith(sys.argv[2]) is torch.__file__.startswith(sys.argv[2]), triton
print(json.dumps([torch.__version__, before, status.use.value, status.detail]))
"""


class Installed:
    """GPU support that is unpacked and active, beside a program with its own torch."""

    def __init__(self, folder: Path, changed: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "dåta ユーザー" / "gpu"
        self.own = folder / "own"
        own = {"torch/__init__.py": OWN, "torch/version.py": "cuda = None\n"}
        unpack(self.own, {**own, "triton/__init__.py": ""})
        self.list = write_list(folder / "wheels.json", wheels())
        wanted = read_gpu_wheels(self.list)
        assert wanted is not None
        self.name = wanted.name
        unpack(self.folder / self.name, {**FILES, "triton/__init__.py": "", **(changed or {})})
        gpu_support.activate(self.folder, self.name)

    def run(self, *words: str, list: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, ROOT / "tests/support", self.folder, *words],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(self.own), str(ROOT)]),
                "TOKONOMA_GPU_WHEELS": str(list or self.list),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, *words: str, list: Path | None = None) -> tuple[str, str, str, str]:
        """Version of torch, the state before it was imported, the state, details."""
        done = self.run(*words, list=list)
        assert done.returncode == 0, done.stderr
        version, before, use, detail = json.loads(done.stdout)
        return version, before, use, detail


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_torch_comes_from_the_folder(installed: Installed) -> None:
    assert installed.start() == ("2.13.0+cu130", "undecided", "in use", "")
    assert not (installed.folder / "loading").exists(), "it has loaded"
    assert json.loads((installed.folder / "tried.json").read_text(encoding="utf-8"))["error"] == ""


def test_it_is_tried_once_for_a_driver(installed: Installed) -> None:
    installed.start()
    tried = installed.folder / "tried.json"
    values = json.loads(tried.read_text(encoding="utf-8"))
    tried.write_text(json.dumps({**values, "error": "planted"}), encoding="utf-8")
    assert installed.start()[2:] == ("failed", "planted"), "the kept result is used"
    tried.write_text(
        json.dumps({**values, "driver": "575.1", "error": "planted"}), encoding="utf-8"
    )
    assert installed.start()[2] == "in use", "another driver: tried again"
    tried.write_text(
        json.dumps({**values, "gpus": ["NVIDIA Tesla K80"], "error": "planted"}), encoding="utf-8"
    )
    assert installed.start()[2] == "in use", "another GPU: tried again"
    if sys.platform == "linux":
        tried.write_text(
            json.dumps({**values, "boot": "another", "error": "planted"}), encoding="utf-8"
        )
        assert installed.start()[2] == "in use", "the computer was started again"


def test_packages_that_the_program_has_too_are_its_own(tmp_path: Path) -> None:
    with_numpy = Installed(tmp_path, {"numpy/__init__.py": "raise ImportError('the other numpy')"})
    assert with_numpy.start("numpy")[2] == "in use"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"folder": "../../etc"}'])
def test_a_damaged_record_means_that_nothing_is_installed(
    installed: Installed, content: str
) -> None:
    (installed.folder / "active.json").write_text(content, encoding="utf-8")
    assert installed.start()[:1] + installed.start()[2:3] == ("2.13.0+cpu", "none")


def test_without_a_gpu_the_own_torch_is_used(installed: Installed) -> None:
    version, _, use, _ = installed.start("no gpu")
    assert (version, use) == ("2.13.0+cpu", "no gpu")


def test_packages_of_another_release_are_not_used(installed: Installed, tmp_path: Path) -> None:
    other = write_list(tmp_path / "other.json", wheels({"torch/cuda.py": CUDA + "\n"}))
    version, _, use, detail = installed.start(list=other)
    assert (version, use, detail) == ("2.13.0+cpu", "other version", installed.name)
    none = tmp_path / "none.json"
    none.write_text('{"version": 1, "platforms": {}}', encoding="utf-8")
    assert installed.start(list=none)[2] == "other version"


def test_a_missing_or_cut_library_is_named(installed: Installed) -> None:
    library = installed.folder / installed.name / "torch/lib/libtorch_cuda.so"
    library.write_bytes(library.read_bytes()[:-1])
    assert installed.start()[2:] == ("incomplete", "torch/lib/libtorch_cuda.so")
    library.unlink()
    version, _, use, _ = installed.start()
    assert (version, use) == ("2.13.0+cpu", "incomplete")


def test_a_crash_while_loading_is_not_repeated(installed: Installed) -> None:
    installed.start()  # tried
    place = installed.folder / installed.name / "torch/__init__.py"
    place.write_text(
        "import os\nos.abort()\n", encoding="utf-8"
    )  # a crash that the trial did not show
    assert installed.run().returncode not in (0, 1)
    version, _, use, _ = installed.start()
    assert (version, use) == ("2.13.0+cpu", "crashed")
    place.write_text(TORCH, encoding="utf-8")
    assert installed.start()[2] == "crashed", "until the user tries it again"
    gpu_support.forget_failure(installed.folder)
    assert installed.start()[2] == "in use"


def test_a_file_that_a_crash_left_counts_whatever_else_runs(installed: Installed) -> None:
    loading = installed.folder / "loading"
    loading.write_text(json.dumps({"process": os.getpid()}), encoding="utf-8")
    assert installed.start()[2] == "crashed", "numbers of processes are given again"


def test_another_process_that_loads_it_has_not_crashed(installed: Installed) -> None:
    lock = FileLock(installed.folder / "loading")
    try:
        assert installed.start()[2] == "in use"
        assert (installed.folder / "loading").exists(), "it tells of the other process"
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os\nos.abort()\n", "crashed (-6)"),
        ("raise ImportError('libcudart.so.13: no such file')\n", "libcudart.so.13: no such file"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("from . import version\nversion.cuda = None\n", "not a build for CUDA"),
        (
            TORCH
            + f"class ones:\n  def __init__(self, *_, **__): raise RuntimeError('{NO_KERNEL}')\n",
            NO_KERNEL,
        ),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="the numbers of signals")
def test_what_does_not_work_shows_in_its_trial(tmp_path: Path, code: str, reason: str) -> None:
    broken = Installed(tmp_path, {"torch/__init__.py": code})
    for _ in range(2):
        version, _, use, detail = broken.start()
        assert (version, use) == ("2.13.0+cpu", "failed")
        assert reason in detail
    assert not (broken.folder / "loading").exists()


def test_triton_is_tried_too(tmp_path: Path) -> None:
    broken = Installed(tmp_path, {"triton/__init__.py": "import no_such_module\n"})
    version, _, use, detail = broken.start()
    assert (version, use) == ("2.13.0+cpu", "failed")
    assert "no_such_module" in detail


def test_an_import_that_fails_later_falls_back_to_the_own_torch(installed: Installed) -> None:
    installed.start()  # tried
    cuda = installed.folder / installed.name / "torch/cuda.py"
    cuda.write_text(
        "raise OSError('libcublas.so.13: cannot open shared object file')\n", encoding="utf-8"
    )
    version, _, use, detail = installed.start()
    assert (version, use) == ("2.13.0+cpu", "failed")
    assert "libcublas.so.13" in detail
    assert installed.start()[2:] == ("failed", detail), "kept"


def test_a_gpu_that_fails_later_leaves_torch_usable(installed: Installed) -> None:
    installed.start()  # tried
    cuda = installed.folder / installed.name / "torch/cuda.py"
    cuda.write_text(CUDA + "def is_available(): return False\n", encoding="utf-8")
    version, _, use, detail = installed.start()
    assert (version, use) == ("2.13.0+cu130", "failed")
    assert "no GPU" in detail
    assert installed.start()[0] == "2.13.0+cpu"


def test_it_is_no_longer_used_once_removed(installed: Installed) -> None:
    gpu_support.deactivate(installed.folder)
    assert gpu_support.active_name(installed.folder) == ""
    version, before, use, _ = installed.start()
    assert (version, before, use) == ("2.13.0+cpu", "none", "none")


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "0" * 63},
        {"name": "../torch.whl"},
        {"name": "torch.exe"},
        {"name": ["torch.whl"]},
        {"url": ""},
        {"size_bytes": 0},
        {"size_bytes": True},
        {"unpacked_bytes": -1},
        {"more": 1},
    ],
)
def test_an_invalid_list_offers_nothing(tmp_path: Path, change: dict[str, object]) -> None:
    path = write_list(tmp_path / "wheels.json", wheels())
    assert read_gpu_wheels(path) is not None
    stored = json.loads(path.read_text(encoding="utf-8"))
    next(iter(stored["platforms"].values()))["wheels"][0] |= change
    path.write_text(json.dumps(stored), encoding="utf-8")
    assert read_gpu_wheels(path) is None


def test_the_list_in_the_repository_offers_nothing() -> None:
    assert read_gpu_wheels() is None, "addresses come with a release"
