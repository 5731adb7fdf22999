"""The package for Debian and its relatives, made with dpkg-deb."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from linux import tree
from release_notes import version

# What no binary is linked with: keyboard tables; certificates of servers, and the way to a browser.
_DEPENDS = ("xkb-data",)
_RECOMMENDS = ("ca-certificates", "xdg-utils")


def make(bundle: Path, out: Path) -> Path:
    """Write the .deb of a bundle to the folder `out`. Raises Trouble."""
    with tempfile.TemporaryDirectory(dir=out, prefix="deb-") as name:
        root = Path(name)
        root.chmod(0o755)
        tree.lay_out(bundle, root)
        share = root / "usr" / "share"
        tree.write(share / "doc" / tree.NAME / "changelog.gz", tree.debian_changelog())
        tree.write(share / "lintian" / "overrides" / tree.NAME, _text("lintian-overrides"))
        tree.write(share / tree.NAME / "apparmor", _text("apparmor"))
        tree.write(root / "DEBIAN" / "control", control(bundle, root))
        for script in ("postinst", "postrm"):
            tree.write(root / "DEBIAN" / script, _text(script))
            (root / "DEBIAN" / script).chmod(0o755)
        file = out / f"{tree.NAME}_{version()}_{architecture()}.deb"
        tree.run("dpkg-deb", "-Zxz", "-z6", "--root-owner-group", "--build", root, file)
    return file


def _text(name: str) -> str:
    return (tree.HERE / name).read_text(encoding="utf-8")


def architecture() -> str:
    """Debian's name for this machine's kind of processor."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def control(bundle: Path, root: Path) -> str:
    """The control file: name, version, what it depends on, description."""
    depends = (
        f"libc6 (>= {tree.oldest_glibc(bundle)})",
        *tree.debian_packages(tree.libraries(bundle)),
        *_DEPENDS,
    )
    description = "\n .\n".join(
        "\n".join(f" {line}" for line in tree.wrapped(paragraph, 76))
        for paragraph in tree.DESCRIPTION
    )
    return (
        f"Package: {tree.NAME}\nVersion: {version()}\nArchitecture: {architecture()}\n"
        f"Maintainer: {tree.MAINTAINER}\nInstalled-Size: {tree.size_bytes(root) // 1024}\n"
        f"Depends: {', '.join(depends)}\nRecommends: {', '.join(_RECOMMENDS)}\n"
        f"Section: utils\nPriority: optional\nHomepage: {tree.SITE}\n"
        f"Description: {tree.SUMMARY}\n{description}\n"
    )
