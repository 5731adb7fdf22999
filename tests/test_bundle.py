"""Bundle contents, licences, desktop integration and smoke-test helpers, tested without a build."""

from __future__ import annotations

import ast
import configparser
import ctypes
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib import metadata
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeDatabase

import bundle
import contents
import dev
import icon_files
import licences
import smoke_frozen
import start
import tiny
import version_resource
from engine.loading.library import PORTABLE
from environment import Trouble
from linux import clean_root
from windows import files as windows_files

pytestmark = pytest.mark.sweep

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
MIME = "{http://www.freedesktop.org/standards/shared-mime-info}"
RUNS_ON = (
    "PySide6-Essentials",
    "shiboken6",
    "qasync",
    "platformdirs",
    "torch",
    "numpy",
    "tokenizers",
    "llguidance",
    "safetensors",
    "httpx",
    "httpcore",
    "h11",
    "certifi",
    "idna",
    "jinja2",
    "markupsafe",
    "markdown-it-py",
    "mdurl",
    "pygments",
    "ziamath",
    "ziafont",
    "latex2mathml",
    "chardet",
    "pypdfium2",
)
# A desktop that has a viewer for PDF files, and prefers the user's own entries.
XDG_MIME = """#!/bin/sh
entry=$HOME/.local/share/applications/tokonoma.desktop
case "$1 $3" in
    "query application/pdf") [ -e "$entry" ] && echo tokonoma.desktop || echo viewer.desktop ;;
    "query text/"*) [ -e "$entry" ] && echo tokonoma.desktop || true ;;
    "default "*) echo "$2 $3" >>"$HOME/set" ;;
esac
"""
# Script that runs the app with every excluded module unimportable, as in a bundle.
REFUSING = """
import importlib, inspect, pkgutil, sys
from pathlib import Path
import contents

def recorded(read):
    def reading(thing):
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("torch."):
            print("read", thing.__name__ if inspect.ismodule(thing) else thing.__module__)
        return read(thing)
    return reading

inspect.getsource, inspect.getsourcelines = (
    recorded(inspect.getsource), recorded(inspect.getsourcelines)
)

def refused(name):
    return any(name == one or name.startswith(one + ".") for one in contents.EXCLUDED_MODULES)

class Refused:
    def find_spec(self, name, path=None, target=None):
        if refused(name):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Refused())
for package in ("app", "engine", "kernels"):
    for module in pkgutil.walk_packages([package], package + "."):
        if not refused(module.name):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "triton" or not module.name.startswith("kernels.cuda."):
                    raise
from app.net.http import WebError, send_request
try:
    send_request("https://127.0.0.1:9/")
except WebError as error:
    print(error)
from engine.cli.commands import main
sys.exit(main(["complete", "-m", sys.argv[1], "-p", "hello", "-n", "2", "--temp", "0"]))
"""


# --- contents -----------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_what_gpu_support_imports_of_the_standard_library_is_included(package: str) -> None:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    imported: set[str] = set()
    for path in Path(found.origin).parent.rglob("*.py"):
        try:
            lines = ast.parse(path.read_bytes()).body
        except SyntaxError:  # a test of a later Python's language
            continue
        for line in lines:
            if isinstance(line, ast.Import):
                imported |= {each.name for each in line.names}
            elif isinstance(line, ast.ImportFrom) and not line.level:
                imported.add(line.module or "")
    public = {name for name in imported if name.partition(".")[0] in sys.stdlib_module_names}
    missing = {
        name
        for name in public - {*contents.STANDARD_MODULES}
        if not name.startswith("_") and name not in sys.builtin_module_names
    }
    assert not missing
    assert not public & {*contents.EXCLUDED_MODULES}


def test_all_modules_and_a_generation_run_without_the_excluded_modules(tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    tiny.write(model)
    ran = subprocess.run(
        [sys.executable, "-c", REFUSING, model],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(PACKAGING)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "generated tokens" in ran.stderr
    assert "The connection to 127.0.0.1 failed: Connection refused." in ran.stdout
    read = set(re.findall(r"^read (\S+)$", ran.stdout, re.MULTILINE))
    assert {"torch.nn.functional", "torch.compiler.config"} <= read <= {*contents.SOURCED_MODULES}


@pytest.mark.parametrize(
    "name",
    [
        "PySide6/Qt/plugins/platforms/libqxcb.so",
        "PySide6/Qt/plugins/platforms/libqwayland.so",
        "PySide6/plugins/platforms/qwindows.dll",
        "PySide6/Qt/plugins/platforms/libqcocoa.dylib",
        "PySide6/Qt/lib/libQt6Core.so.6",
        "torch/lib/libtorch_cpu.so",
        "torch/bin/torch_shm_manager",
        "torch/_library/custom_ops.py",
        "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "kernels/cpu/lib/nk-0123456789abcdef-01234567.so",
        "resources/fonts/Inter-Regular.otf",
        "ziamath/fonts/STIXTwoMath-Regular.ttf",
        "ziafont/fonts/DejaVuSans.ttf",
        "latex2mathml/unimathsymbols.txt",
        "chardet/models/models.bin",
        "PySide6/Qt/translations/qtbase_de.qm",
        "PySide6/translations/qtbase_zh_CN.qm",
        "resources/locale/ar/LC_MESSAGES/tokonoma.po",
        "llguidance-1.9.1.dist-info/METADATA",
        "latex2mathml-3.81.1.dist-info/METADATA",
    ],
)
def test_files_the_app_needs_are_included(name: str) -> None:
    assert contents.is_included(name)


@pytest.mark.parametrize(
    "name",
    [
        "PySide6/Qt/plugins/platforms/libqvnc.so",
        "PySide6/Qt/plugins/imageformats/libqtiff.so",
        "PySide6/plugins/tls/qschannelbackend.dll",
        "PySide6/Qt/translations/qt_de.qm",
        "PySide6/Qt/translations/qtbase_fi.qm",
        "PySide6/Qt/qml/QtQuick/qmldir",
        "torch/test/op_registration_test",
        "torch/bin/protoc",
        "torch/include/torch/csrc/api.h",
        "torch/lib/libjitbackend_test.so",
        "numpy-2.4.6.dist-info/METADATA",
        "certifi/cacert.pem",
    ],
)
def test_files_the_app_never_loads_are_excluded(name: str) -> None:
    assert not contents.is_included(name)


def test_libraries_are_included_only_if_an_included_binary_needs_them() -> None:
    links = {
        "PySide6/QtGui.abi3.so": ["libQt6Gui.so.6", "libc.so.6"],
        "PySide6/Qt/lib/libQt6Gui.so.6": ["libglib-2.0.so.0"],
        "libglib-2.0.so.0": ["libpcre2-8.so.0"],
        "libpcre2-8.so.0": [],
        "PySide6/Qt/lib/libQt6Quick.so.6": ["libgtk-3.so.0"],
        "libgtk-3.so.0": ["libglib-2.0.so.0"],
        "libpython3.11.so.1.0": [],
        "650f__mypyc.cpython-311-x86_64-linux-gnu.so": [],
        "torch/lib/libtorch_cpu.so": [],
    }
    dropped = set(links) - contents.needed(links, links.__getitem__)
    assert dropped == {"PySide6/Qt/lib/libQt6Quick.so.6", "libgtk-3.so.0"}


def test_libraries_of_windows_are_found_whatever_their_case() -> None:
    links = {
        "PySide6/QtGui.pyd": ["Qt6Gui.dll", "pyside6.abi3.dll", "python3.dll"],
        "PySide6/pyside6.abi3.dll": [],
        "PySide6/Qt6Gui.dll": ["VCRUNTIME140.dll", "KERNEL32.dll"],
        "vcruntime140.dll": [],
        "PySide6/Qt6Svg.dll": ["Qt6Gui.dll"],
        "python311.dll": [],  # the program loads it
        "python3.dll": ["python311.dll"],
        "PySide6/plugins/platforms/qwindows.dll": ["Qt6Gui.dll"],
        "torch/lib/torch_cpu.dll": [],
    }
    dropped = set(links) - contents.needed(links, links.__getitem__)
    assert dropped == {"PySide6/Qt6Svg.dll"}


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("libstdc++.so.6", True),
        ("libX11.so.6", True),
        ("libX11-xcb.so.1", True),
        ("libxcb.so.1", True),
        ("libxcb-cursor.so.0", False),
        ("libglib-2.0.so.0", False),
        ("torch/lib/libc10.so", False),
    ],
)
def test_only_system_dependent_libraries_come_from_the_host(name: str, host: bool) -> None:
    assert contents.is_host_library(name) is host


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs binutils")
def test_needed_libraries_and_glibc_version_are_read_from_an_elf_file() -> None:
    program = shutil.which("ls") or "/bin/ls"
    assert "libc.so.6" in contents.linked(program)
    assert re.fullmatch(r"2\.\d+", contents.oldest_glibc([program]))


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files of the wheels for Linux")
def test_the_wheels_ask_for_no_newer_glibc_than_2_34() -> None:
    files = {
        str(metadata.distribution(name).locate_file(file))
        for name in RUNS_ON
        for file in metadata.files(name) or ()
        if ".so" in file.name and contents.is_included(str(file))
    }
    assert len(files) > 100
    assert contents.oldest_glibc(sorted(files)) == "2.34", "Debian 12 has 2.36, Ubuntu 22.04 2.35"


def test_a_bundle_that_debian_12_could_not_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "oldest_glibc", lambda files: "2.41")
    with pytest.raises(Trouble, match=r"would need glibc 2\.41, and Debian 12 has 2\.36"):
        bundle.add_linux_files(tmp_path, tmp_path)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
def test_search_paths_of_the_building_machine_are_removed(tmp_path: Path) -> None:
    library = tmp_path / "libx.so"
    (tmp_path / "x.c").write_text("int x(void) { return 42; }", encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-o", library, tmp_path / "x.c"]
    subprocess.run([*command, "-Wl,-rpath,/home/builder/python/lib"], check=True)
    assert contents.run_path(str(library)) == "/home/builder/python/lib"
    bundle.clear_run_paths(tmp_path)
    assert contents.run_path(str(library)) == ""
    assert ctypes.CDLL(str(library)).x() == 42


@pytest.mark.parametrize(
    ("system", "machine", "reason"),
    [
        ("linux", "aarch64", "no bundle for Linux on ARM: since 2.11 torch's wheels"),
        ("darwin", "x86_64", "no bundle for Macs with processors of Intel"),
    ],
)
def test_a_platform_without_a_torch_to_bundle_is_refused(
    system: str, machine: str, reason: str
) -> None:
    with pytest.raises(Trouble, match=reason):
        bundle.check_platform(system, machine)


@pytest.mark.parametrize(
    ("system", "machine"), [("linux", "x86_64"), ("darwin", "arm64"), ("win32", "AMD64")]
)
def test_other_platforms_have_a_bundle(system: str, machine: str) -> None:
    bundle.check_platform(system, machine)


# --- licences -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS_ON)
def test_every_runtime_package_has_a_licence_text(name: str) -> None:
    part = licences.of_distribution(metadata.distribution(name))
    assert part.version
    assert part.texts
    assert any(path.stat().st_size > 400 for path, _ in part.texts)


def test_a_package_without_licence_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(licences.Missing, match=r"The package nothing 1\.0 includes no licence"):
        licences.of_distribution(_installed(tmp_path, "nothing", {}))


def test_licence_texts_and_an_index_are_written(tmp_path: Path) -> None:
    files = {"licenses/LICENSE": "Do as you like.", "licenses/deep/NOTICE.txt": "By someone."}
    part = licences.of_distribution(_installed(tmp_path, "some.thing", files))
    licences.write([part], tmp_path / "out")
    assert (tmp_path / "out" / "some.thing" / "LICENSE").read_text(
        encoding="utf-8"
    ) == "Do as you like."
    assert (tmp_path / "out" / "some.thing" / "deep" / "NOTICE.txt").exists()
    index = (tmp_path / "out" / "index.txt").read_text(encoding="utf-8")
    assert re.search(r"^some\.thing +1\.0 +MIT +some\.thing/$", index, re.MULTILINE)


def test_components_of_a_bundle_are_identified_by_their_files() -> None:
    jinja2 = metadata.distribution("jinja2").locate_file("jinja2/loaders.py")
    parts = licences.components([Path(str(jinja2)), Path(os.__file__), ROOT / "app" / "paths.py"])
    names = [part.name for part in parts]
    assert {"Jinja2", "Python", "Tokonoma", "pyinstaller", "Inter (font)"} <= set(names)
    assert "torch" not in names
    assert names == sorted(names, key=str.lower)


def test_a_file_that_no_package_owns_is_refused(tmp_path: Path) -> None:
    unowned = tmp_path / "libunowned.so.1"
    unowned.touch()
    with pytest.raises(licences.Missing, match=r"No package owns .*libunowned"):
        licences.components([unowned])


def _installed(folder: Path, name: str, files: dict[str, str]) -> metadata.Distribution:
    """Write an installed package's .dist-info folder: METADATA, RECORD and the given files."""
    place = folder / f"{name}-1.0.dist-info"
    described = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: MIT\n"
    for path, text in {**files, "METADATA": described}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    record = [*(f"{place.name}/{path},," for path in (*files, "METADATA")), ""]
    (place / "RECORD").write_text("\n".join(record), encoding="utf-8")
    return metadata.Distribution.at(place)


# --- desktop integration ------------------------------------------------------------------------


def test_desktop_entry_and_mime_type_agree() -> None:
    entry = _entry(PACKAGING / "linux" / "tokonoma.desktop")
    kind = ET.parse(PACKAGING / "linux" / "tokonoma.mime.xml").getroot().find(f"{MIME}mime-type")
    assert kind is not None
    assert entry["MimeType"].startswith(f"{kind.get('type')};"), "install.sh takes it as the first"
    assert entry["Exec"].endswith(" %F"), "the app takes paths"
    assert [glob.get("pattern") for glob in kind.iter(f"{MIME}glob")] == ["*.gguf"]
    assert [match.get("value") for match in kind.iter(f"{MIME}match")] == ["GGUF"]
    assert entry["Icon"] == kind.find(f"{MIME}icon").get("name") == "tokonoma"  # type: ignore[union-attr]


def test_open_with_offers_the_same_documents_as_on_windows() -> None:
    offered = set(_entry(PACKAGING / "linux" / "tokonoma.desktop")["MimeType"].split(";"))
    endings = windows_files.documents()
    assert len(set(endings)) == len(endings) > 20
    known = QMimeDatabase()
    for ending in endings:
        kind = known.mimeTypeForFile(f"x{ending}", QMimeDatabase.MatchMode.MatchExtension)
        assert offered & {kind.name(), *kind.aliases(), *kind.allAncestors()}, ending
    assert all(
        known.mimeTypeForName(name).isValid() for name in offered - {"application/x-gguf", ""}
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the Unix shell")
def test_installing_leaves_documents_to_the_programs_that_open_them(tmp_path: Path) -> None:
    folder, icons, tools = tmp_path / "bundle", tmp_path / "icons", tmp_path / "tools"
    for each in (folder, icons, tools):
        each.mkdir()
    for side in (16, 24, 32, 48, 64, 128, 256, 512):
        (icons / f"tokonoma-{side}.png").touch()
    bundle.add_linux_files(folder, icons)
    (tools / "xdg-mime").write_text(XDG_MIME, encoding="utf-8")
    (tools / "xdg-mime").chmod(0o755)
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    _install(folder, tmp_path, PATH=path)
    assert (tmp_path / "set").read_text(encoding="utf-8").split() == [
        "viewer.desktop",
        "application/pdf",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the Unix shell")
def test_uninstalling_removes_every_installed_file(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / 'odd "name" $x 50% `y`\\z'
    home.mkdir()
    icons = tmp_path / "icons"
    icons.mkdir()
    for side in (16, 24, 32, 48, 64, 128, 256, 512):
        (icons / f"tokonoma-{side}.png").write_bytes(b"picture")
    folder.mkdir()
    bundle.add_linux_files(folder, icons)
    (folder / "tokonoma").touch(mode=0o755)

    assert "is in the menu" in _install(folder, home)
    entry = _entry(home / ".local/share/applications/tokonoma.desktop")
    assert _words(entry["Exec"]) == [str(folder / "tokonoma"), "%F"]
    assert (home / ".local/share/mime/packages/tokonoma.xml").exists()
    assert len(list((home / ".local/share/icons").rglob("tokonoma.*"))) == 9
    assert (home / ".local/bin/tokonoma").resolve() == folder / "tokonoma"

    assert "is in the menu" in _install(folder, home), "a second time does no harm"
    assert "stay" in _install(folder, home, "uninstall")
    assert list(home.rglob("*tokonoma*")) == []


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the Unix shell")
def test_installing_does_not_replace_another_program_of_the_same_name(tmp_path: Path) -> None:
    mine = tmp_path / ".local" / "bin" / "tokonoma"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine", encoding="utf-8")
    folder = tmp_path / "bundle"
    folder.mkdir()
    icons = tmp_path / "icons"
    icons.mkdir()
    for side in (16, 24, 32, 48, 64, 128, 256, 512):
        (icons / f"tokonoma-{side}.png").touch()
    bundle.add_linux_files(folder, icons)
    _install(folder, tmp_path)
    _install(folder, tmp_path, "uninstall")
    assert mine.read_text(encoding="utf-8") == "mine"


def test_files_of_a_bundle_for_windows(tmp_path: Path) -> None:
    windows_files.add_files(tmp_path)
    assert {".pdf", ".docx", ".md"} <= set(windows_files.documents())
    assert (tmp_path / "LICENSE.txt").is_file()
    readme = (tmp_path / "README.txt").read_bytes().decode()
    assert PORTABLE in readme
    assert readme.count("\r\n") == readme.count("\n")


@pytest.mark.parametrize(
    ("version", "numbers"), [("0.2.0", "(0, 2, 0, 0)"), ("1.2.3rc4", "(1, 2, 3, 4)")]
)
def test_version_resource_is_what_pyinstaller_reads(version: str, numbers: str) -> None:
    text = version_resource.text(version)
    assert f"filevers={numbers}" in text
    names = ("VSVersionInfo", "FixedFileInfo", "StringFileInfo", "StringTable", "StringStruct")
    made: dict[str, str] = {}

    def note(name: str, value: str) -> None:
        made[name] = value

    known = dict.fromkeys((*names, "VarFileInfo", "VarStruct"), lambda *_, **__: None)
    eval(text, {**known, "StringStruct": note})  # as PyInstaller does
    assert made["ProductVersion"] == version


def test_ico_and_icns_containers_have_the_right_headers() -> None:
    container = icon_files.ico({16: b"small", 256: b"larger"})
    assert struct.unpack_from("<3H", container) == (0, 1, 2)
    side, _, _, _, _, bits, size, offset = struct.unpack_from("<4B2H2I", container, 6 + 16)
    assert (side, bits, container[offset : offset + size]) == (0, 32, b"larger")
    container = icon_files.icns({b"ic07": b"image"})
    assert container == b"icns" + struct.pack(">I", 21) + b"ic07" + struct.pack(">I", 13) + b"image"


def test_an_icon_is_rendered_at_the_requested_size(qapp: object) -> None:
    assert struct.unpack_from(">2I", icon_files.png(48), 16) == (48, 48)


def _entry(path: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path, encoding="utf-8")
    return parser["Desktop Entry"]


def _words(value: str) -> list[str]:
    """Parse an Exec line as a desktop does: string escapes, then quotes, then percent signs."""
    plain = re.sub(r"\\(.)", lambda found: {"s": " "}.get(found[1], found[1]), value)
    found = re.match(r'"((?:[^"\\]|\\.)*)" (.*)$', plain)
    assert found is not None, plain
    return [re.sub(r"\\(.)", r"\1", found[1]).replace("%%", "%"), found[2]]


def _install(folder: Path, home: Path, *arguments: str, **settings: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    ran = subprocess.run(
        [folder / "install.sh", *arguments],
        env={**kept, "HOME": str(home), **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# --- smoke tests --------------------------------------------------------------------------------


def test_unlisted_lines_on_stderr_fail_the_smoke_test() -> None:
    smoke_frozen.check_errors("This plugin does not support propagateSizeHints()\n\n")
    with pytest.raises(Trouble, match=r"qt\.svg: Cannot read file"):
        smoke_frozen.check_errors("qt.svg: Cannot read file\n")


def test_the_readme_lists_the_packages_installed_in_the_chroot() -> None:
    text = (PACKAGING / "linux" / "README.txt").read_text(encoding="utf-8")
    listed = re.search(r"Debian and Ubuntu:\n\n(.+?)\n\n", text, re.DOTALL)
    assert listed is not None
    assert tuple(listed[1].split()) == clean_root.DESKTOP


def test_testing_a_missing_bundle_reports_how_to_build_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["bundle", "--test", "--out", str(tmp_path)]) == 1
    assert "Run `python3 packaging/dev.py bundle` first." in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="built under Wine")
def test_testing_a_missing_bundle_of_windows_reports_how_to_build_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Tokonoma").mkdir()
    (tmp_path / "Tokonoma" / "tokonoma").touch()  # the program of another system
    assert dev.main(["bundle", "--test", "--system", "win32", "--out", str(tmp_path)]) == 1
    assert "packaging/dev.py bundle --system win32` first." in capsys.readouterr().err


def test_library_paths_of_the_system_are_restored_for_child_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/bundle/_internal:/opt/mine")
    monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", "/opt/mine")
    start.restore_environment()
    assert os.environ["LD_LIBRARY_PATH"] == "/opt/mine"
    assert "LD_LIBRARY_PATH_ORIG" not in os.environ
    monkeypatch.setenv("LD_LIBRARY_PATH", "/bundle/_internal")
    start.restore_environment()
    assert "LD_LIBRARY_PATH" not in os.environ
