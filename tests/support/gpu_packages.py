"""Stand-ins of the packages of GPU support: small wheels with a torch that reports a GPU.

The fake torch and NVML know only what the program asks before a model is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from engine import NvidiaGPU
from engine.machine.gpu_wheels import platform_key

GPU = NvidiaGPU("NVIDIA H100", 80 << 30, (9, 0), "580.65.06")
VERSION = "2.13.0"
TORCH = '''
"""A torch that reports a GPU."""
from . import cuda, version
__version__ = version.__version__
def set_grad_enabled(on): pass
def set_num_threads(count): pass
class ones:
    """A tensor of ones on the GPU."""
    def __init__(self, count, device): self.count = count
    def sum(self): return self
    def item(self): return self.count
'''
CUDA = """
def is_available(): return True
def device_count(): return 1
def get_device_name(number=0): return "NVIDIA H100"
def get_device_capability(number=0): return (9, 0)
def mem_get_info(number=0): return (70 << 30, 80 << 30)
"""
FILES = {
    "torch/__init__.py": TORCH,
    "torch/cuda.py": CUDA,
    "torch/version.py": f"__version__ = '{VERSION}+cu130'\ncuda = '13.0'\n",
    "torch/lib/libtorch_cuda.so": random.Random(1).randbytes(40_000).hex(),
}
TRITON = {
    "triton/__init__.py": "",
    "triton/backends/nvidia/bin/ptxas": "#!/bin/sh\n",
    "triton-3.7.1.data/scripts/proton": "#!python\n",
}
NVML = r"""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strncpy(t, "580.65.06", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(i + 1L); return i > 1; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) { strncpy(t, "NVIDIA H100", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) {
  m[0] = 80ULL << 30; m[1] = 70ULL << 30; m[2] = 10ULL << 30; return d == (void *)2L;
}
"""


def wheel(
    name: str, version: str, files: Mapping[str, str | bytes], more: str = ""
) -> tuple[str, bytes]:
    """File name and content of a wheel; `more` are further lines of its metadata."""
    info = f"{name}-{version}.dist-info"
    content = {path: _bytes(text) for path, text in files.items()}
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}".encode()
    )
    rows = [f"{path},sha256={_digest(body)},{len(body)}" for path, body in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/bin/" in path else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, body)
    return f"{name}-{version}-py3-none-any.whl", made.getvalue()


def wheels(changed: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The wheels by file name; `changed` are other files of torch."""
    files = FILES | (changed or {})
    return dict([wheel("torch", VERSION, files), wheel("triton", "3.7.1", TRITON)])


def write_list(path: Path, made: Mapping[str, bytes], address: str = "http://127.0.0.1:9") -> Path:
    """Write the list of these wheels, below an address."""
    rows = [
        {
            "name": name,
            "url": f"{address}/{name}",
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "unpacked_bytes": unpacked_bytes(content),
        }
        for name, content in made.items()
    ]
    entry: dict[str, object] = {"torch": VERSION, "driver": "580.65.06", "capability": [8, 0]}
    entry["wheels"] = rows
    path.write_text(
        json.dumps({"version": 1, "platforms": {platform_key(): entry}}), encoding="utf-8"
    )
    return path


def unpacked_bytes(content: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def unpack(folder: Path, files: Mapping[str, str] = FILES) -> None:
    """Write files of a package, as if unpacked."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def build_nvml(compiler: str, folder: Path) -> Path:
    """Compile a library that answers like NVML on a computer with two GPUs."""
    made, source = folder / "libnvidia-ml.so.1", folder / "nvml.c"
    source.write_text(NVML, encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
