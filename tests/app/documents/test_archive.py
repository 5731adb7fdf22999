"""Archives: the list of their files, and that nothing in them is unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from base64 import b64decode
from pathlib import Path

import pytest

from app.documents.readers import archive
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning

LISTED = (
    "| Name | Bytes | Modified |\n"
    "| --- | --- | --- |\n"
    "| docs/a.txt | 5 | 2024-05-06 07:08 |\n"
    "| ../ü\\|b.txt | 0 | 2024-05-06 07:08 |"
)
FILES = (("docs/", b""), ("docs/a.txt", b"first"), ("../ü|b.txt", b""))

# Of py7zr 1.1.4: a file of 50 bytes, an empty one and one of 1000 in two folders, its header
# packed, not packed, and encrypted.
SEVEN_ZIP = (
    "N3q8ryccAATsBWhWrAAAAAAAAAAWAAAAAAAAAHFaQWjgBBkAE10AAG/9//+jt1paJVZzPUGx5EOAAADgAMgAiV0AAI"
    "EzB64Pz7XvEA/Ual595dfdm+avUngRKpatme+bXY1iftQuSe545rwPcSWUGr/B5Q0fclPBGmUr5gRD0DgtyA3IKtQj"
    "p4DR7MkG+VPG0hzz8H39yKmgWjnkQ4C46CTQ1uU1r2SjNTzPo2plVVA+7jCqWBeOaG/nMFvVRztGu0LoyjlzYRPAAA"
    "AAFwYbAQmAkQAHCwEAASEhARgMgMkAAA=="
)
SEVEN_ZIP_PLAIN = (
    "N3q8ryccAAQxLRchGwAAAAAAAADGAAAAAAAAADK+KnbgBBkAE10AAG/9//+jt1paJVZzPUGx5EOAAAABBAYAAQkbAA"
    "cLAQACISEBGAQDAwEDAQAMhBqEGgAIDQMJg+gyCgGAFwsGG54B/wAAAAAAAAUFDgGgGQEAEUEAZAAAAGMALgBiAGkA"
    "bgAAAGQAbwBjAHMAAABkAG8AYwBzAC8AYQAuAHQAeAB0AAAA/AB8AGIALgB0AHgAdAAAABQqAQAgcta6hH7dAQBIDy"
    "GEn9oBAEgPIYSf2gEASA8hhJ/aAQBIDyGEn9oBFRYBABCA7UEggKSBEIDtQSCApIEggKSBAAA="
)
SEVEN_ZIP_ENCRYPTED = (
    "N3q8ryccAAQ2huhQEAEAAAAAAAAqAAAAAAAAABVaHqcXaDN45ZhplgzAPA41tTox7f7/F/OxTFEfsQaOqjvhpb8ocA"
    "+l216xeRZ6F3u6bL35dI2VOs0es2dkR4SusTCEU2Zd/Rf0qd1y0mHbcquyA7iaeKJl23/3ET7IOI5zd/BOVf/8G6zU"
    "8zfElxzABEq3QCwWMzuf8ggzVpDwsA9QHgBm/YMo1J8I3yOWW2byCLU9Ny5f43C7WEDmujLVT8YYPfLvcdrYrp82zt"
    "heqhteRjkz1zTdH52rjsEdUqgbhcFmoMWz2Z+HynDm6wZszPO4Dvqhb3Pyv7vJmDghbMeW4Xu6rVhed7Eo32+0DiqT"
    "nZJDn04+eGxOOrLpIKv950DfQVwqFxEka2uwD32K9vcefRcGIAEJgPAABwsBAAEkBvEHARJTD1tatqZ5bH8Q71unGq"
    "sxcjsMgOEAAA=="
)


def rar_5(*blocks: bytes) -> bytes:
    """Blocks of version 5, each after its checksum and its length."""
    made = b"Rar!\x1a\x07\x01\0"
    for block in blocks:
        length = bytes([len(block)])
        made += struct.pack("<I", zlib.crc32(length + block)) + length + block
    return made


def rar_4(*blocks: tuple[int, int, bytes]) -> bytes:
    """Blocks of version 4: kind, flags and header, after their checksums."""
    made = b"Rar!\x1a\x07\0"
    for kind, flags, content in blocks:
        header = struct.pack("<BHH", kind, flags, 7 + len(content)) + content
        made += struct.pack("<H", zlib.crc32(header) & 0xFFFF) + header
    return made


def rar_4_file(name: bytes, size: int = 5, flags: int = 0) -> tuple[int, int, bytes]:
    date = (44 << 25) | (5 << 21) | (6 << 16) | (7 << 11) | (8 << 5)
    facts = struct.pack("<IIBIIBBHI", 0, size, 3, 0, date, 29, 0x30, len(name), 0o100644)
    return 0x74, 0x8000 | flags, facts + name


RAR_5 = rar_5(
    b"\x01\0\0",  # main
    b"\x02\x02\0\x06\x05\0" + struct.pack("<II", 1714979280, 0) + b"\0\x01\x0adocs/a.txt",
    b"\x02\x02\0\x03\0\0" + struct.pack("<I", 1714979280) + b"\0\x01\x04docs",
    b"\x02\x02\0\x02\xac\x02\0" + struct.pack("<I", 1714979280) + b"\0\x01\x0b../\xc3\xbc|b.txt",
    b"\x05\0\0",
)
RAR_4 = rar_4(
    (0x73, 0, bytes(6)),
    rar_4_file(b"docs\\a.txt"),
    rar_4_file(b"docs", 0, 0xE0),
    rar_4_file(
        b"../u|b.txt\0"
        + bytes((0, 0b00_00_00_10))
        + b"../"
        + "ü".encode("utf-16-le")
        + bytes((0b00_00_00_00,))
        + b"|b.t"
        + bytes((0b00_00_00_00,))
        + b"xt",
        300,
        0x200,
    ),
    (0x7B, 0, b""),
)


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
def test_the_files_of_a_7z_archive_are_listed(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, b64decode(content)).text.splitlines()[2:] == [
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
    [
        b64decode(SEVEN_ZIP_ENCRYPTED),
        rar_5(b"\x04\0\0\0"),
        rar_4((0x73, 0x80, bytes(6))),
    ],
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
