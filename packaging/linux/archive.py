"""The archive for any Linux: the bundle's folder with its install script, as .tar.xz."""

from __future__ import annotations

import platform
from pathlib import Path

from linux import tree
from release_notes import build_time, version


def make(bundle: Path, out: Path) -> Path:
    """Write the .tar.xz of a bundle to the folder `out`. Raises Trouble."""
    name = f"Tokonoma-{version()}-linux-{platform.machine()}"
    file = out / f"{name}.tar.xz"
    tree.run(
        *("tar", "--create", "--xz", "--file", file, "--directory", bundle.parent),
        # The same order, owner and time give the same archive from the same bundle.
        *("--sort=name", "--format=gnu", "--owner=root:0", "--group=root:0"),
        *(f"--mtime=@{build_time()}", f"--transform=s,^{bundle.name},{name},S", bundle.name),
        XZ_OPT="-6 -T0",
    )
    return file
