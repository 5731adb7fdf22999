"""PyInstaller hook for torch: collects its libraries, and only the modules that are imported.

The hook that comes with PyInstaller collects every module and file of torch, tests included.
"""

from __future__ import annotations

from pathlib import Path

from PyInstaller.utils.hooks import (
    PY_DYLIB_PATTERNS,
    collect_dynamic_libs,
    get_package_paths,
)

import contents

hiddenimports: list[str] = []
datas: list[tuple[str, str]] = []
# All libraries, also those that others load with dlopen; contents.py excludes torch's tests.
binaries = collect_dynamic_libs("torch", search_patterns=[*PY_DYLIB_PATTERNS, "*.so.*"])
# Importing torch fails without this program, although the app never runs it.
_manager = Path(get_package_paths("torch")[1], "bin", "torch_shm_manager")
if _manager.exists():  # Windows has none
    binaries.append((str(_manager), "torch/bin"))
module_collection_mode = {"torch": "pyz", **dict.fromkeys(contents.SOURCED_MODULES, "pyz+py")}
# Without this, PyInstaller links torch's libraries at the top of the bundle, and torch would look
# for its other libraries there.
bindepend_symlink_suppression = ["**/torch/lib/*.so*"]
