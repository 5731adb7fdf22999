"""Bundle contents: lists of the modules, plugins, files and libraries to include and to exclude.

Every exclusion was tested by building without it and running the smoke test; the sizes are in
tests/benchmarks/bundle.md. Standard library only, so that the lists can be tested without a build.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

# Modules that PyInstaller's analysis finds but that the app never imports.
EXCLUDED_MODULES = (
    # The compiler of the CUDA kernels, which comes with GPU support.
    "triton",
    # torch: compilers, exporters, and tools that need further packages
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
    # torch: distributed training; torch.distributed itself must stay
    "torch.distributed._shard",
    "torch.distributed._tools",
    "torch.distributed.checkpoint",
    "torch.distributed.elastic",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor",
    "torchgen.packaged",
    # dependencies of the modules above
    "sympy",
    "networkx",
    "mpmath",
    "setuptools",
    "pkg_resources",
    "distutils",
    "filelock",
    "fsspec",
    # optional imports of packages for downloads, output, tests and builds
    "huggingface_hub",
    "requests",
    "urllib3",
    "charset_normalizer",
    "rich",
    "httpx._main",  # its command line
    "trio",
    "hypothesis",
    "pytest",
    "_pytest",
    "numpy.f2py",
    "numpy.fft",
    "numpy.ma",
    "numpy.polynomial",
    "numpy.random",
    "numpy.testing",
    "numpy._core._simd",  # which only tests of numpy use
    "numpy.distutils",
    "IPython",
    "matplotlib",
    "pandas",
    "scipy",
    "psutil",
    "yaml",
    # terminal and GUI tools of the standard library
    "tkinter",
    "curses",
    "readline",
    "pydoc",
    "pydoc_data",
    "lib2to3",
    "ensurepip",
    "idlelib",
    # Qt's modules that the window does not use
    "PySide6.QtOpenGL",
    "PySide6.QtTest",
    *(() if sys.platform == "linux" else ("PySide6.QtDBus",)),  # of the portal of screenshots
)

# The Qt plugins to include, for all platforms; the others and their libraries are excluded.
KEPT_PLUGINS = (
    "platforms/qxcb",
    "platforms/qwayland",
    "platforms/qwindows",
    "platforms/qcocoa",
    "platforms/qoffscreen",  # for the smoke test without a display
    "platforminputcontexts/composeplatforminputcontextplugin",
    "platforminputcontexts/ibusplatforminputcontextplugin",
    "platformthemes/qxdgdesktopportal",  # file dialogs and dark mode of the desktop
    "wayland-decoration-client/adwaita",
    "wayland-decoration-client/bradient",
    "wayland-graphics-integration-client/qt-plugin-wayland-egl",
    "wayland-shell-integration/xdg-shell",
)

# Libraries that a bundle takes from the Linux system: they depend on its drivers, font
# configuration or D-Bus daemon, or other system libraries are linked with them.
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

# Libraries with symbols to strip. Not numpy's: its wheels were edited by patchelf after linking, and
# strip damages such files.
STRIPPED = re.compile(
    r"/(torch|tokenizers|safetensors|cryptography|pypdfium2_raw|chardet|markupsafe|lib-dynload)/"
    r"|/(libpython[\d.]+|libicu\w+)\.so[\d.]*$|__mypyc\.cpython|/_cffi_backend\."
)

# Modules of torch that need their own source: settings, whose comments torch reads, and functions
# with several signatures. The sources of all others are left out.
SOURCED_MODULES = (
    "torch._export.config",
    "torch._functorch.config",
    "torch.compiler.config",
    "torch.distributed.config",
    "torch.functional",
    "torch.fx.experimental._config",
    "torch.nn.functional",
    "torch.nn.modules.rnn",
)

# Kernels that Triton compiles from their source.
SOURCED_KERNELS = ("kernels.cuda.jit",)

# Modules of the standard library that the app does not import, but the torch and Triton of GPU
# support do.
STANDARD_MODULES = (
    *(
        "abc",
        "argparse",
        "array",
        "ast",
        "asyncio",
        "base64",
        "binascii",
        "bisect",
        "cProfile",
        "cmath",
        "collections",
        "collections.abc",
        "concurrent",
        "concurrent.futures",
        "concurrent.futures.process",
        "concurrent.futures.thread",
        "contextlib",
        "contextvars",
        "copy",
        "copyreg",
        "csv",
        "ctypes",
        "ctypes.util",
        "dataclasses",
        "datetime",
        "difflib",
        "dis",
        "enum",
        "fcntl",
        "fnmatch",
        "functools",
        "getpass",
        "glob",
        "gzip",
        "hashlib",
        "heapq",
        "http.server",
        "importlib",
        "importlib.abc",
        "importlib.machinery",
        "importlib.metadata",
        "importlib.resources",
        "importlib.util",
        "inspect",
        "io",
        "ipaddress",
        "json",
        "keyword",
        "linecache",
        "locale",
        "logging",
        "math",
        "multiprocessing",
        "multiprocessing.connection",
        "multiprocessing.context",
        "multiprocessing.pool",
        "multiprocessing.queues",
        "multiprocessing.reduction",
        "multiprocessing.resource_tracker",
        "multiprocessing.util",
        "numbers",
        "operator",
        "os",
        "os.path",
        "pathlib",
        "pickle",
        "pickletools",
        "pkgutil",
        "platform",
        "pprint",
        "pstats",
        "queue",
        "random",
        "re",
        "runpy",
        "select",
        "selectors",
        "shlex",
        "shutil",
        "signal",
        "site",
        "socket",
        "statistics",
        "string",
        "struct",
        "subprocess",
        "sysconfig",
        "tarfile",
        "tempfile",
        "textwrap",
        "threading",
        "timeit",
        "tokenize",
        "traceback",
        "types",
        "typing",
        "unittest",
        "unittest.mock",
        "urllib.error",
        "urllib.parse",
        "urllib.request",
        "uuid",
        "warnings",
        "weakref",
        "zipfile",
        "zlib",
    ),
)

# Others that programs in the sandbox may want; one of a bundle has no Python beside it.
PROGRAM_MODULES = (
    *(
        "bz2",
        "calendar",
        "cmath",
        "codecs",
        "colorsys",
        "configparser",
        "dbm.dumb",
        "decimal",
        "email.message",
        "email.parser",
        "encodings.idna",
        "filecmp",
        "fileinput",
        "fractions",
        "getopt",
        "graphlib",
        "hmac",
        "html",
        "html.entities",
        "html.parser",
        "lzma",
        "mimetypes",
        "optparse",
        "plistlib",
        "reprlib",
        "sched",
        "secrets",
        "shelve",
        "sqlite3",
        "stringprep",
        "time",
        "tomllib",
        "tracemalloc",
        "unicodedata",
        "wave",
        "xml.dom.minidom",
        "xml.etree.ElementTree",
        "xml.sax",
        "zoneinfo",
    ),
)

# The languages of the window: those that have a catalog.
LANGUAGES = sorted(
    path.parent.parent.name
    for path in (Path(__file__).parent.parent / "resources" / "locale").glob("*/LC_MESSAGES/*.po")
)

# The glibc of the oldest system that packages are tested on, Debian 12. The wheels alone ask for
# 2.34 (Qt); a Python that was built on a newer system, or its libraries, may ask for more.
NEWEST_GLIBC = "2.36"

_LIBRARY_FOLDERS = (".", "PySide6/Qt/lib", "PySide6")  # the last on Windows
_PLUGIN = re.compile(r"^PySide6/(?:Qt/)?plugins/([^/]+)/(?:lib)?([^/]+)\.(?:so|dylib|dll)$")
_UNWANTED = (
    # Qt's own texts, but those in the languages of the window.
    re.compile(rf"^PySide6/(Qt/)?translations/(?!qtbase_({'|'.join(LANGUAGES)})\.qm$)"),
    re.compile(r"^PySide6/(Qt/)?(qml|metatypes|resources|typesystems|include)/"),
    re.compile(r"^PySide6/opengl32sw\.dll$"),
    re.compile(r"^certifi/cacert\.pem$"),  # the app uses the system's certificates
    re.compile(r"^torch/(test|include|share)/"),
    re.compile(r"^torch/bin/(?!torch_shm_manager)"),
    re.compile(
        r"^torch/lib/lib(torchbind_test|aoti_custom_ops|backend_with_compiler|jitbackend_test)"
    ),
    re.compile(r"\.(pyi|h|hpp|cuh|cpp|cmake|lib|a)$"),
    # But those of packages that read their own version.
    re.compile(r"^(?!llguidance-|latex2mathml-)[^/]+\.(dist|egg)-info/"),
    re.compile(r"(^|/)tests?/"),
)


def is_included(name: str) -> bool:
    """Whether a file belongs in the bundle; `name` is its path there, with forward slashes."""
    plugin = _PLUGIN.match(name)
    if plugin is not None:
        return f"{plugin[1]}/{plugin[2]}" in KEPT_PLUGINS
    return not any(pattern.search(name) for pattern in _UNWANTED)


def is_host_library(name: str) -> bool:
    """Whether a library must come from the system the bundle runs on; Linux only."""
    return PurePosixPath(name).name.split(".so", 1)[0] in HOST_LIBRARIES


def is_plain_library(name: str) -> bool:
    """Whether a binary is only a dependency of others: not a plugin, not a Python module."""
    path = PurePosixPath(name)
    is_module = ".cpython-" in path.name or path.name.endswith((".abi3.so", ".pyd"))
    is_python = path.name.startswith(("libpython", "python"))
    return path.parent.as_posix() in _LIBRARY_FOLDERS and not (is_module or is_python)


def oldest_glibc(paths: Iterable[str]) -> str:
    """The oldest version of glibc with every symbol version that these ELF files require."""
    versions = {(0, 0)}
    for path in paths:
        done = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=False)
        found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", done.stdout)
        versions.update((int(major), int(minor)) for major, minor in found)
    return ".".join(map(str, max(versions)))


def run_path(path: str) -> str:
    """The absolute folders in which an ELF file looks for its libraries; "" without any."""
    done = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=False)
    found = re.search(r"^\s+(?:RUNPATH|RPATH)\s+(/\S*)$", done.stdout, re.MULTILINE)
    return found[1] if found is not None else ""


def linked(path: str) -> set[str]:
    """File names of the libraries that an ELF file is directly linked with (DT_NEEDED)."""
    done = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=False)
    return set(re.findall(r"^\s+NEEDED\s+(\S+)$", done.stdout, re.MULTILINE))


def needed(names: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """The binaries to keep: Python modules and Qt plugins, and their transitive dependencies.

    `needs` returns the file names of the libraries that a binary is linked with; they are compared
    as Windows does, which ignores their case.
    """
    names = list(names)
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(PurePosixPath(name).name.lower(), []).append(name)
    waiting = [name for name in names if not is_plain_library(name)]
    kept = set(waiting)
    while waiting:
        for file in needs(waiting.pop()):
            new = [name for name in by_file.get(file.lower(), ()) if name not in kept]
            kept.update(new)
            waiting.extend(new)
    return kept
