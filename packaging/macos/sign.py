"""Signs, notarises and packs the app of a Mac: `python packaging/macos/sign.py build/bundle/Tokonoma.app`.

TOKONOMA_SIGNING_IDENTITY names the certificate ("Developer ID Application: NAME (TEAM)"), and
TOKONOMA_NOTARY_PROFILE a profile kept by `xcrun notarytool store-credentials`; without one the
image is not notarised. `--dry-run` prints the commands, and runs on every system.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ENTITLEMENTS = Path(__file__).resolve().parent / "entitlements.plist"
_BUNDLES = (".framework", ".app", ".bundle", ".xpc")
# The first bytes of files with code: of 64 bits, in this order of bytes, and of several processors.
_CODE = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")
_DRY_IDENTITY, _DRY_PROFILE = "IDENTITY", "PROFILE"


def main(arguments: Sequence[str]) -> int:
    """Run the commands, or print them; returns the exit status."""
    parser = argparse.ArgumentParser(description="Sign, notarise and pack the app of a Mac.")
    parser.add_argument("app", type=Path, help="Tokonoma.app")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    options = parser.parse_args(arguments)
    dry = options.dry_run
    identity = os.environ.get("TOKONOMA_SIGNING_IDENTITY", _DRY_IDENTITY if dry else "")
    profile = os.environ.get("TOKONOMA_NOTARY_PROFILE", _DRY_PROFILE if dry else "")
    if not (options.app / "Contents" / "Info.plist").is_file():
        print(f"{options.app} is no app: run `packaging/dev.py bundle` first.", file=sys.stderr)
        return 1
    if not identity:
        print("Name the certificate to sign with in TOKONOMA_SIGNING_IDENTITY.", file=sys.stderr)
        return 1
    if not dry and sys.platform != "darwin":
        print("Only a Mac can sign; --dry-run prints the commands here.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="tokonoma-image-") as staging:
        for command in commands(options.app, identity, profile, Path(staging)):
            print(shlex.join(command), flush=True)
            if not dry and (status := subprocess.run(command, check=False).returncode):
                print(f"{command[0]} ended with status {status}, as above.", file=sys.stderr)
                return 1
    return 0


def commands(app: Path, identity: str, profile: str, staging: Path) -> Iterator[list[str]]:
    """The commands in their order; the image is written beside the app.

    A signature of a bundle covers those of what is in it, so the innermost come first. The app is
    notarised before it is packed, so that it has its ticket also without the image.
    """
    sign = ["codesign", "--force", "--timestamp", "--options", "runtime", "--sign", identity]
    for inner in (*code_in(app), *bundles_in(app)):
        yield [*sign, str(inner)]
    yield [*sign, "--entitlements", str(ENTITLEMENTS), str(app)]
    yield ["codesign", "--verify", "--deep", "--strict", "--verbose=2", str(app)]
    image, archive = app.with_suffix(".dmg"), staging / f"{app.stem}.zip"
    if profile:
        yield ["ditto", "-c", "-k", "--keepParent", str(app), str(archive)]
        yield from _notarise(archive, app, profile)
    folder = staging / "image"
    yield ["mkdir", str(folder)]
    yield ["ditto", str(app), str(folder / app.name)]
    yield ["ln", "-s", "/Applications", str(folder / "Applications")]
    create = ["hdiutil", "create", "-volname", app.stem, "-srcfolder", str(folder)]
    yield [*create, "-fs", "HFS+", "-format", "ULMO", "-ov", str(image)]
    yield ["codesign", "--force", "--timestamp", "--sign", identity, str(image)]
    if profile:
        yield from _notarise(image, image, profile)
        yield ["spctl", "--assess", "--type", "execute", "--verbose=2", str(app)]


def _notarise(submitted: Path, stapled: Path, profile: str) -> Iterator[list[str]]:
    """Submit a file to Apple, and attach the ticket to what the file contains or is."""
    submit = ["xcrun", "notarytool", "submit", str(submitted)]
    yield [*submit, "--keychain-profile", profile, "--wait"]
    yield ["xcrun", "stapler", "staple", str(stapled)]


def code_in(app: Path) -> list[Path]:
    """The files with code in an app but its main program, the innermost first."""
    main_program = app / "Contents" / "MacOS" / app.stem
    files = (path for path in app.rglob("*") if path.is_file() and not path.is_symlink())
    return _innermost_first(path for path in files if path != main_program and _has_code(path))


def bundles_in(app: Path) -> list[Path]:
    """The bundles in an app, such as Qt's frameworks, the innermost first."""
    folders = (path for path in app.rglob("*") if path.suffix in _BUNDLES)
    return _innermost_first(path for path in folders if path.is_dir() and not path.is_symlink())


def _innermost_first(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (-len(path.parts), str(path)))


def _has_code(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _CODE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
