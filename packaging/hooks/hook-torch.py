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
_FOLDER = Path(get_package_paths("torch")[1])
_manager = _FOLDER / "bin" / "torch_shm_manager"
if _manager.exists():  # Windows has none
    binaries.append((str(_manager), "torch/bin"))
# A few modules read their own source while they are imported.
module_collection_mode = {"torch": "pyz"}
for _file in sorted(_FOLDER.rglob("*.py")):
    if contents.READS_ITS_SOURCE.search(_file.read_text(encoding="utf-8")):
        _name = ".".join(("torch", *_file.relative_to(_FOLDER).with_suffix("").parts))
        module_collection_mode[_name.removesuffix(".__init__")] = "pyz+py"
# Without this, PyInstaller links torch's libraries at the top of the bundle, and torch would look
# for its other libraries there.
bindepend_symlink_suppression = ["**/torch/lib/*.so*"]
