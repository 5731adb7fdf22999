"""Tells PyInstaller what of torch to take: what its modules import, and its own libraries.

The hook that comes with PyInstaller takes every module and file of the package, test programs too.
"""

from __future__ import annotations

from pathlib import Path

from PyInstaller.utils.hooks import (
    PY_DYLIB_PATTERNS,
    collect_dynamic_libs,
    get_package_paths,
)

hiddenimports: list[str] = []
datas: list[tuple[str, str]] = []
# Libraries by every name, also those that others open while they run; tests are left out later.
binaries = collect_dynamic_libs("torch", search_patterns=[*PY_DYLIB_PATTERNS, "*.so.*"])
# Torch refuses to be imported without this program, although nobody here runs it.
_manager = Path(get_package_paths("torch")[1], "bin", "torch_shm_manager")
if _manager.exists():  # Windows has none
    binaries.append((str(_manager), "torch/bin"))
# Functions that torch compiles from their own source need that source as a file.
module_collection_mode = "pyz+py"
# A link to a library at the top of the bundle would mislead torch about where its others are.
bindepend_symlink_suppression = ["**/torch/lib/*.so*"]
