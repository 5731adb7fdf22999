"""Archives: the list of their files, and that nothing in them is unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from app.documents.readers import archive
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning
from archive_samples import (
    RAR_4,
    RAR_5,
    SEVEN_ZIP,
    SEVEN_ZIP_ENCRYPTED,
    SEVEN_ZIP_PLAIN,
    rar_4,
    rar_5,
)

LISTED = (
    "| Name | Bytes | Modified |\n"
    "| --- | --- | --- |\n"
    "| docs/a.txt | 5 | 2024-05-06 07:08 |\n"
    "| ../ü\\|b.txt | 0 | 2024-05-06 07:08 |"
)
FILES = (("docs/", b""), ("docs/a.txt", b"first"), ("../ü|b.txt", b""))


def zip_bytes() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in FILES:
            target.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 0)), content)
    return made.getvalue()


def tar_bytes() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as target:
        for name, content in FILES:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1714979280
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            target.addfile(info, io.BytesIO(content))
    return made.getvalue()


def read(folder: Path, content: bytes, name: str = "archive") -> Document:
    (folder / name).write_bytes(content)
    return archive.read(Source(folder / name))


@pytest.mark.parametrize(
    "content",
    [
        *(zip_bytes(), tar_bytes(), gzip.compress(tar_bytes())),
        *(bz2.compress(tar_bytes()), lzma.compress(tar_bytes())),
    ],
    ids=["zip", "tar", "gz", "bz2", "xz"],
)
def test_the_files_of_an_archive_are_listed(tmp_path: Path, content: bytes) -> None:
    document = read(tmp_path, content)
    assert document.kind is DocumentKind.ARCHIVE
    assert document.text == LISTED
    assert document.warnings == ()


@pytest.mark.parametrize("content", [SEVEN_ZIP, SEVEN_ZIP_PLAIN])
def test_the_files_of_a_7z_archive_are_listed(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content).text.splitlines()[2:] == [
        "| c.bin | 1000 | 2024-05-06 07:08 |",
        "| docs/a.txt | 50 | 2024-05-06 07:08 |",
        "| ü\\|b.txt | 0 | 2024-05-06 07:08 |",
    ]


@pytest.mark.parametrize("content", [RAR_5, RAR_4], ids=["5", "4"])
def test_the_files_of_a_rar_archive_are_listed(tmp_path: Path, content: bytes) -> None:
    document = read(tmp_path, content)
    assert document.text == LISTED.replace("| 0 |", "| 300 |")
    assert document.warnings == ()


@pytest.mark.parametrize(
    "content",
    [SEVEN_ZIP_ENCRYPTED, rar_5(b"\x04\0\0\0"), rar_4((0x73, 0x80, bytes(6)))],
    ids=["7z", "rar 5", "rar 4"],
)
def test_an_archive_whose_list_is_encrypted_is_protected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ExtractionError) as caught:
        read(tmp_path, content)
    assert caught.value.fault is ExtractionFault.PROTECTED


def test_a_compressed_file_is_the_only_one_listed(tmp_path: Path) -> None:
    document = read(tmp_path, gzip.compress(b"words"), "notes.txt.gz")
    assert document.text.splitlines()[-1] == "| notes.txt |  |  |"


def test_an_archive_of_nothing_is_empty(tmp_path: Path) -> None:
    made = io.BytesIO()
    zipfile.ZipFile(made, "w").close()
    document = read(tmp_path, made.getvalue())
    assert (document.text, document.warnings[0].warning) == ("", DocumentWarning.EMPTY)


def test_a_long_list_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    document = read(tmp_path, tar_bytes())
    assert document.text == LISTED.rpartition("\n")[0]
    assert document.warnings[0].warning is DocumentWarning.CUT


def test_what_unpacks_to_too_much_is_listed_up_to_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as target:
        for name, size in (("small", 10), ("large", 3_000_000), ("after", 10)):
            info = tarfile.TarInfo(name)
            info.size = size
            target.addfile(info, io.BytesIO(bytes(size)))
    monkeypatch.setattr(archive, "MOST_UNPACKED_BYTES", 1_000_000)
    document = read(tmp_path, made.getvalue())
    assert [line.split()[1] for line in document.text.splitlines()[2:]] == ["small", "large"]
    assert document.warnings[0].warning is DocumentWarning.CUT


def test_the_rest_of_a_damaged_archive_is_left_out_with_a_warning(tmp_path: Path) -> None:
    content = bytearray(tar_bytes())
    content[2 * 512 + 512 : 2 * 512 + 600] = b"\xff" * 88
    document = read(tmp_path, bytes(content))
    assert "docs/a.txt" in document.text
    assert document.warnings[0].warning is DocumentWarning.DAMAGED


@pytest.mark.parametrize(
    "content", [zip_bytes()[:60], b"\x1f\x8b\x08" + b"\0" * 9, b"BZh9nothing", b"\xfd7zXZ\0junk"]
)
def test_a_damaged_archive_is_told(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ExtractionError) as caught:
        read(tmp_path, content)
    assert caught.value.fault is ExtractionFault.DAMAGED
