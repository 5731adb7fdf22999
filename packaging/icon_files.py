"""Renders the application icon to PNG, ICO and ICNS files for the bundle; runs in .venv.

The window renders its icons from SVG. Menus, docks and file managers need bitmaps of fixed sizes:
PNG on Linux, ICO on Windows, ICNS on macOS; the last two are containers of PNG images.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QGuiApplication

from app.ui.theme import icons

SIZES = (16, 20, 24, 32, 48, 64, 128, 256, 512, 1024)
_SMALL = 24  # largest size that uses the simplified drawing
_ICO = (16, 20, 24, 32, 48, 64, 256)
# ICNS type codes to pixels; some denote the same image at twice the pixel density.
_ICNS = {
    b"icp4": 16,
    b"icp5": 32,
    b"ic11": 32,
    b"ic12": 64,
    b"ic07": 128,
    b"ic08": 256,
    b"ic13": 256,
    b"ic09": 512,
    b"ic14": 512,
    b"ic10": 1024,
}


def png(size: int) -> bytes:
    """The icon as a PNG of `size` x `size` pixels; needs a QGuiApplication."""
    drawing = icons.source("icons/app_small.svg" if size <= _SMALL else "icons/app.svg")
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    icons.render(drawing, size, size, 1.0).save(buffer, "PNG")
    return bytes(data.data())


def ico(pictures: Mapping[int, bytes]) -> bytes:
    """A Windows icon file of PNG images, by size, at most 256 pixels."""
    offset = 6 + 16 * len(pictures)
    head, body = struct.pack("<3H", 0, 1, len(pictures)), b""
    for size, picture in sorted(pictures.items()):
        side = size % 256  # 0 stands for 256
        head += struct.pack("<4B2H2I", side, side, 0, 0, 1, 32, len(picture), offset + len(body))
        body += picture
    return head + body


def icns(pictures: Mapping[bytes, bytes]) -> bytes:
    """A macOS icon file of PNG images, by ICNS type code."""
    body = b"".join(
        kind + struct.pack(">I", 8 + len(picture)) + picture for kind, picture in pictures.items()
    )
    return b"icns" + struct.pack(">I", 8 + len(body)) + body


def main(folder: Path) -> None:
    """Write the icon files to `folder`: tokonoma-SIZE.png, tokonoma.ico, tokonoma.icns."""
    application = QGuiApplication([])
    pictures = {size: png(size) for size in SIZES}
    folder.mkdir(parents=True, exist_ok=True)
    for size, picture in pictures.items():
        (folder / f"tokonoma-{size}.png").write_bytes(picture)
    (folder / "tokonoma.ico").write_bytes(ico({size: pictures[size] for size in _ICO}))
    boxed = {kind: pictures[size] for kind, size in _ICNS.items()}
    (folder / "tokonoma.icns").write_bytes(icns(boxed))
    del application


if __name__ == "__main__":
    main(Path(sys.argv[1]))
