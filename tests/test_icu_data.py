"""ICU's data in the bundle: parts are left out, the others stay as they are, and Qt sorts as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import PySide6
import pytest

from environment import Trouble
from linux import icu_data

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bundle of Linux")
SORTED = """
from PySide6.QtCore import QCollator, QLocale
for name in ("de", "sv", "zh_CN", "ja"):
    order = QCollator(QLocale(name))
    order.setNumericMode(True)
    print(sorted(["zebra", "ärger", "Öl", "apfel", "a10", "a9", "日本", "中国"], key=order.sortKey))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library of the wheel, and a smaller one."""
    found = next(Path(PySide6.__path__[0]).glob("Qt/lib/libicudata.so.*"), None)
    if found is None or shutil.which("ld") is None:
        pytest.skip("needs Qt's own ICU, and binutils")
    made = tmp_path_factory.mktemp("icu") / found.name
    shutil.copy(found, made)
    assert icu_data.shrink(made) == found.stat().st_size - made.stat().st_size
    return found, made


def table(library: Path) -> dict[str, bytes]:
    content = library.read_bytes()
    head = icu_data._HEAD.search(content)
    assert head is not None
    return dict(icu_data.parts(content[head.start() :]))


def test_only_the_unused_parts_are_left_out(libraries: tuple[Path, Path]) -> None:
    before, after = map(table, libraries)
    left_out = {name.split("/")[1] for name in before.keys() - after.keys()}
    assert left_out == set(icu_data.UNUSED)
    assert after.keys() < before.keys()
    last = max(after)  # whose end is that of the file
    changed = [
        name
        for name in after.keys() - {last}
        if after[name].rstrip(b"\0") != before[name].rstrip(b"\0")
    ]
    assert changed == []
    assert libraries[1].stat().st_size < 0.5 * libraries[0].stat().st_size


def test_qt_sorts_as_before(libraries: tuple[Path, Path]) -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", SORTED],
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONUTF8": "1"},
            capture_output=True,
            check=True,
        ).stdout
        for library in libraries
    ]
    assert printed[0] == printed[1]
    assert len(set(printed[0].splitlines())) > 2, "languages differ in their order"


def test_the_same_library_gives_the_same_bytes(
    libraries: tuple[Path, Path], tmp_path: Path
) -> None:
    again = tmp_path / libraries[0].name
    shutil.copy(libraries[0], again)
    icu_data.shrink(again)
    assert again.read_bytes() == libraries[1].read_bytes()


def test_another_library_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "libz.so"
    shutil.copy(os.path.realpath(sys.executable), other)
    with pytest.raises(Trouble, match="is not ICU's library of data"):
        icu_data.shrink(other)
