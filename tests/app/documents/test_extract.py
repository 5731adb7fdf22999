"""Extraction through a child process: documents, and files that are no files to read."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.documents.extract import Extractor
from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import DocumentKind, DocumentWarning
from app.state.document_faults import fault_sentence
from engine.processes.pool import ChildLimits
from small_documents import pdf, pdf_page

posix = pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX")


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    made = Extractor(ChildLimits(seconds=20), most_bytes=10_000_000, most_characters=2_000)
    yield made
    made.close()


@pytest.fixture(autouse=True, scope="module")
def _started(extractor: Extractor, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the child before a test looks at the threads."""
    archive(extractor, tmp_path_factory.mktemp("first"))


def archive(extractor: Extractor, folder: Path, files: int = 2) -> str:
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w") as target:
        for number in range(files):
            target.writestr(f"file {number}.txt", "x")
    return extractor.extract(path, "shown.zip").text


def fault_of(extractor: Extractor, path: Path) -> ExtractionFault:
    with pytest.raises(ExtractionError) as caught:
        extractor.extract(path)
    return caught.value.fault


def test_the_document_of_a_file_is_extracted(extractor: Extractor, tmp_path: Path) -> None:
    assert "| file 1.txt | 1 |" in archive(extractor, tmp_path)


def test_the_progress_of_a_document_with_pages_is_told(
    extractor: Extractor, tmp_path: Path
) -> None:
    (tmp_path / "two.pdf").write_bytes(pdf(pdf_page()))
    done: list[float] = []
    extractor.extract(tmp_path / "two.pdf", progress=done.append)
    assert done
    assert all(0 <= each <= 1 for each in done)


def test_a_name_that_is_no_text_is_found(extractor: Extractor, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("names are text here")
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    folder.mkdir()
    assert "file 0" in archive(extractor, folder)


def test_a_long_text_is_cut_at_the_limit(extractor: Extractor, tmp_path: Path) -> None:
    archive(extractor, tmp_path, 500)
    document = extractor.extract(tmp_path / "archive.zip")
    assert document.kind is DocumentKind.ARCHIVE
    assert len(document.text) == 2_000
    assert document.warnings[-1].warning is DocumentWarning.CUT


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"GGUF\x03\0\0\0\0", ExtractionFault.UNKNOWN),
        (b"PK\x03\x04 and no more", ExtractionFault.DAMAGED),
        (bytes(10_000_001), ExtractionFault.TOO_LARGE),
    ],
)
def test_a_file_without_text_is_told(
    extractor: Extractor, tmp_path: Path, content: bytes, fault: ExtractionFault
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert fault_of(extractor, tmp_path / "file") is fault


def test_what_is_not_there_or_no_file_is_told_at_once(extractor: Extractor, tmp_path: Path) -> None:
    start = time.monotonic()
    (tmp_path / "file").touch()
    assert fault_of(extractor, tmp_path / "none") is ExtractionFault.MISSING
    assert fault_of(extractor, tmp_path / "file" / "in it") is ExtractionFault.MISSING
    assert fault_of(extractor, tmp_path) is ExtractionFault.NOT_A_FILE
    too_long = fault_of(extractor, tmp_path / ("x" * 5000))
    # Windows may say of such a name that there is no such file.
    wanted = ExtractionFault.MISSING if sys.platform == "win32" else ExtractionFault.UNREADABLE
    assert too_long in (ExtractionFault.UNREADABLE, wanted)
    assert fault_of(extractor, Path("a\0b")) is ExtractionFault.UNREADABLE
    assert time.monotonic() - start < 5


@posix
def test_pipes_devices_sockets_and_loops_are_refused_at_once(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.monotonic()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # a path of a socket is short
        server.bind("socket")
        for name in ("pipe", "link", "socket"):
            assert fault_of(extractor, tmp_path / name) is ExtractionFault.NOT_A_FILE
    assert fault_of(extractor, tmp_path / "loop") is ExtractionFault.UNREADABLE
    assert time.monotonic() - start < 5


@posix
def test_a_file_without_permission_is_refused(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("secret", encoding="utf-8")
    path.chmod(0)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(ExtractionError) as caught:
        extractor.extract(path)
    assert caught.value.fault is ExtractionFault.UNREADABLE
    assert fault_sentence("file", caught.value.fault, caught.value.detail)[0] == (
        "file cannot be read: Permission denied."
    )


def changes() -> dict[str, Callable[[Path], object]]:
    return {
        "written": lambda path: path.write_bytes(path.read_bytes() + b"x"),
        "removed": lambda path: path.unlink(),
        "replaced": lambda path: (path.with_suffix(".new").write_bytes(path.read_bytes()),
                                  os.replace(path.with_suffix(".new"), path)),
    }  # fmt: skip


@pytest.mark.parametrize("change", changes())
def test_a_file_that_changes_while_it_is_read_is_told(
    extractor: Extractor, tmp_path: Path, change: str
) -> None:
    if change != "written" and sys.platform == "win32":
        pytest.skip("Windows refuses to replace or delete a file that is open")
    archive(extractor, tmp_path)
    path = tmp_path / "archive.zip"
    changed = threading.Event()

    def act() -> bool:
        """Asked while the child reads."""
        if not changed.is_set():
            changed.set()
            changes()[change](path)
        return False

    with pytest.raises(ExtractionError) as caught:
        extractor.extract(path, cancelled=act)
    expected = ExtractionFault.MISSING if change == "removed" else ExtractionFault.CHANGED
    assert caught.value.fault is expected


def test_a_cancelled_extraction_says_so(tmp_path: Path) -> None:
    extractor = Extractor()
    archive(extractor, tmp_path)
    with pytest.raises(ExtractionError) as caught:
        extractor.extract(tmp_path / "archive.zip", cancelled=lambda: True)
    assert caught.value.fault is ExtractionFault.CANCELLED
    assert "file 0" in archive(extractor, tmp_path)
    extractor.close()
