"""Build hook of the wheel: compiles the native kernels into it and names its platform.

Run by hatchling, for `pip install .` as well as for `packaging/dev.py wheel`, which sets
TOKONOMA_WHEEL_PLATFORM to build for another platform than this one. The kernels of this platform
are compiled once for a source folder. ziglang is installed for the build where there is no compiler,
and for every platform but this one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLATFORM = "TOKONOMA_WHEEL_PLATFORM"
# Platform tag of a wheel to the architecture and system its kernels are compiled for.
PLATFORMS = {
    "manylinux_2_28_x86_64": ("x86_64", "linux"),
    "manylinux_2_28_aarch64": ("aarch64", "linux"),
    "macosx_13_0_arm64": ("aarch64", "darwin"),
    "win_amd64": ("x86_64", "windows"),
}


class BuildHook(BuildHookInterface[Any]):
    """Adds the kernels' library to the wheel."""

    def dependencies(self) -> list[str]:
        """The requirement of ziglang, where the build needs it."""
        build = _build_script()
        if not os.environ.get(PLATFORM):
            try:
                build.find_compiler()
                return []
            except build.NoCompiler:
                pass
        text = (ROOT / "packaging" / "requirements-compiler.txt").read_text(encoding="utf-8")
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels and add them; `version` is that of the kind of wheel, "standard"."""
        del version
        build = _build_script()
        platform = os.environ.get(PLATFORM, "")
        if platform and platform not in PLATFORMS:
            known = ", ".join(PLATFORMS)
            raise ValueError(f"{PLATFORM} is {platform!r}; wheels are made for {known}.")
        target = build.Target(*PLATFORMS[platform]) if platform else build.host()
        own = ROOT / "build" / "wheel" / platform if platform else build.LIBRARIES
        library = None if platform else build.current()
        if library is None:
            compiler = build.find_compiler("zig" if platform else "")
            library = build.library_path(compiler, target=target)  # as a bundle has it, perhaps
            if not library.is_file():
                library = build.build_library(compiler, own, target=target)
        name = platform or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{name}"
        build_data["force_include"] |= {
            str(library): f"kernels/cpu/lib/{library.name}",
            str(HERE / "launcher.py"): "__init__.py",
            str(HERE / "module_start.py"): "__main__.py",
        }


def _build_script() -> ModuleType:
    """kernels/cpu/build.py, which imports the standard library alone."""
    spec = importlib.util.spec_from_file_location(
        "tokonoma_kernels_build", ROOT / "kernels" / "cpu" / "build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module
