"""Tests under Wine: the pins of the Windows wheels, the chosen tests, and what refusals say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import environment
from windows import shims, wine

ROOT = Path(__file__).parent.parent
# Of the developer's machine, not of the Windows that runs the tests.
_BUILDS = {"hatchling", "pathspec", "tomlkit", "trove-classifiers", "pyinstaller"}
_ELSEWHERE = _BUILDS | {"ruff", "basedpyright", "import-linter", "clang-format"}


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def _wheels() -> dict[str, str]:
    lines = wine.WHEELS.read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    for line in pinned:
        assert re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line), line
    return dict(line.split()[0].split("==") for line in pinned)


def test_the_windows_wheels_are_the_pinned_versions() -> None:
    wheels = {_name(name): version for name, version in _wheels().items()}
    ours = {_name(name): one for name, one in environment.pins(environment.REQUIREMENTS).items()}
    wanted = {name: version for name, version in ours.items() if name not in _ELSEWHERE}
    assert {name: wheels.get(name) for name in wanted} == wanted


def test_the_chosen_tests_are_there_and_of_every_room() -> None:
    chosen = wine.CHOSEN.read_text(encoding="utf-8").split()
    assert {name.split("/")[1] for name in chosen} == set(wine.ROOMS)
    for name in chosen:
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        if test:
            assert f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")


def test_every_export_of_wines_dll_is_forwarded_unless_it_is_ours() -> None:
    text = shims.definition(["creal", "fopen", "??2@YAPAX@Z"])
    assert " creal=shim_creal\n" in text
    assert ' "fopen"=ucrtwine.fopen\n' in text
    assert ' "??2@YAPAX@Z"=ucrtwine.??2@YAPAX@Z\n' in text
    assert text.count("creal=") == 1
    sources = (shims.SOURCES / "ucrtbase.c").read_text(encoding="utf-8")
    own = re.findall(r" (\w+)=shim_", text)
    assert len(own) == 66
    for name in own:
        base = name if f"({name})" in sources else name[:-1]
        assert f"({base})" in sources or f"shim_{name}(" in sources, name


def test_the_prefix_takes_the_cpp_runtime_of_microsoft_alone() -> None:
    """Wine 8's destroys a caught exception twice; "native" fails where Microsoft's is missing."""
    assert '"msvcp140"="native"\n' in wine._REGISTRY


@pytest.mark.skipif(not list(Path("/usr").glob("lib*/*/wine/*/ucrtbase.dll")), reason="no Wine")
def test_exports_of_wines_own_dll() -> None:
    dll = next(Path("/usr").glob("lib*/*/wine/x86_64-windows/ucrtbase.dll")).read_bytes()
    names = shims.exports(dll)
    assert {"fopen", "_wfopen", "malloc", "creal"} <= set(names)
    assert len(names) > 1000


class Stuck(wine.Prefix):
    """A prefix in which no program ends within its time."""

    def run(self, *command: str, **_: object) -> int:  # type: ignore[override]
        raise environment.Trouble(f"{command[-1]} took too long.")

    def stop(self) -> None:
        pass


def test_a_room_that_takes_too_long_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = wine._pytest(Stuck(tmp_path), "app", ["tests/app"], every=True)
    assert (row.name, row.passed, row.failed) == ("app", 0, 1)
    assert capsys.readouterr().out == "tests/app took too long.\n"


def test_a_run_begins_without_the_temporary_files_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "drive_c" / "users" / "ada"
    for name in ("Temp/pytest/deep", "AppData/Local/Temp/tmp1", "Documents"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_bytes(b"kept")
    (folder / "Temp" / "file").write_bytes(b"left")
    (folder / "Temp" / "link").symlink_to(folder / "Documents")
    wine._pytest(Stuck(tmp_path), "app", ["tests/app"], every=True)
    assert not any((folder / "Temp").iterdir())
    assert not any((folder / "AppData" / "Local" / "Temp").iterdir())
    assert (folder / "Documents" / "file").read_bytes() == b"kept"


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(environment.Trouble) as refused:
        wine.prefix()
    assert "sudo apt install wine wine64 osslsigncode" in str(refused.value)
    assert "\n" not in str(refused.value)
