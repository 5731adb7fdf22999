"""The list of the packages of GPU support, made from a package index on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import environment
import gpu_driver
import gpu_wheels
from app.downloads.gpu_packages import GPUInstall, remove
from downloading import QUICK
from engine import read_gpu_wheels
from environment import Trouble
from gpu_packages import FILES, TRITON, unpacked_bytes, wheel
from hostile_hub import Hub, running
from kernels.cuda import driver_module

PINNED = environment.pins(Path(environment.ROOT) / "packaging" / "requirements.txt")["torch"]


# A start of the program: where torch would be imported from.
START = """
import sys
from pathlib import Path
from engine import gpu_support
sys.path.append(sys.argv[2])
from gpu_packages import GPU
gpu_support.use(Path(sys.argv[1]), lambda: (GPU,))
import importlib.util
print(importlib.util.find_spec("torch").origin)
"""


class Index:
    """A package index: its pages on one server, its files on another."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.folder, self.hub = folder, hub
        self.files: dict[str, bytes] = {}
        self.address = ""

    def put(self, name: str, version: str, files: dict[str, str], *requires: str) -> None:
        lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
        file, content = wheel(name, version, files, lines)
        self.files[file] = content
        self.hub.put(f"pkgs/gpu/{file}", content)
        page = self.folder / "simple" / gpu_wheels.normal(name) / "index.html"
        page.parent.mkdir(parents=True)
        url = (
            f"{self.hub.endpoint}/cdn/pkgs/gpu/{file}#sha256={hashlib.sha256(content).hexdigest()}"
        )
        page.write_text(f'<html><body><a href="{url}">{file}</a></body></html>', encoding="utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    with running() as hub:
        made = Index(tmp_path, hub)
        made.address = f"http://127.0.0.1:{server.server_address[1]}/simple"
        yield made
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_list_has_what_the_cuda_build_needs_beyond_the_other_one(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.put(
        "torch", PINNED, FILES, "triton==3.7.1", "nvidia-cudnn-cu13==9.20.0", "typing-extensions"
    )
    driver = {
        gpu_driver.SOURCE: '#include "cuda.h"\n#include <Python.h>\nint stand_in = CUDA;\n',
        gpu_driver.HEADER: "#define CUDA 13\n",
        "triton-3.7.1.dist-info/licenses/LICENSE": "MIT",
    }
    index.put("triton", "3.7.1", TRITON | driver)
    index.put("nvidia_cudnn_cu13", "9.20.0", {"nvidia/cudnn/lib/libcudnn.so.9": "library"})
    index.put("typing_extensions", "4.16.0", {"typing_extensions.py": ""})
    path = tmp_path / "made" / "gpu_wheels.json"
    assert gpu_wheels.main([index.address, "--out", str(path)]) == 0, capsys.readouterr().err
    found = read_gpu_wheels(path)
    assert found is not None
    assert (found.torch, found.driver, found.capability) == (PINNED, "580.65.06", (8, 0))
    names = [each.name for each in found.wheels]
    assert [name.partition("-")[0] for name in names] == ["nvidia_cudnn_cu13", "torch", "triton"]
    for each in found.wheels:
        content = index.files[each.name]
        assert each.size_bytes == len(content)
        assert each.sha256 == hashlib.sha256(content).hexdigest()
        assert each.unpacked_bytes == unpacked_bytes(content)
        assert each.url.startswith(index.hub.endpoint)
    source = driver[gpu_driver.SOURCE].encode()
    assert driver_module.compiled(source, path.parent) is not None
    assert driver_module.compiled(source + b"\n", path.parent) is None, "of another source"
    assert (path.parent / "triton.txt").read_text(encoding="utf-8") == "MIT"


def test_an_index_without_a_cuda_build_is_refused(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.put("torch", PINNED, FILES)
    path = tmp_path / "made.json"
    assert gpu_wheels.main([index.address, "--out", str(path)]) == 1
    assert "no CUDA build of torch with Triton" in capsys.readouterr().err
    assert not path.exists()


def test_what_the_index_has_is_fetched_tried_used_after_a_restart_and_removed(
    index: Index, tmp_path: Path
) -> None:
    version = {"torch/version.py": f"__version__ = '{PINNED}+cu130'\ncuda = '13.0'\n"}
    index.put("torch", PINNED, FILES | version, "triton==3.7.1", "nvidia-cudnn-cu13==9.20.0")
    driver = {gpu_driver.SOURCE: "int stand_in;\n", gpu_driver.HEADER: "", "x/LICENSE": "MIT"}
    index.put("triton", "3.7.1", TRITON | driver)
    index.put("nvidia_cudnn_cu13", "9.20.0", {"nvidia/cudnn/lib/libcudnn.so.9": "library"})
    written, folder = tmp_path / "made" / "gpu_wheels.json", tmp_path / "data" / "gpu"
    assert gpu_wheels.main([index.address, "--out", str(written)]) == 0
    wanted = read_gpu_wheels(written)
    assert wanted is not None
    GPUInstall(folder, wanted, limits=QUICK).run()  # the trial is a process
    asked = len(index.hub.requests)

    def torch_of_a_start() -> str:
        done = subprocess.run(
            [sys.executable, "-c", START, folder, environment.ROOT / "tests" / "support"],
            cwd=environment.ROOT,
            env={**os.environ, "TOKONOMA_GPU_WHEELS": str(written)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert torch_of_a_start() == str(folder / wanted.name / "torch" / "__init__.py")
    remove(folder)
    assert "gpu" not in Path(torch_of_a_start()).parts
    assert not list(folder.iterdir())
    assert len(index.hub.requests) == asked, "nothing is asked for by a start"


def test_a_triton_that_is_not_the_one_of_the_index_is_not_compiled(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.put("torch", PINNED, FILES, "triton==3.7.1", "nvidia-cudnn-cu13==9.20.0")
    driver = {gpu_driver.SOURCE: "#error planted\n", gpu_driver.HEADER: "", "x/LICENSE": "MIT"}
    index.put("triton", "3.7.1", TRITON | driver)
    index.put("nvidia_cudnn_cu13", "9.20.0", {"nvidia/cudnn/lib/libcudnn.so.9": "library"})
    file, other = wheel("triton", "3.7.1", TRITON | driver | {"x/LICENSE": "BSD"})
    path = tmp_path / "made" / "gpu_wheels.json"
    entry = gpu_wheels.list_of(gpu_wheels.resolve(index.address, PINNED), PINNED)
    index.hub.put(f"pkgs/gpu/{file}", other)
    with pytest.raises(Trouble, match="SHA-256 differs"):
        gpu_wheels.add_driver(path.parent, entry["wheels"])


def test_an_index_without_hashes_is_refused() -> None:
    info = {"url": "http://127.0.0.1:9/triton-3.7.1-py3-none-any.whl", "archive_info": {}}
    with pytest.raises(Trouble, match="no SHA-256 of triton"):
        gpu_wheels.list_of(
            [
                {"metadata": {"name": name}, "download_info": info}
                for name in ("triton", "nvidia-x-cu13")
            ],
            PINNED,
        )


def test_a_cuda_of_unknown_drivers_is_refused() -> None:
    rows = [
        {"metadata": {"name": name}, "download_info": {}} for name in ("triton", "nvidia-x-cu99")
    ]
    with pytest.raises(Trouble, match="add it to DRIVERS"):
        gpu_wheels.list_of(rows, PINNED)


def test_the_entries_of_other_platforms_stay(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    for platform in ("cp311-linux-x86_64", "cp311-win32-amd64"):
        gpu_wheels.write(path, {"platform": platform, "wheels": []})
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert sorted(stored["platforms"]) == ["cp311-linux-x86_64", "cp311-win32-amd64"]
