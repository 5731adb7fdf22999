"""Archives in 7z and RAR, which nothing here can write."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode

# Of py7zr 1.1.4: a file of 50 bytes, an empty one and one of 1000 in two folders, its header
# packed, not packed, and encrypted.
SEVEN_ZIP = b64decode(
    "N3q8ryccAATsBWhWrAAAAAAAAAAWAAAAAAAAAHFaQWjgBBkAE10AAG/9//+jt1paJVZzPUGx5EOAAADgAMgAiV0AAI"
    "EzB64Pz7XvEA/Ual595dfdm+avUngRKpatme+bXY1iftQuSe545rwPcSWUGr/B5Q0fclPBGmUr5gRD0DgtyA3IKtQj"
    "p4DR7MkG+VPG0hzz8H39yKmgWjnkQ4C46CTQ1uU1r2SjNTzPo2plVVA+7jCqWBeOaG/nMFvVRztGu0LoyjlzYRPAAA"
    "AAFwYbAQmAkQAHCwEAASEhARgMgMkAAA=="
)
SEVEN_ZIP_PLAIN = b64decode(
    "N3q8ryccAAQxLRchGwAAAAAAAADGAAAAAAAAADK+KnbgBBkAE10AAG/9//+jt1paJVZzPUGx5EOAAAABBAYAAQkbAA"
    "cLAQACISEBGAQDAwEDAQAMhBqEGgAIDQMJg+gyCgGAFwsGG54B/wAAAAAAAAUFDgGgGQEAEUEAZAAAAGMALgBiAGkA"
    "bgAAAGQAbwBjAHMAAABkAG8AYwBzAC8AYQAuAHQAeAB0AAAA/AB8AGIALgB0AHgAdAAAABQqAQAgcta6hH7dAQBIDy"
    "GEn9oBAEgPIYSf2gEASA8hhJ/aAQBIDyGEn9oBFRYBABCA7UEggKSBEIDtQSCApIEggKSBAAA="
)
SEVEN_ZIP_ENCRYPTED = b64decode(
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
