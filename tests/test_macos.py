"""What is built for macOS, checked without a Mac: the kernels' file, the property list, signing."""

from __future__ import annotations

import hashlib
import plistlib
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu import build
from macos import kernels, macho, property_list, sign

PACKAGING = Path(__file__).parent.parent / "packaging"
SIGN = PACKAGING / "macos" / "sign.py"
SYSTEM = "/usr/lib/libSystem.B.dylib"
CODE = b"\xcf\xfa\xed\xfe"


def text_command(kind: int, fixed: bytes, text: str) -> bytes:
    """A load command with a string at its end."""
    body = text.encode() + b"\0"
    body += bytes(-len(body) % 8)
    return struct.pack("<3I", kind, 12 + len(fixed) + len(body), 12 + len(fixed)) + fixed + body


def signature_of(code: bytes, shift: int = 12, flags: int = 2) -> bytes:
    """An ad-hoc signature: the hash of each page."""
    pages = [code[at : at + (1 << shift)] for at in range(0, len(code), 1 << shift)]
    hashes = b"".join(hashlib.sha256(page).digest() for page in pages)
    head = (0xFADE0C02, 44 + len(hashes), 0x20400, flags, 44, 0, 0, len(pages), len(code))
    directory = struct.pack(">9I4BI", *head, 32, 2, 0, shift, 0) + hashes
    return struct.pack(">5I", 0xFADE0CC0, 20 + len(directory), 1, 0, 20) + directory


def library(
    path: Path,
    *,
    processor: int = 0x0100000C,
    oldest: int = 13 << 16,
    name: str = "",
    libraries: tuple[str, ...] = (SYSTEM,),
    signed: bool = True,
) -> Path:
    """A library of nothing but what its load commands say."""
    versions = struct.pack("<3I", 0, 0, 0)
    commands = [text_command(0x0D, versions, name or f"@rpath/{path.name}")]
    commands += [text_command(0x0C, versions, one) for one in libraries]
    commands.append(struct.pack("<6I", 0x32, 24, 1, oldest, oldest, 0))
    size = sum(map(len, commands)) + 16
    end = 32 + size + 9000  # three pages
    commands.append(struct.pack("<4I", 0x1D, 16, end, 500))
    if not signed:
        size -= len(commands.pop())
    head = struct.pack("<8I", 0xFEEDFACF, processor, 0, 6, len(commands), size, 0, 0)
    code = (head + b"".join(commands)).ljust(end, b"\x11")
    path.write_bytes(code + (signature_of(code) if signed else b""))
    return path


def wrong(path: Path) -> list[str]:
    return macho.complaints(path, "aarch64", "13.0")


# --- the kernels


def test_a_library_that_a_mac_would_load(tmp_path: Path) -> None:
    made = library(tmp_path / "nk-1.dylib")
    assert wrong(made) == []
    assert macho.read(made) == macho.MachO(
        "aarch64", "13.0", "@rpath/nk-1.dylib", (SYSTEM,), (), "ad-hoc"
    )


def test_each_fault_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "nk-1.dylib"
    assert wrong(library(path, processor=0x01000007)) == ["It is for x86_64, not aarch64."]
    assert wrong(library(path, oldest=15 << 16 | 1 << 8)) == ["It needs macOS 15.1, not 13.0."]
    assert wrong(library(path, name="/tmp/x/nk.dylib")) == [
        "Its name is '/tmp/x/nk.dylib', not '@rpath/nk-1.dylib'."
    ]
    assert wrong(library(path, libraries=(SYSTEM, "/opt/lib/libc++.dylib"))) == [
        "It needs /opt/lib/libc++.dylib, which are not of the system."
    ]
    assert wrong(library(path, signed=False)) == ["Its signature is not ad-hoc but none."]


def test_a_changed_byte_breaks_the_signature(tmp_path: Path) -> None:
    path = library(tmp_path / "nk-1.dylib")
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    assert wrong(path) == ["Its signature is not ad-hoc but broken: page 1 has changed."]


@pytest.mark.parametrize("size", [0, 3, 31, 60, 9200])
def test_a_cut_file_is_a_sentence(tmp_path: Path, size: int) -> None:
    path = library(tmp_path / "nk-1.dylib")
    path.write_bytes(path.read_bytes()[:size])
    (said,) = wrong(path)
    assert said.endswith(".")
    assert "nk-1.dylib is cut off or damaged" in said or "broken" in said


def test_other_files_are_none(tmp_path: Path) -> None:
    path = tmp_path / "nk-1.dylib"
    path.write_bytes(b"\x7fELF" + bytes(100))
    assert wrong(path) == ["nk-1.dylib is no 64-bit Mach-O file of one processor."]
    assert "No such file" in wrong(tmp_path / "none")[0]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["aarch64", "x86_64"])
def test_what_zig_links_would_be_loaded(tmp_path: Path, architecture: str) -> None:
    try:
        zig = build.find_compiler("zig")
    except build.NoCompiler as absent:
        pytest.skip(str(absent))
    (tmp_path / "native" / "isa").mkdir(parents=True)
    source = 'extern "C" __attribute__((visibility("default"))) int nk_one(void) { return 1; }\n'
    (tmp_path / "native" / "nk.cpp").write_text(source, encoding="utf-8")
    target = build.Target(architecture, "darwin")
    made = build.build_library(zig, tmp_path / "lib", native=tmp_path / "native", target=target)
    oldest = kernels.OLDEST_SYSTEM
    if architecture == "x86_64":  # only processors of Apple want a signature
        assert macho.read(made).oldest_system == oldest
    else:
        assert macho.complaints(made, architecture, oldest) == []


# --- the app


def test_the_property_list_says_what_the_app_opens_and_needs() -> None:
    facts = property_list.facts("1.2.3", ["de"])
    assert facts["CFBundleVersion"] == "1.2.3", (
        "without it no copy of the app is newer than another"
    )
    assert facts["CFBundleLocalizations"] == ["en", "de"]
    assert facts["NSLocalNetworkUsageDescription"], "else macOS 15 refuses engines in the network"
    kind, documents = facts["CFBundleDocumentTypes"]
    assert documents["LSHandlerRank"] == "Alternate", "it opens no document by default"
    (declared,) = facts["UTImportedTypeDeclarations"]
    assert kind["LSItemContentTypes"] == [declared["UTTypeIdentifier"]]
    assert declared["UTTypeTagSpecification"] == {"public.filename-extension": ["gguf"]}
    assert facts["NSRequiresAquaSystemAppearance"] is False, "dark mode"
    assert facts["NSHighResolutionCapable"] is True
    oldest = tuple(map(int, facts["LSMinimumSystemVersion"].split(".")))
    assert oldest >= tuple(map(int, kernels.OLDEST_SYSTEM.split(".")))


def test_the_entitlements_are_few() -> None:
    allowed = plistlib.loads((PACKAGING / "macos" / "entitlements.plist").read_bytes())
    assert allowed == {"com.apple.security.cs.allow-unsigned-executable-memory": True}


# --- signing


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An app with Qt's framework, libraries with and without a suffix, and files of other kinds."""
    contents = tmp_path / "My builds" / "Tokonoma.app" / "Contents"
    framework = contents / "Frameworks" / "PySide6" / "Qt" / "lib" / "QtCore.framework"
    for path in (
        contents / "MacOS" / "Tokonoma",
        contents / "Frameworks" / "libpython3.11.dylib",
        contents / "Frameworks" / "torch" / "bin" / "torch_shm_manager",
        contents / "Frameworks" / "torch" / "lib" / "libtorch_cpu.dylib",
        framework / "Versions" / "A" / "QtCore",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CODE + bytes(100))
    (framework / "Versions" / "Current").symlink_to("A")
    (framework / "QtCore").symlink_to("Versions/Current/QtCore")
    (contents / "Info.plist").write_bytes(plistlib.dumps({"CFBundleName": "Tokonoma"}))
    (contents / "Resources").mkdir()
    (contents / "Resources" / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (contents / "Resources" / "run.sh").chmod(0o755)
    return contents.parent


def test_the_innermost_is_signed_first_and_the_app_last(app: Path, tmp_path: Path) -> None:
    made = list(sign.commands(app, "ID", "PROFILE", tmp_path))
    inner = app / "Contents" / "Frameworks"
    signed = [line[-1] for line in made if line[:2] == ["codesign", "--force"]]
    assert signed == [
        str(inner / "PySide6/Qt/lib/QtCore.framework/Versions/A/QtCore"),
        str(inner / "torch/bin/torch_shm_manager"),
        str(inner / "torch/lib/libtorch_cpu.dylib"),
        str(inner / "libpython3.11.dylib"),
        str(inner / "PySide6/Qt/lib/QtCore.framework"),
        str(app),
        str(app.with_suffix(".dmg")),
    ]
    code = [line for line in made if line[:2] == ["codesign", "--force"]][:-1]
    assert all({"--timestamp", "runtime"} <= set(line) for line in code)
    assert [line[-1] for line in code if "--entitlements" in line] == [str(app)]


def test_the_app_has_its_ticket_before_it_is_packed(app: Path, tmp_path: Path) -> None:
    steps = [
        " ".join(word for word in line[:3] if not word.startswith("-"))
        for line in sign.commands(app, "ID", "PROFILE", tmp_path)
        if line[:2] != ["codesign", "--force"]
    ]
    assert steps == [
        "codesign",
        "ditto",
        "xcrun notarytool submit",
        "xcrun stapler staple",
        f"mkdir {tmp_path / 'image'}",
        f"ditto {app} {tmp_path / 'image' / 'Tokonoma.app'}",
        "ln /Applications",
        "hdiutil create",
        "xcrun notarytool submit",
        "xcrun stapler staple",
        "spctl",
    ]
    without = [line[0] for line in sign.commands(app, "ID", "", tmp_path)]
    assert not {"xcrun", "spctl"} & set(without), "no profile: signed and packed only"


def test_a_dry_run_prints_the_commands_and_does_nothing(app: Path) -> None:
    before = sorted(app.parent.rglob("*"))
    ran = run(str(app), "--dry-run")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"codesign --force --timestamp .*--sign IDENTITY '.*QtCore'", lines[0])
    assert sorted(app.parent.rglob("*")) == before


def test_what_is_missing_is_a_sentence(app: Path, tmp_path: Path) -> None:
    assert run(str(tmp_path)).stderr.startswith(f"{tmp_path} is no app: run ")
    assert "TOKONOMA_SIGNING_IDENTITY" in run(str(app)).stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac would sign")
def test_only_a_mac_signs(app: Path) -> None:
    ran = run(str(app), TOKONOMA_SIGNING_IDENTITY="ID")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "Only a Mac can sign; --dry-run prints the commands here.\n"


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SIGN, *arguments],
        env={"PATH": "", **settings},
        capture_output=True,
        text=True,
        check=False,
    )
