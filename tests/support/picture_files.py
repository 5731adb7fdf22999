"""Picture files: of every format that is read, in every mode, and hostile ones."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from PIL import Image, ImageCms

from engine.processes.pool import ChildPool
from engine.vision.decoding import picture

Make = Callable[[], bytes]


class SameProcess(ChildPool):
    """A pool whose tasks run here, where no process must be started."""

    def call(
        self,
        task: str,
        request: Mapping[str, Any],
        cancelled: Any = None,
        progress: Any = None,
        content: bytes = b"",
    ) -> list[bytes]:
        asked = {**json.loads(json.dumps(request)), "content": content}
        before = Image.MAX_IMAGE_PIXELS
        try:
            return list(picture(asked, progress))
        finally:
            Image.MAX_IMAGE_PIXELS = before


FORMATS = {  # Pillow's names, with options by which nothing is lost
    "PNG": {},
    "JPEG": {"quality": 95, "subsampling": 0},
    "GIF": {},
    "WEBP": {"lossless": True},
    "BMP": {},
    "TIFF": {},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    "JPEG2000": {},
    "ICO": {"sizes": [(48, 32)]},
    "PPM": {},
    "QOI": {},
    "PCX": {},
    "TGA": {},
}
SVG = (
    b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">'
    b'<image href="http://127.0.0.1:9/x.png"/><image href="file:///etc/hostname"/></svg>'
)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """The content of a file."""
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def squares(width: int = 48, height: int = 32) -> Image.Image:
    """A picture whose corners are red, green, blue and white, in reading order."""
    image = Image.new("RGB", (width, height), "white")
    half = width // 2, height // 2
    for place, colour in (((0, 0), "red"), ((half[0], 0), "lime"), ((0, half[1]), "blue")):
        image.paste(Image.new("RGB", half, colour), place)
    return image


def png(width: int, height: int, data: bytes = b"", depth: int = 8, kind: int = 2) -> bytes:
    """A PNG with any header and any pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def bombs() -> dict[str, Make]:
    """Files that would be far larger than their bytes, or never end."""
    side = 50_000
    zeros = bytes(20_000_000)
    return {
        "bomb.png": lambda: png(side, side, bytes(1000)),
        "bomb in one line.png": lambda: png(1_000_000_000, 1),
        "bomb of no width.png": lambda: png(0, 100),
        "bomb of short data.png": lambda: png(6_000, 6_000, bytes(100_000)),
        "bomb of long data.png": lambda: png(10, 10, zeros),
        "bomb.bmp": lambda: _bmp(side, side),
        "bomb of negative height.bmp": lambda: _bmp(side, -side),
        "bomb of least height.bmp": lambda: _bmp(1, -(1 << 31)),
        "bomb.gif": lambda: b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\xf7\0\0" + bytes(768),
        "bomb.qoi": lambda: b"qoif" + struct.pack(">IIBB", side, side, 4, 0) + b"\xfd" * 1000,
        "bomb.ppm": lambda: b"P6 50000 50000 255\n" + bytes(100),
        "bomb of many digits.ppm": lambda: b"P6 " + b"9" * 5000 + b" 1 255\n",
        "bomb.tga": lambda: _tga(65535, 65535),
        "bomb.tiff": lambda: _tiff(side, side),
        "bomb of tiles.tiff": lambda: _tiff(8, 8, {322: (4, 1 << 30), 323: (4, 1 << 30)}),
        "loop.tiff": lambda: _tiff(8, 8, following=8),
        "bomb in an icon.ico": lambda: _ico(png(20_000, 20_000, bytes(1000))),
        "bomb of text.png": lambda: _with_text(zlib.compress(zeros)),
        "bomb of a profile.png": lambda: encoded(squares(), "PNG", icc_profile=bytes(3_000_000)),
        "bomb.jpg": lambda: _larger_jpeg(65_500),
        "bomb.jp2": lambda: _larger_jp2(1 << 20),
        "bomb of frames.gif": lambda: encoded(
            squares(), "GIF", save_all=True, append_images=[squares()] * 300
        ),
    }


def _bmp(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header + bytes(300)


def _tga(width: int, height: int) -> bytes:
    return (
        struct.pack("<BBBHHBHHHHBB", 0, 0, 10, 0, 0, 0, 0, 0, width, height, 24, 0) + b"\xff" * 64
    )


def _tiff(
    width: int,
    height: int,
    more: Mapping[int, tuple[int, int]] | None = None,
    following: int = 0,
) -> bytes:
    tags = {256: (4, width), 257: (4, height), 258: (3, 8), 259: (3, 1), 262: (3, 1)}
    tags |= {273: (4, 8), 277: (3, 1), 278: (4, height), 279: (4, 64), **(more or {})}
    rows = [
        struct.pack("<HHII", tag, kind, 1, value) for tag, (kind, value) in sorted(tags.items())
    ]
    directory = struct.pack("<H", len(rows)) + b"".join(rows) + struct.pack("<I", following)
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(64)


def _ico(content: bytes) -> bytes:
    entry = struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 32, len(content), 22)
    return struct.pack("<HHH", 0, 1, 1) + entry + content


def _with_text(compressed: bytes) -> bytes:
    whole = encoded(squares())
    content = b"Comment\0\0" + compressed
    check = struct.pack(">I", zlib.crc32(b"zTXt" + content))
    return whole[:33] + struct.pack(">I", len(content)) + b"zTXt" + content + check + whole[33:]


def _larger_jpeg(side: int) -> bytes:
    whole = encoded(squares(), "JPEG")
    at = whole.index(b"\xff\xc0") + 5
    return whole[:at] + struct.pack(">HH", side, side) + whole[at + 4 :]


def _larger_jp2(side: int) -> bytes:
    whole = encoded(squares(), "JPEG2000")
    at = whole.index(b"ihdr") + 4
    return whole[:at] + struct.pack(">II", side, side) + whole[at + 8 :]


def odd_files() -> dict[str, Make]:
    """Pictures that are unusual, and files that are none, perhaps with the name of one."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x0112] = 6
    one = squares()
    made: dict[str, Make] = {
        "empty.png": lambda: b"",
        "zeros.png": lambda: bytes(100_000),
        "links.svg": lambda: SVG,
        "links.png": lambda: SVG,
        "page.jpg": lambda: b"<!doctype html><html><body>no picture</body></html>",
        "text.gif": lambda: b"no picture\n" * 100,
        "document.png": lambda: b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        "script.eps": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n",
        "metafile.wmf": lambda: b"\xd7\xcd\xc6\x9a" + bytes(100),
        "phone.heic": lambda: HEIC,
        "archive.webp": lambda: b"PK\x03\x04" + bytes(200),
        "really a jpeg.png": lambda: encoded(one, "JPEG"),
        "really a png.txt": lambda: encoded(one),
        "turned.jpg": lambda: encoded(one, "JPEG", exif=exif),
        "exif of nonsense.jpg": lambda: encoded(one, "JPEG", exif=b"Exif\0\0" + b"\xff" * 500),
        "exif that loops.jpg": lambda: encoded(
            one,
            "JPEG",
            exif=b"Exif\0\0II*\0\x08\0\0\0" + b"\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0",
        ),
        "profile of nonsense.jpg": lambda: encoded(one, "JPEG", icc_profile=b"\xff" * 900),
        "profile cut off.jpg": lambda: encoded(one, "JPEG", icc_profile=profile[:200]),
        "profile for grey.png": lambda: encoded(one.convert("L"), icc_profile=profile),
        "profile for ink.jpg": lambda: encoded(one.convert("CMYK"), "JPEG", icc_profile=profile),
        "profile damaged.png": lambda: encoded(
            one, icc_profile=profile[:128] + bytes(reversed(profile[128:]))
        ),
        "one pixel.png": lambda: encoded(squares(2, 2).crop((0, 0, 1, 1))),
        "long.png": lambda: encoded(Image.new("RGB", (20_000, 1))),
        "tall.png": lambda: encoded(Image.new("L", (1, 20_000))),
        "floats.tiff": lambda: encoded(_floats(), "TIFF"),
        "behind it.png": lambda: encoded(one) + SVG * 100,
        "before it.jpg": lambda: b"\n" * 100 + encoded(one, "JPEG"),
    }
    for format, options in FORMATS.items():
        small = squares(2, 2).resize((1, 1))
        made[f"1 x 1.{format.lower()}"] = lambda small=small, format=format, options=options: (
            encoded(small, format, **({} if format == "ICO" else options))
        )
    return made


def _floats() -> Image.Image:
    image = Image.new("F", (8, 8), 0.5)
    for at, value in enumerate((float("nan"), float("inf"), -float("inf"), 3e38)):
        image.putpixel((at, 0), value)
    return image


def damaged_files(seed: int = 0) -> Iterator[tuple[str, Make]]:
    """Every format, cut off in several places and with bytes that were changed."""
    chance = random.Random(seed)
    for format, options in FORMATS.items():
        whole = encoded(squares(), format, **options)
        for part in (1, 4, 12, 30, len(whole) // 4, len(whole) // 2, len(whole) - 1):
            yield f"cut at {part}.{format.lower()}", lambda cut=whole[:part]: cut
        for turn in range(13):
            changed = bytearray(whole)
            places = len(whole) if turn % 2 else min(len(whole), 64)
            for _ in range(1 << turn % 5):
                changed[chance.randrange(places)] = chance.choice((0, 1, 127, 128, 255))
            yield f"changed {turn}.{format.lower()}", lambda content=bytes(changed): content


def hostile_pictures(seed: int = 0) -> dict[str, Make]:
    """All of them by name."""
    return {**odd_files(), **bombs(), **dict(damaged_files(seed))}
