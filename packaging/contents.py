"""Says what goes into a bundle and what stays out: modules, plugins, files, libraries.

Every entry was chosen by building without it and running the smoke test; the sizes are in
tests/benchmarks/bundle.md. Standard library only, so that the lists can be tested without a build.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

# Modules that analysis finds because somebody may import them, and that nobody here does.
EXCLUDED_MODULES = (
    # torch: compilers, exporters, and tools that need packages of their own
    "torch._dynamo",
    "torch._inductor",
    "torch.onnx",
    "torch.utils.benchmark",
    "torch.utils.bottleneck",
    "torch.utils.cpp_extension",
    "torch.utils.tensorboard",
    "torch.testing._internal.common_utils",
    "torch.testing._internal.distributed",
    "torch._export.serde",
    "torch._vendor.quack",
    "torch.ao.ns",
    "torch.ao.quantization.fx",
    "torch.fx.experimental.symbolic_shapes",
    "torch.sparse._triton_ops_meta",
    "torch.utils._sympy",
    # torch: training on many machines; the package itself must stay
    "torch.distributed._shard",
    "torch.distributed._tools",
    "torch.distributed.checkpoint",
    "torch.distributed.elastic",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor",
    "torchgen.packaged",
    "triton",
    # what only those use
    "sympy",
    "networkx",
    "mpmath",
    "setuptools",
    "pkg_resources",
    "distutils",
    "filelock",
    "fsspec",
    # what packages import to fetch or show things, to test themselves, or to build
    "huggingface_hub",
    "requests",
    "urllib3",
    "charset_normalizer",
    "rich",
    "click",
    "httpx._main",  # its command line
    "anyio",  # its asynchronous half
    "trio",
    "hypothesis",
    "pytest",
    "_pytest",
    "numpy.f2py",
    "numpy.testing",
    "numpy.distutils",
    "IPython",
    "matplotlib",
    "pandas",
    "scipy",
    "PIL",
    "psutil",
    "yaml",
    # Python's own tools for a terminal
    "tkinter",
    "curses",
    "readline",
    "pydoc",
    "pydoc_data",
    "lib2to3",
    "ensurepip",
    "idlelib",
    # Qt's modules that the window does not use
    "PySide6.QtDBus",
    "PySide6.QtOpenGL",
    "PySide6.QtTest",
)

# The plugins of Qt that stay, of all platforms; the others go, and the libraries only they need.
KEPT_PLUGINS = (
    "platforms/qxcb",
    "platforms/qwayland",
    "platforms/qwindows",
    "platforms/qcocoa",
    "platforms/qoffscreen",  # the smoke test of a machine without a display
    "platforminputcontexts/composeplatforminputcontextplugin",
    "platforminputcontexts/ibusplatforminputcontextplugin",
    "platformthemes/qxdgdesktopportal",  # file dialogs and dark mode of the desktop
    "wayland-decoration-client/adwaita",
    "wayland-decoration-client/bradient",
    "wayland-graphics-integration-client/qt-plugin-wayland-egl",
    "wayland-shell-integration/xdg-shell",
)

# Libraries of a Linux desktop that must be the machine's own: they talk to its drivers, its fonts
# and its bus, or everything else there is linked with them.
HOST_LIBRARIES = (
    "libc",
    "libm",
    "libdl",
    "librt",
    "libpthread",
    "libresolv",
    "libcrypt",
    "libutil",
    "libgcc_s",
    "libstdc++",
    "libz",
    "libGL",
    "libEGL",
    "libGLX",
    "libGLdispatch",
    "libOpenGL",
    "libdrm",
    "libgbm",
    "libX11",
    "libX11-xcb",
    "libxcb",
    "libXau",
    "libXdmcp",
    "libwayland-client",
    "libwayland-cursor",
    "libwayland-egl",
    "libfontconfig",
    "libfreetype",
    "libexpat",
    "libdbus-1",
)

# Libraries that lose their symbols, where it pays. Numpy's were rearranged after they were linked,
# which strip does not survive.
STRIPPED = re.compile(
    r"/(libtorch_cpu|libtorch_python|libc10|libpython[\d.]+|tokenizers\.abi3)\.so[\d.]*$|/lib-dynload/"
)

_PLUGIN = re.compile(r"^PySide6/(?:Qt/)?plugins/([^/]+)/(?:lib)?([^/]+)\.(?:so|dylib|dll)$")
_UNWANTED = (
    re.compile(r"^PySide6/(Qt/)?(translations|qml|metatypes|resources|typesystems|include)/"),
    re.compile(r"^PySide6/opengl32sw\.dll$"),
    re.compile(r"^certifi/cacert\.pem$"),  # the system says whom to trust
    re.compile(r"^torch/(test|include|share)/"),
    re.compile(r"^torch/bin/(?!torch_shm_manager)"),
    re.compile(
        r"^torch/lib/lib(torchbind_test|aoti_custom_ops|backend_with_compiler|jitbackend_test)"
    ),
    re.compile(r"\.(pyi|h|hpp|cuh|cpp|cmake|lib|a)$"),
    re.compile(r"^[^/]+\.(dist|egg)-info/"),
    re.compile(r"(^|/)tests?/"),
)


def wanted(name: str) -> bool:
    """Whether a file belongs in the bundle; `name` is its place there, with forward slashes."""
    plugin = _PLUGIN.match(name)
    if plugin is not None:
        return f"{plugin[1]}/{plugin[2]}" in KEPT_PLUGINS
    return not any(pattern.search(name) for pattern in _UNWANTED)


def is_host_library(name: str) -> bool:
    """Whether a library must come from the machine the bundle runs on; Linux only."""
    return PurePosixPath(name).name.split(".so", 1)[0] in HOST_LIBRARIES


def is_plain_library(name: str) -> bool:
    """Whether a binary is there only because another one needs it: no plugin, no Python module."""
    path = PurePosixPath(name)
    return path.parent.as_posix() in (".", "PySide6/Qt/lib") and not path.name.startswith(
        "libpython"
    )


def oldest_glibc(paths: Iterable[str]) -> str:
    """The oldest version of glibc that has every function these ELF files ask it for."""
    versions = {(0, 0)}
    for path in paths:
        asked = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=False)
        found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", asked.stdout)
        versions.update((int(major), int(minor)) for major, minor in found)
    return ".".join(map(str, max(versions)))


def linked(path: str) -> set[str]:
    """The file names of the libraries an ELF file is itself linked with, not those of its own."""
    asked = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=False)
    return set(re.findall(r"^\s+NEEDED\s+(\S+)$", asked.stdout, re.MULTILINE))


def needed(names: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """The binaries to keep: what Python or Qt loads by itself, and all that these need.

    `needs` gives the file names of the libraries that a binary is linked with.
    """
    names = list(names)
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(PurePosixPath(name).name, []).append(name)
    waiting = [name for name in names if not is_plain_library(name)]
    kept = set(waiting)
    while waiting:
        for file in needs(waiting.pop()):
            new = [name for name in by_file.get(file, ()) if name not in kept]
            kept.update(new)
            waiting.extend(new)
    return kept
