"""The package for Fedora, openSUSE and their relatives, made with rpmbuild."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from linux import tree
from release_notes import version

# Libraries are required by name, which is the same on all systems with rpm packages.
_SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: Apache-2.0 AND LGPL-3.0-only
URL: {site}
BuildArch: {architecture}
AutoReqProv: no
{requires}

# The files are as built: nothing is stripped, compiled or given an index of debug symbols.
%global debug_package %{{nil}}
%global __os_install_post %{{nil}}
%global _build_id_links none
%global _binary_payload w6T0.xzdio
%global source_date_epoch_from_changelog 0
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1

%description
{description}

%files
%defattr(-,root,root,-)
{files}
"""


def make(bundle: Path, out: Path) -> Path:
    """Write the .rpm of a bundle to the folder `out`. Raises Trouble."""
    with tempfile.TemporaryDirectory(dir=out, prefix="rpm-") as name:
        top = Path(name)
        root = top / "root"
        root.mkdir()
        tree.lay_out(bundle, root)
        (top / "tokonoma.spec").write_text(spec(bundle, root), encoding="utf-8")
        tree.run(
            *("rpmbuild", "-bb", "--quiet", "--noclean", "--buildroot", root),
            *("--define", f"_topdir {top}", "--define", f"_rpmdir {top}"),
            *("--define", "_rpmfilename made.rpm", "--define", "_buildhost localhost"),
            top / "tokonoma.spec",
        )
        file = out / f"{tree.NAME}-{version()}-1.{platform.machine()}.rpm"
        (top / "made.rpm").replace(file)
    return file


def spec(bundle: Path, root: Path) -> str:
    """The spec file: what is required, and each installed file."""
    width = "()(64bit)"
    requires = [f"{name}{width}" for name in tree.libraries(bundle) if not name.startswith("ld-")]
    requires += [f"libc.so.6(GLIBC_{tree.oldest_glibc(bundle)}){'(64bit)'}", "xkeyboard-config"]
    place = f"/{tree.PLACE}"
    others = [
        f"/{path.relative_to(root)}"
        for path in sorted(root.rglob("*"))
        if (path.is_file() or path.is_symlink()) and not path.is_relative_to(root / tree.PLACE)
    ]
    documents = ("/usr/share/doc/", "/usr/share/man/")
    marked = [f"%doc {path}" if path.startswith(documents) else path for path in others]
    return _SPEC.format(
        name=tree.NAME,
        version=version(),
        summary=tree.SUMMARY,
        site=tree.SITE,
        architecture=platform.machine(),
        requires="\n".join(f"Requires: {each}" for each in requires),
        description="\n\n".join("\n".join(tree.wrapped(each, 78)) for each in tree.DESCRIPTION),
        files="\n".join([place, f"%dir /usr/share/doc/{tree.NAME}", *marked]),
    )
