"""Packages made of a small made-up bundle: files, metadata, manual, and what a trial looks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

import bundle
import contents
import dev
import packages
import release_notes
from app.__main__ import _parser
from engine.loading.library import PORTABLE
from environment import Trouble
from linux import clean_root, deb, metainfo, rpm, tree
from release_notes import Release
from windows import files as windows_files
from windows import setup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packages of Linux")
ROOT = Path(__file__).parent.parent
LINUX = ROOT / "packaging" / "linux"
VERSION = release_notes.version()
NOTES = """# Changes

## 0.2.0
- One `--flag`, on
  two lines.
- Another.

## 0.1.0
- The first.
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with all that packages read, but a script for its program."""
    folder = tmp_path_factory.mktemp("small") / "Tokonoma"
    licences = folder / "_internal" / "resources" / "licences"
    licences.mkdir(parents=True)
    (licences / "index.txt").write_text(
        "What this is made of.\n\nQt  6.11  LGPL-3.0-only  Qt/\n", encoding="utf-8"
    )
    (folder / "tokonoma").write_text("#!/bin/sh\necho started\n", encoding="utf-8")
    icons = tmp_path_factory.mktemp("icons")
    for side in (16, 24, 32, 48, 64, 128, 256, 512):
        (icons / f"tokonoma-{side}.png").write_bytes(b"picture")
    bundle.add_linux_files(folder, icons)
    readme = (folder / "README.txt").read_text(encoding="utf-8")
    (folder / "README.txt").write_text(
        re.sub(r"glibc \S+ or", "glibc 2.35 or", readme), encoding="utf-8"
    )
    bundle._set_modes(folder)
    return folder


@pytest.fixture
def root(small: Path, tmp_path: Path) -> Path:
    tree.lay_out(small, tmp_path / "root")
    return tmp_path / "root"


def test_release_notes_are_read_by_version(tmp_path: Path) -> None:
    path = tmp_path / "changelog.md"
    path.write_text(NOTES.replace("0.2.0", VERSION), encoding="utf-8")
    found = release_notes.releases(path)
    assert found[0] == Release(VERSION, ("One `--flag`, on two lines.", "Another."))
    path.write_text(NOTES.replace("0.1.0", "0.0.9"), encoding="utf-8")
    with pytest.raises(Trouble, match=f"has no section for version {re.escape(VERSION)}"):
        release_notes.releases(path)


def test_the_installed_tree_has_program_menu_entry_manual_and_texts(root: Path) -> None:
    link = root / "usr" / "bin" / "tokonoma"
    ran = subprocess.run([link], capture_output=True, text=True, check=True)
    assert ran.stdout == "started\n"
    share = root / "usr" / "share"
    names = {str(path.relative_to(share)) for path in share.rglob("*") if path.is_file()}
    assert names > {
        "applications/tokonoma.desktop",
        "mime/packages/tokonoma.xml",
        "metainfo/app.tokonoma.Tokonoma.metainfo.xml",
        "man/man1/tokonoma.1.gz",
        "doc/tokonoma/copyright",
        "icons/hicolor/scalable/apps/tokonoma.svg",
        *(f"icons/hicolor/{side}x{side}/apps/tokonoma.png" for side in (16, 32, 48, 256, 512)),
    }
    assert not (root / "usr/lib/tokonoma/install.sh").exists()
    assert "Qt  6.11  LGPL" in (share / "doc/tokonoma/copyright").read_text(encoding="utf-8")
    open_to_all = {path.stat().st_mode & 0o055 for path in root.rglob("*") if path.is_dir()}
    assert open_to_all == {0o055}


def test_the_manual_has_every_option() -> None:
    text = (LINUX / "tokonoma.1").read_text(encoding="utf-8").replace("\\-", "-")
    options = [name for each in _parser()._actions for name in each.option_strings]
    assert len(options) > 4
    assert [name for name in options if name not in text] == []


def test_the_description_has_the_release_notes() -> None:
    releases = [Release("0.2.0", ("One `--flag` & more.", "Another."))]
    made = ET.fromstring(metainfo.text(releases))
    items = made.findall("releases/release[@version='0.2.0']/description/ul/li")
    assert ["".join(item.itertext()) for item in items] == ["One --flag & more.", "Another."]
    assert items[0].find("code") is not None
    assert made.findtext("id") == metainfo.ID
    width, height = (made.find("screenshots//image").get(name) for name in ("width", "height"))  # type: ignore[union-attr]
    head = (ROOT / "resources" / "readme" / "window.png").read_bytes()
    assert (int(width or 0), int(height or 0)) == (
        int.from_bytes(head[16:20], "big"),
        int.from_bytes(head[20:24], "big"),
    )


@pytest.mark.parametrize(
    ("tool", "file"),
    [
        (("appstreamcli", "validate", "--no-net"), f"metainfo/{metainfo.ID}.metainfo.xml"),
        (("desktop-file-validate",), "applications/tokonoma.desktop"),
    ],
)
def test_the_systems_own_checkers_pass(root: Path, tool: tuple[str, ...], file: str) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"needs {tool[0]}")
    ran = subprocess.run(
        [*tool, root / "usr" / "share" / file], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_mime_type_is_recognised_from_its_file(root: Path, tmp_path: Path) -> None:
    if shutil.which("update-mime-database") is None:
        pytest.skip("needs update-mime-database")
    mime = root / "usr" / "share" / "mime"
    subprocess.run(["update-mime-database", mime], check=True)
    assert "50:application/x-gguf:*.gguf" in (mime / "globs2").read_text(encoding="utf-8")
    assert b"GGUF" in (mime / "magic").read_bytes()


def test_the_flatpak_manifest_is_local_and_asks_for_no_files_of_the_user() -> None:
    manifest = json.loads((LINUX / f"{metainfo.ID}.json").read_text(encoding="utf-8"))
    assert manifest["id"] == metainfo.ID
    assert manifest["command"] == "tokonoma"
    assert manifest["rename-desktop-file"] == (LINUX / "tokonoma.desktop").name
    assert sorted(manifest["finish-args"]) == [
        "--device=dri",
        "--share=ipc",
        "--share=network",
        "--socket=fallback-x11",
        "--socket=wayland",
        "--talk-name=org.freedesktop.secrets",
    ]
    (module,) = manifest["modules"]
    (source,) = module["sources"]
    assert source["type"] == "dir"
    assert (LINUX / source["path"]).resolve() == bundle.FOLDER / bundle.NAME


def test_the_flatpak_commands_copy_the_bundle(small: Path, tmp_path: Path) -> None:
    (module,) = json.loads((LINUX / f"{metainfo.ID}.json").read_text(encoding="utf-8"))["modules"]
    app = tmp_path / "app"
    app.mkdir()
    for command in module["build-commands"]:
        subprocess.run(["sh", "-ec", command.replace("/app", str(app))], cwd=small, check=True)
    assert (app / "bin" / "tokonoma").resolve() == app / "lib" / "tokonoma" / "tokonoma"
    assert (app / "share" / "applications" / "tokonoma.desktop").exists()


def test_a_deb_installs_the_tree_and_depends_on_the_libraries(small: Path, tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb")
    file = deb.make(small, tmp_path)
    assert file.name == f"tokonoma_{VERSION}_{deb.architecture()}.deb"
    fields = subprocess.run(["dpkg-deb", "--field", file], capture_output=True, text=True).stdout
    assert "Depends: libc6 (>= 2.35)" in fields
    listed = subprocess.run(["dpkg-deb", "-c", file], capture_output=True, text=True).stdout
    assert "./usr/bin/tokonoma -> ../lib/tokonoma/tokonoma" in listed
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}
    assert "./usr/share/tokonoma/apparmor" in listed
    scripts = subprocess.run(["dpkg-deb", "--info", file], capture_output=True, text=True).stdout
    assert "postinst" in scripts
    assert "postrm" in scripts
    assert list(tmp_path.iterdir()) == [file], "nothing else stays"
    again = tmp_path / "again"
    again.mkdir()
    assert deb.make(small, again).read_bytes() == file.read_bytes(), "the same to the byte"


def test_the_apparmor_profile_is_installed_where_it_is_understood(tmp_path: Path) -> None:
    for name in ("etc/apparmor.d", "usr/share/tokonoma"):
        (tmp_path / name).mkdir(parents=True)
    profile = (tree.HERE / "apparmor").read_text(encoding="utf-8")
    assert f"profile tokonoma /{tree.PLACE}/tokonoma flags=(unconfined)" in profile
    (tmp_path / "usr/share/tokonoma/apparmor").write_text(profile, encoding="utf-8")
    installed = tmp_path / "etc/apparmor.d/tokonoma"

    def run(script: str, *arguments: str) -> bool:
        text = (tree.HERE / script).read_text(encoding="utf-8")
        text = re.sub(r"/(?=(etc|usr|sys)/)", f"{tmp_path}/", text)
        subprocess.run(["sh", "-c", text, script, *arguments], check=True)
        return installed.exists()

    assert not run("postinst", "configure"), "AppArmor 3 refuses it"
    assert not run("postrm", "remove")
    (tmp_path / "etc/apparmor.d/abi").mkdir()
    (tmp_path / "etc/apparmor.d/abi/4.0").touch()
    assert run("postinst", "configure")
    assert run("postinst", "configure", "1.0"), "upgraded"
    assert run("postrm", "upgrade", "2.0"), "the new version has it too"
    assert not run("postrm", "remove")
    assert not run("postrm", "purge")


def test_an_rpm_installs_the_tree(small: Path, tmp_path: Path) -> None:
    if shutil.which("rpmbuild") is None:
        pytest.skip("needs rpmbuild")
    file = rpm.make(small, tmp_path)
    listed = subprocess.run(["rpm", "-qpl", file], capture_output=True, text=True).stdout
    assert {"/usr/bin/tokonoma", "/usr/lib/tokonoma/tokonoma"} <= set(listed.split())
    requires = subprocess.run(["rpm", "-qpR", file], capture_output=True, text=True).stdout
    assert {"libc.so.6(GLIBC_2.35)(64bit)", "xkeyboard-config"} <= set(requires.split())


def test_an_archive_has_one_folder_of_roots_files(small: Path, tmp_path: Path) -> None:
    (file,) = packages.make(["tar.xz"], small / "tokonoma", tmp_path)
    with tarfile.open(file) as archive:
        members = archive.getmembers()
    assert {member.name.split("/")[0] for member in members} == {file.name.removesuffix(".tar.xz")}
    assert {(member.uid, member.uname) for member in members} == {(0, "root")}
    assert [m.mode & 0o777 for m in members if m.name.endswith("install.sh")] == [0o755]


def test_a_library_of_no_known_package_is_named() -> None:
    assert tree.debian_packages(["libc.so.6", "libGL.so.1"]) == ["libgl1"]
    with pytest.raises(Trouble, match=r"needs libunheard-of\.so\.9 of the system"):
        tree.debian_packages(["libunheard-of.so.9"])


def test_an_unknown_format_and_a_missing_tool_are_named(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Trouble, match=r"no package format 'msi' here; there are deb, rpm, tar\.xz"):
        packages.make(["msi"], small / "tokonoma", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Trouble, match=r"Making rpm needs rpmbuild: install the package rpm"):
        packages.make(["rpm"], small / "tokonoma", tmp_path)
    assert dev.main(["package", "deb", "--bundle", str(tmp_path)]) == 1
    assert "dev.py bundle" in capsys.readouterr().err


def test_a_trace_shows_changed_files_outside_the_home() -> None:
    root = Path("/roots/one")
    trace = "\n".join(
        (
            '7 openat(AT_FDCWD</roots/one/home/someone>, "run/x", O_WRONLY|O_CREAT, 0644) = 3',
            '7 openat(AT_FDCWD</roots/one>, "/etc/hosts", O_RDONLY|O_CLOEXEC) = 3',
            '7 openat(AT_FDCWD</roots/one>, "/etc/mine", O_RDWR|O_CREAT, 0644) = 3',
            '7 mkdir("/usr/lib/tokonoma/new", 0755) = -1 EACCES (Permission denied)',
            '7 rename("/home/someone/a", "/var/a") = 0',
            '7 openat(5</roots/one/opt>, "b", O_WRONLY) = 3',
        )
    )
    assert clean_root.writes(trace, root) == ["/etc/mine", "/opt/b", "/var/a"]


# Lines that strace wrote; the remote ones in a network namespace without a device.
_LOCAL_CALLS = """
92  socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, [3<socket:[24]>, 4<socket:[25]>]) = 0
92  socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 5<socket:[27]>
92  bind(5<socket:[27]>, {sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
92  connect(6<socket:[29]>, {sa_family=AF_INET, sin_port=htons(37677), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
92  sendto(6<socket:[29]>, "x", 1, 0, NULL, 0) = 1
92  sendto(9<socket:[35]>, "hello", 5, 0, {sa_family=AF_INET, sin_port=htons(9999), sin_addr=inet_addr("127.0.0.1")}, 16) = 5
92  socket(AF_INET6, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 7<socket:[31]>
92  connect(8<socket:[33]>, {sa_family=AF_INET6, sin6_port=htons(41873), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = 0
92  connect(8<socket:[41]>, {sa_family=AF_INET6, sin6_port=htons(37677), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::ffff:127.0.0.1", &sin6_addr), sin6_scope_id=0}, 28) = 0
92  bind(4<socket:[43]>, {sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr("0.0.0.0")}, 16) = 0
92  getpeername(3<socket:[24]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}, [16]) = 0
92  connect(6<socket:[52]>, {sa_family=AF_UNIX, sun_path=@"/tmp/.X11-unix/X99"}, 21) = 0
92  bind(7<socket:[53]>, {sa_family=AF_NETLINK, nl_pad=0xa48b, nl_pid=0, nl_groups=00000000}, 12) = 0
92  recvmsg(3, {msg_namelen=0}, 0) = -1 EAGAIN (Resource temporarily unavailable)
""".strip().splitlines()
_REMOTE_CALLS = {
    '92  connect(11<socket:[37]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}, 16) = -1 ENETUNREACH (Network is unreachable)': "connect 192.0.2.1, port 443",
    '92  connect(11<socket:[37]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}, 16 <unfinished ...>': "connect 192.0.2.1, port 443",
    '92  connect(12<socket:[39]>, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = -1 ENETUNREACH (Network is unreachable)': "connect 2001:db8::1, port 443",
    '92  connect(16<socket:[50]>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.53")}, 16) = 0': "connect 127.0.0.53, port 53",
    '92  sendto(9<socket:[35]>, "\\0224\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3www\\7example\\3com\\0", 29, 0, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.53")}, 16) = 29': "sendto 192.0.2.53, port 53",
    '92  sendto(9<socket:[35]>, "{sa_family=AF_UNIX}", 19, 0, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}, 16) = 19': "sendto 192.0.2.1, port 443",
    '92  sendmsg(9<socket:[35]>, {msg_name={sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.54")}, msg_namelen=16, msg_iov=[{iov_base="m", iov_len=1}], msg_iovlen=1, msg_controllen=0, msg_flags=0}, 0) = 1': "sendmsg 192.0.2.54, port 53",
    '92  bind(15<socket:[45]>, {sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("0.0.0.0")}, 16) = 0': "bind 0.0.0.0, port 8080",
    "92  connect(9, {sa_family=AF_INET, sin_port=htons(443)}, 16) = 0": "connect an address, port 443",
    "92  connect(9, {sa_family=AF_VSOCK, svm_cid=0x2, svm_port=0x50}, 16) = 0": "connect AF_VSOCK",
    "92  socket(AF_PACKET, SOCK_RAW|SOCK_CLOEXEC, htons(0 /* ETH_P_??? */)) = 17": "socket AF_PACKET",
}  # fmt: skip


def test_calls_that_stay_in_this_machine_are_not_remote() -> None:
    assert clean_root.remote("\n".join(_LOCAL_CALLS)) == []


@pytest.mark.parametrize("line", _REMOTE_CALLS)
def test_one_call_beyond_this_machine_is_found_among_others(line: str) -> None:
    trace = "\n".join([*_LOCAL_CALLS, line, *_LOCAL_CALLS])
    assert clean_root.remote(trace) == [_REMOTE_CALLS[line]]


def test_the_bundles_own_needs_have_packages() -> None:
    """What the packages of clean_root name is what the libraries of the system come in."""
    library = ROOT / "kernels" / "cpu" / "lib"
    if not any(library.glob("nk-*.so")):
        pytest.skip("needs the native kernels")
    assert set(tree.debian_packages(tree.libraries(library))) <= {*clean_root.DESKTOP, "libgcc-s1"}
    assert os.sep not in "".join(tree.libraries(library))


# --- Windows -------------------------------------------------------------------------------------


def test_formats_of_windows_are_made_on_linux_when_named() -> None:
    assert packages.by_system((), "linux") == {"linux": ["deb", "rpm", "tar.xz"]}
    assert packages.by_system(("zip", "deb", "exe"), "linux") == {
        "win32": ["zip", "exe"],
        "linux": ["deb"],
    }
    assert packages.by_system((), "win32") == {"win32": ["exe", "zip"]}
    with pytest.raises(Trouble, match=r"'deb'.*exe, zip"):
        packages.by_system(("deb",), "win32")


def test_zip_of_windows_has_the_folder_that_makes_it_portable(tmp_path: Path) -> None:
    folder = tmp_path / "Tokonoma"
    (folder / "_internal").mkdir(parents=True)
    (folder / "Tokonoma.exe").write_bytes(b"program")
    (folder / "_internal" / "a.dll").write_bytes(b"library" * 1000)
    first = setup.make_zip(folder, tmp_path)
    bytes_ = first.read_bytes()
    os.utime(folder / "Tokonoma.exe", (1e9, 1e9))
    assert setup.make_zip(folder, tmp_path).read_bytes() == bytes_
    with zipfile.ZipFile(first) as packed:
        packed.extractall(tmp_path / "unpacked")
    unpacked = tmp_path / "unpacked" / f"Tokonoma-{VERSION}"
    assert (unpacked / PORTABLE).is_dir()
    assert (unpacked / "_internal" / "a.dll").read_bytes() == b"library" * 1000


_NSIS_NAMES = {
    "ar": "Arabic",
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "ja": "Japanese",
    "ko": "Korean",
    "pt_BR": "PortugueseBR",
    "ru": "Russian",
    "zh_CN": "SimpChinese",
}


def test_installer_of_windows_speaks_the_languages_of_the_window() -> None:
    text = setup.TEXTS.read_text(encoding="utf-8")
    wanted = ["English", *(_NSIS_NAMES[language] for language in contents.LANGUAGES)]
    assert re.findall(r'^!insertmacro MUI_LANGUAGE "(\w+)"$', text, re.MULTILINE) == wanted
    blocks = re.findall(r"^!insertmacro TEXTS \$\{LANG_(\w+)\}((?:.*\\\n)+.*)$", text, re.MULTILINE)
    assert [name for name, _ in blocks] == [name.upper() for name in wanted]
    english, *others = [re.findall(r'"([^"]+)"', block) for _, block in blocks]
    for texts in others:
        assert len(texts) == len(english)
        for ours, theirs in zip(english, texts, strict=True):
            assert theirs != ours
            assert _variables(theirs) == _variables(ours), theirs


def _variables(text: str) -> list[str]:
    """The variables of the installer that a text has."""
    return sorted(re.findall(r"\$(?:INSTDIR|\d)", text))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("makensis") is None, reason="needs NSIS")
def test_installer_of_windows_compiles_without_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "Tokonoma"
    (folder / "_internal").mkdir(parents=True)
    (folder / "Tokonoma.exe").write_bytes(b"program")
    windows_files.add_files(folder)
    made = setup.make_exe(folder, tmp_path, "1.2.3", "SetCompress off")
    assert made.name == "Tokonoma-1.2.3-windows-x86_64-setup.exe"
    assert made.read_bytes().startswith(b"MZ")
    (folder / "_internal").rmdir()
    shutil.rmtree(folder)
    with pytest.raises(Trouble, match="makensis"):
        setup.make_exe(folder, tmp_path)
